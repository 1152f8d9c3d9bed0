//! Benchmarks Switchboard against comparable systems on this machine. The systems run in turn for
//! short windows. A row reports medians over all rounds and ratios within a round. CPU times come
//! from the scheduler. The method is described in docs/performance.md.

mod calls;
mod certificate;
mod cgroup;
mod chat;
mod control_plane;
mod environment;
mod goals;
mod growth;
mod installation;
mod mcp;
mod nginx;
mod postgres;
mod reply;
mod report;
mod rest;
mod role;
mod rolling;
mod scale;
mod server;
mod settings;
mod subject;
mod system;
mod usage;
mod voice;
mod worker;

use std::{future::ready, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::ensure;
use clap::{Args, Parser, Subcommand, ValueEnum};
use switchboard_test_support::run;

use environment::BenchEnv;
use report::Report;

/// Benchmarks Switchboard against Redis, NATS and Mosquitto on this machine.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run one process of a benchmark, controlled by commands on stdin
    #[command(hide = true, subcommand)]
    Role(role::Role),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Some(Command::Role(role)) => role::run(role),
        None => measure_all(&arguments.options),
    };
    // No backtrace: the cause is usually a measured system, not this program.
    outcome.map_or_else(
        |error| {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// Command-line options of a benchmark run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Rounds per row; the report shows the median of their ratios
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// Milliseconds that each system runs per round
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..))]
    window_ms: u64,

    /// Measure only this part (may be given several times)
    #[arg(long, value_name = "NAME")]
    only: Vec<Part>,

    /// Write every measured window to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Number of devices, called in turn
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) devices: u32,

    /// Number of idle connections for the memory measurement
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) idle_devices: u32,

    /// Number of connections in one connect storm
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) storm_devices: u32,

    #[command(flatten)]
    pub(crate) growth: growth::GrowthOptions,

    /// Cargo profile to build with; only `release` gives meaningful figures
    #[arg(long, default_value = "release")]
    pub(crate) profile: String,

    /// OTLP collector for the traces of the services; without it, tracing is off
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,

    /// Fraction of the calls to trace
    #[arg(
        long,
        default_value = "0.1",
        value_name = "RATIO",
        requires = "otlp_endpoint"
    )]
    trace_sample_ratio: String,
}

/// A part of the benchmark that can be selected with `--only`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Calls through two Switchboard nodes and Redis
    Switchboard,
    /// A round trip through Redis alone
    Redis,
    /// Requests to devices behind NATS
    Nats,
    /// Requests to devices behind Mosquitto
    Mosquitto,
    /// Calls over HTTP
    Rest,
    /// Tool calls over MCP, compared with the same MCP library without devices
    Mcp,
    /// Settings reads and writes over HTTP, compared with the same SQL statements alone
    Settings,
    /// Latency of a language model's first output at the device
    Chat,
    /// Latency, pace and cost of spoken conversations
    Voice,
    /// Memory per idle device
    Idle,
    /// Many devices connecting at once
    Storm,
    /// Calls while two edges are replaced one after the other
    Rolling,
    /// How all costs grow with devices, entries, edges and organisations. About eight minutes, so only
    /// when it is named
    Growth,
    /// The capacity model's prediction, compared with an installation. Only when it is named
    Capacity,
}

impl Options {
    pub(crate) fn includes(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// Whether a part is named that is not in a run of everything.
    pub(crate) fn names(&self, part: Part) -> bool {
        self.only.contains(&part)
    }

    /// The tracing arguments for every started service.
    pub(crate) fn trace_arguments(&self) -> Vec<&str> {
        let ratio = ["--trace-sample-ratio", &self.trace_sample_ratio];
        match &self.otlp_endpoint {
            Some(endpoint) => ["--otlp-endpoint", endpoint]
                .into_iter()
                .chain(ratio)
                .collect(),
            None => Vec::new(),
        }
    }

    pub(crate) fn window(&self) -> Duration {
        Duration::from_millis(self.window_ms)
    }
}

/// Runs the selected parts and prints the report. An interrupt stops every started process.
fn measure_all(options: &Options) -> anyhow::Result<()> {
    // Dropping the future stops the processes and removes the temporary folder.
    run::until_interrupted(measure(options), ready(Ok(())))
}

async fn measure(options: &Options) -> anyhow::Result<()> {
    let bench = BenchEnv::build(options).await?;
    let mut report = Report::new(options);
    calls::measure(&bench, &mut report).await?;
    if options.includes(Part::Rest) {
        let outcome = rest::measure(&bench, &mut report).await;
        report.or_skip("REST", outcome);
    }
    if options.includes(Part::Mcp) {
        let outcome = mcp::measure(&bench, &mut report).await;
        report.or_skip("MCP", outcome);
    }
    if options.includes(Part::Settings) {
        let outcome = settings::measure(&bench, &mut report).await;
        report.or_skip("settings", outcome);
    }
    if options.includes(Part::Chat) {
        let outcome = chat::measure(&bench, &mut report).await;
        report.or_skip("chat", outcome);
    }
    if options.includes(Part::Voice) {
        let outcome = voice::measure(&bench, &mut report).await;
        report.or_skip("voice", outcome);
    }
    if options.includes(Part::Idle) {
        let outcome = scale::idle(&bench, &mut report).await;
        report.or_skip("idle devices", outcome);
    }
    if options.includes(Part::Storm) {
        let outcome = scale::storm(&bench, &mut report).await;
        report.or_skip("connect storm", outcome);
    }
    if options.includes(Part::Rolling) {
        let outcome = rolling::measure(&bench, &mut report).await;
        report.or_skip("rolling restarts", outcome);
    }
    let mut growth = Ok(());
    if options.names(Part::Growth) {
        growth = growth::measure(&bench, &mut report).await;
    }
    if options.names(Part::Capacity) {
        let outcome = growth::check(&bench, &mut report).await;
        report.or_skip("capacity", outcome);
    }
    print!("\n{report}");
    if let Some(file) = &options.json {
        std::fs::write(file, report.json()?)?;
    }
    growth?;
    // The model is wrong, whatever the speed of the machine.
    let deviation = report.capacity.iter().find_map(growth::Check::deviation);
    let deviation = deviation.unwrap_or_default();
    ensure!(
        deviation <= growth::MAX_MODEL_DEVIATION_PERCENT,
        "the capacity model differs by {deviation:.0} % from what was measured"
    );
    Ok(())
}
