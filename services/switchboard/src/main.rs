//! The `switchboard` binary: parses the settings, initialises logging and the runtime, and runs a
//! subcommand.

use std::{process::ExitCode, time::Duration};

use switchboard_runtime::settings;

use crate::{cli::Cli, exit::Failure, process::Telemetry};

mod api;
mod arguments;
mod cli;
mod commands;
#[cfg(test)]
mod compatibility;
mod contexts;
mod data_folder;
mod device;
mod events;
mod exit;
mod files;
mod help;
mod http_client;
mod http_service;
mod moment;
mod output;
mod postgres;
mod process;
mod progress;
mod prompt;
mod query;
mod resources;
mod shell;
mod stdio;
mod stored_keys;
mod tls;

// The allocator with the least memory per connection of those measured. Threads of its own return
// free pages to the system, also while the process is idle (feature `background_threads`).
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Time that blocking tasks have to finish before the process exits.
const BLOCKING_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    clap_complete::CompleteEnv::with_factory(cli::command)
        .var(commands::completions::VARIABLE)
        .complete();
    let cli = match settings::parse_command::<Cli>(cli::command(), std::env::args_os()) {
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
        .map_err(|error| Failure::general(format!("cannot start the runtime: {error}")))?;
    let outcome = runtime.block_on(cli.command.run(telemetry));
    runtime.shutdown_timeout(BLOCKING_SHUTDOWN_TIMEOUT);
    outcome
}
