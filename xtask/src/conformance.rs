//! `cargo xtask conformance`: the official MCP suite against a complete system with a device. The
//! servers run as in production; only the device and its tools are written for the suite.

#[path = "../../tests/conformance/device.rs"]
mod device;
#[path = "../../tests/conformance/fixtures.rs"]
mod fixtures;
mod header_proxy;
mod outcome;
#[path = "../../tests/conformance/questions.rs"]
mod questions;
mod suite;
pub(crate) mod system;
#[path = "../../tests/conformance/tools.rs"]
mod tools;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use switchboard_test_support::run::{self, Findings};
use tokio::task::JoinSet;

use crate::clients;
use device::Device;
use fixtures::Fixtures;
use header_proxy::HeaderProxy;
use outcome::Expected;
use suite::Suite;
use system::{Corner, System};

/// The tested protocol revisions.
const REVISIONS: [&str; 2] = ["2026-07-28", "2025-11-25"];
const EXPECTED: &str = include_str!("../../tests/conformance/expected-failures.toml");

/// Options of a run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only this revision of the protocol
    #[arg(long, value_name = "REVISION", value_parser = REVISIONS)]
    only: Option<String>,

    /// Folder that keeps the suite's findings and all logs; without it they are deleted
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

/// Runs the suite and prints the failures; an interrupt ends all processes.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let corner = Corner::from_environment()?;
    let expected = Expected::read(EXPECTED)?;
    let suite = Suite::new(&clients::install_node()?)?;
    run::until_interrupted(measure(options, &corner, &expected, &suite), corner.clear())
}

async fn measure(
    options: &Options,
    corner: &Corner,
    expected: &Expected,
    suite: &Suite,
) -> anyhow::Result<()> {
    let findings = Findings::new(options.keep.as_deref())?;
    let proxy = HeaderProxy::bind().await?;
    let system = System::start(corner, findings.path(), &proxy.origin()).await?;
    let outcome = tokio::select! {
        outcome = examine(options, &system, proxy, (suite, expected)) => outcome,
        ended = system.ended() => ended,
    };
    if outcome.is_err() {
        findings.advise();
    }
    outcome
}

/// Connects the device, creates the fixtures, and runs the suite for each revision.
async fn examine(
    options: &Options,
    system: &System,
    proxy: HeaderProxy,
    (suite, expected): (&Suite, &Expected),
) -> anyhow::Result<()> {
    let (http, org) = (reqwest::Client::new(), system.org().await?);
    let fixtures = Fixtures::new(http, system.control_url().to_owned(), org.key.clone());
    fixtures
        .create()
        .await
        .context("the fixture prompts and resources cannot be made")?;
    let token = system.device_token(&org).await?;
    let device = Device::dial(system.device_address(), &token, fixtures).await?;
    let url = proxy.url(system::DEVICE);
    let mut tasks = JoinSet::new();
    tasks.spawn(device.serve());
    tasks.spawn(proxy.serve(system.gateway_address()?, &org.key)?);

    let revisions = REVISIONS
        .into_iter()
        .filter(|revision| options.only.as_deref().is_none_or(|only| only == *revision));
    let mut lines = Vec::new();
    let mut failed = false;
    for revision in revisions {
        println!("\n== {revision}: {url}");
        let outcome = tokio::select! {
            outcome = suite.run(revision, &url, system.folder()) => outcome?,
            Some(ended) = tasks.join_next() => {
                ended??;
                bail!("the device or the proxy ended before the suite did");
            }
        };
        let verdict = expected.judge(revision, outcome);
        print!("{}", verdict.findings());
        failed |= verdict.is_bad();
        lines.push(verdict.to_string());
    }
    println!();
    for line in lines {
        println!("{line}");
    }
    if failed {
        bail!("the system does not conform as tests/conformance/expected-failures.toml describes");
    }
    Ok(())
}
