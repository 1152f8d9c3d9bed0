//! Measures the system next to its peers on this machine: windows in turn, ratios within a round,
//! medians over rounds, CPU by the scheduler's own account (method: docs/performance.md).
//! Never: a verdict that fails the run, or a process that outlives it.

mod account;
pub(crate) mod bed;
mod calls;
pub(crate) mod certificate;
mod chat;
mod control_plane;
mod goals;
mod installation;
mod mcp;
mod ours;
mod postgres;
pub(crate) mod process;
mod reply;
mod report;
mod rest;
pub(crate) mod role;
mod scale;
mod server;
mod settings;
mod subject;
mod worker;

use std::{future::ready, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use crate::run;
use bed::Bed;
use report::Report;

/// What is measured, and for how long.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Rounds per row; each gives one ratio, the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// Milliseconds that one system runs before it is the next one's turn
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..))]
    window_ms: u64,

    /// Only this, and what it needs (may be given several times)
    #[arg(long, value_name = "NAME")]
    only: Vec<Part>,

    /// Where all figures go, besides the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Devices that are called in turn
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) devices: u32,

    /// Connections whose memory is measured while they are idle
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) idle_devices: u32,

    /// Connections of one storm
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) storm_devices: u32,

    /// Cargo profile to build with; figures of any but `release` mean nothing
    #[arg(long, default_value = "release")]
    pub(crate) profile: String,

    /// Collector that our services send their traces to; without it they trace nothing
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,

    /// Share of the calls that is traced
    #[arg(
        long,
        default_value = "0.1",
        value_name = "RATIO",
        requires = "otlp_endpoint"
    )]
    trace_sample_ratio: String,
}

/// What can be measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Calls through two of our nodes and Redis
    Switchboard,
    /// The bare round trip through Redis
    Redis,
    /// Requests to devices behind NATS
    Nats,
    /// Requests to devices behind Mosquitto
    Mosquitto,
    /// Calls over HTTP
    Rest,
    /// Tool calls over MCP, next to the same MCP library without devices
    Mcp,
    /// Settings read and written over HTTP, next to the same statements without it
    Settings,
    /// A language model's words on their way to a device
    Chat,
    /// Memory of idle devices
    Idle,
    /// Many devices connecting at once
    Storm,
}

impl Options {
    pub(crate) fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// What our services are told of traces.
    pub(crate) fn traces(&self) -> Vec<&str> {
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

/// Measures and prints; an interrupt ends every process that was started.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    // Processes and folders end with what holds them.
    run::until_interrupted(measure(options), ready(Ok(())))
}

async fn measure(options: &Options) -> anyhow::Result<()> {
    let bed = Bed::build(options).await?;
    let mut report = Report::new(options);
    calls::measure(&bed, &mut report).await?;
    if options.wants(Part::Rest) {
        let outcome = rest::measure(&bed, &mut report).await;
        report.skip_unless("REST", outcome);
    }
    if options.wants(Part::Mcp) {
        let outcome = mcp::measure(&bed, &mut report).await;
        report.skip_unless("MCP", outcome);
    }
    if options.wants(Part::Settings) {
        let outcome = settings::measure(&bed, &mut report).await;
        report.skip_unless("settings", outcome);
    }
    if options.wants(Part::Chat) {
        let outcome = chat::measure(&bed, &mut report).await;
        report.skip_unless("chat", outcome);
    }
    if options.wants(Part::Idle) {
        scale::idle(&bed, &mut report).await?;
    }
    if options.wants(Part::Storm) {
        scale::storm(&bed, &mut report).await?;
    }
    print!("\n{report}");
    if let Some(file) = &options.json {
        std::fs::write(file, report.json()?)?;
    }
    Ok(())
}
