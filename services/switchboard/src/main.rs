//! The one binary: reads settings, starts logs and the runtime, hands over to a subcommand.
//! Never: a decision that belongs to a subcommand or a service.

use std::{process::ExitCode, time::Duration};

use switchboard_runtime::settings;

use crate::{cli::Cli, exit::Failure, process::Telemetry};

mod api;
mod arguments;
mod cli;
mod collection;
mod commands;
mod data_folder;
mod device;
mod events;
mod exit;
mod files;
mod http_service;
mod postgres;
mod process;
mod query;
mod site;
mod stdio;
mod tls;

// Smallest per connection of the allocators measured, and it gives memory back after a storm.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long blocking work that nobody waits for may hold up the exit.
const LINGER: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let cli = match settings::parse::<Cli>(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return exit::report_settings(&error),
    };
    match run(cli) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let telemetry = Telemetry::begin(&cli)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::general(format!("the runtime does not start: {error}")))?;
    let outcome = runtime.block_on(cli.command.run(telemetry));
    runtime.shutdown_timeout(LINGER);
    outcome
}
