//! `cargo xtask schemathesis`: a fuzzer that reads the API's document, against a whole system.
//! Never: an answer that the document does not know, a 5xx, or something wrong taken, without the run failing.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use tokio::{process::Command, time::timeout};

use crate::{
    clients,
    conformance::system::{Corner, System},
    run::{self, Findings},
};

/// What is pinned in `tests/clients/schemathesis.txt`.
const REQUIREMENTS: &str = "schemathesis";
/// Which of its checks and phases are left out, and why, stands there.
const SETTINGS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/clients/schemathesis.toml"
);
/// One service; most of it is spent on the ways that lead from one operation to the next.
const WITHIN: Duration = Duration::from_secs(900);

/// How thoroughly it looks, and where its findings go.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Requests that are made up for each operation
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    examples: u32,

    /// Where the numbers come from, to meet a finding again; another one each time when not given
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// Where logs and findings stay; without it they go when the run ends
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
    let system = System::start(corner, findings.path(), "http://nobody.invalid").await?;
    let org = system.org().await?;
    // Its id is in no list, so the fuzzer, which revokes what it finds, does not revoke it.
    let token = system
        .token(&org, "client:fuzzer", &["call", "read", "admin"])
        .await?;
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
            .current_dir(findings.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let mut fuzzer = fuzzer.spawn().context("the fuzzer could not be started")?;
        let status = tokio::select! {
            status = timeout(WITHIN, fuzzer.wait()) => status.context("the fuzzer did not end")??,
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
    bail!(
        "{} does not do what its document says",
        failed.join(" and ")
    )
}
