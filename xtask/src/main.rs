//! `cargo xtask`: the project's checks and measurements, with no tool to install first.
//! Never: anything that a release needs at run time.

mod bench;
mod check;
mod clients;
mod conformance;
mod deploy;
mod helm;
mod run;
mod schemathesis;

use std::process::ExitCode;

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
    /// Everything that must hold before a change is taken: format, lints, documents, licenses, tests
    Check,
    /// Installs the MCP clients and the S3 server that the tests use, into the target folder
    Clients,
    /// Measures the system next to Redis, NATS and Mosquitto on this machine
    Bench(bench::Options),
    /// Runs the official MCP conformance suite against the system, with REDIS_URL and DATABASE_URL
    Conformance(conformance::Options),
    /// Asks every operation of the API for what its document says and for what it does not, with REDIS_URL and DATABASE_URL
    Schemathesis(schemathesis::Options),
    /// Lints the image, the compose file, the balancer, the alerts with their tests, and the scripts
    Deploy,
    /// Lints and renders the Helm chart, and compares the renderings with Kubernetes' schemas and with those before
    Helm(helm::Options),
    /// One process of a measurement, driven by lines on stdin
    #[command(hide = true, subcommand)]
    BenchRole(bench::role::Role),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Check => check::run(),
        Task::Clients => clients::install(),
        Task::Bench(options) => bench::run(&options),
        Task::Conformance(options) => conformance::run(&options),
        Task::Schemathesis(options) => schemathesis::run(&options),
        Task::Deploy => deploy::run(),
        Task::Helm(options) => helm::run(&options),
        Task::BenchRole(role) => bench::role::run(role),
    };
    // Without a backtrace: what failed is a command or a measurement, not this program.
    outcome.map_or_else(
        |error| {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}
