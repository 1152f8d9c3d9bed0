//! `cargo xtask schemathesis`: fuzzes a complete system from its OpenAPI documents. An undocumented
//! response, a 5xx, or an accepted invalid request fails the run.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use switchboard_test_support::run::{self, Findings};
use tokio::{process::Command, time::timeout};

use crate::{
    clients,
    conformance::system::{Corner, System},
};

/// The requirements file `tests/clients/schemathesis.txt`.
const REQUIREMENTS: &str = "schemathesis";
/// The fuzzer's configuration, with the reasons for disabled checks and phases.
const SETTINGS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/clients/schemathesis.toml"
);
/// Timeout for one service; stateful scenarios take most of it.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(900);

/// Options of a run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Generated requests for each operation
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    examples: u32,

    /// Seed of the generator, to reproduce a finding; random by default
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// Folder that keeps logs and findings; without it they are deleted
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

/// Runs the fuzzer; an interrupt ends every process that was started.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let corner = Corner::from_environment()?;
    let python = clients::install_requirements(REQUIREMENTS)?;
    run::until_interrupted(examine(options, &corner, &python), corner.clear())
}

async fn examine(options: &Options, corner: &Corner, python: &Path) -> anyhow::Result<()> {
    let findings = Findings::new(options.keep.as_deref())?;
    let system = System::start(corner, findings.path(), "http://origin.invalid").await?;
    let org = system.org().await?;
    let token = system
        .token(&org, "client:fuzzer", &["call", "read", "admin"])
        .await?;
    let other = system.org().await?;
    let npc = system.npc(&org).await?;
    let mut failed = Vec::new();
    for (name, url) in [
        ("control", system.control_url()),
        ("gateway", system.gateway_url()),
        ("chat", system.chat_url()),
    ] {
        println!("\n== {name}: {url}/openapi.json");
        let mut fuzzer = Command::new(python);
        fuzzer
            .args([
                "-m",
                "schemathesis.cli",
                "--config-file",
                SETTINGS,
                "--no-color",
                "run",
            ])
            .arg(format!("{url}/openapi.json"))
            .arg("--header")
            .arg(format!("Authorization: Bearer {token}"))
            .args([
                "--checks",
                "all",
                "--max-examples",
                &options.examples.to_string(),
            ])
            .args(options.seed.map(|seed| format!("--seed={seed}")))
            .env("SWITCHBOARD_OPERATOR_KEY", system.operator_key())
            .env("SWITCHBOARD_NPC", &npc)
            .env("SWITCHBOARD_OTHER_KEY", &other.key)
            .current_dir(findings.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let mut fuzzer = fuzzer.spawn().context("the fuzzer could not be started")?;
        let status = tokio::select! {
            status = timeout(SERVICE_TIMEOUT, fuzzer.wait()) => status.context("the fuzzer did not end")??,
            ended = system.ended() => return ended,
        };
        if !status.success() {
            failed.push(name);
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    findings.advise();
    bail!("{} violates its document", failed.join(" and "))
}
