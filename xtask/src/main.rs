//! `cargo xtask`: the project's checks and measurements. Nothing here is part of a release.

mod capacity;
mod check;
mod clients;
mod conformance;
mod console;
mod deploy;
mod first_hour;
mod helm;
mod neighbours;
mod packages;
mod schemathesis;

use std::process::{Command, ExitCode};

use anyhow::ensure;
use clap::{Parser, Subcommand};

/// Checks and measurements of the project.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run everything that CI runs: format, lints, documentation, licenses, tests
    Check,
    /// Install the MCP clients and the S3 server that the tests use, into the target folder
    Clients,
    /// Measure the system next to Redis, NATS and Mosquitto on this machine
    #[command(disable_help_flag = true)]
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Compute how many nodes a number of devices needs, and what breaks first
    Capacity(capacity::Options),
    /// Check the console: vendored libraries, types, tests, and journeys in a browser
    Console(console::Options),
    /// Run the official MCP conformance suite against the system (REDIS_URL, DATABASE_URL)
    Conformance(conformance::Options),
    /// Fuzz every operation of the API against its OpenAPI document (REDIS_URL, DATABASE_URL)
    Schemathesis(schemathesis::Options),
    /// Check the image, the compose file, the balancer, the alerts, and the scripts
    Deploy,
    /// Do what a new user does in the first hour, in a bare Debian (root, debootstrap)
    FirstHour(first_hour::Options),
    /// Check the Helm chart: lint, Kubernetes schemas, snapshots
    Helm(helm::Options),
    /// Attack the system as a noisy neighbour, and measure another organisation (REDIS_URL,
    /// DATABASE_URL)
    Neighbours(neighbours::Options),
    /// Build, install and run the wheel and the npm packages
    Packages,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Check => check::run(),
        Task::Clients => clients::install(),
        Task::Bench { arguments } => bench(&arguments),
        Task::Capacity(options) => capacity::run(&options),
        Task::Console(options) => console::run(&options),
        Task::Conformance(options) => conformance::run(&options),
        Task::Schemathesis(options) => schemathesis::run(&options),
        Task::Deploy => deploy::run(),
        Task::FirstHour(options) => first_hour::run(&options),
        Task::Helm(options) => helm::run(&options),
        Task::Neighbours(options) => neighbours::run(&options),
        Task::Packages => packages::run(),
    };
    // Without a backtrace: a command or a measurement failed, not this program.
    outcome.map_or_else(
        |error| {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// Builds and runs the package `switchboard-bench`. xtask itself does not depend on it.
fn bench(arguments: &[String]) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["run", "--quiet", "--release", "--locked"])
        .args(["--package", "switchboard-bench", "--"])
        .args(arguments)
        .status()?;
    ensure!(status.success(), "the measurement ended with {status}");
    Ok(())
}
