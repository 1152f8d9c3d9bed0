//! What every measurement stands on: the optimised programs and a folder for logs and data.
//! Never: a program built another way than a release is.

use std::{
    env,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;
use tokio::process::Command;

use super::{Options, Part, worker::Worker};

/// Programs, folder, options.
pub(crate) struct Bed<'a> {
    pub(crate) options: &'a Options,
    folder: TempDir,
    xtask: PathBuf,
    switchboard: Option<PathBuf>,
}

impl<'a> Bed<'a> {
    /// Builds what the wanted parts need.
    pub(crate) async fn build(options: &'a Options) -> anyhow::Result<Self> {
        let peers = [Part::Redis, Part::Nats, Part::Mosquitto];
        let ours = options.only.is_empty() || options.only.iter().any(|part| !peers.contains(part));
        let packages: &[&str] = if ours {
            &["xtask", "switchboard"]
        } else {
            &["xtask"]
        };
        let mut programs = build(&options.profile, packages).await?.into_iter();
        Ok(Self {
            options,
            folder: tempfile::Builder::new()
                .prefix("switchboard-bench-")
                .tempdir()?,
            xtask: programs.next().context("no xtask was built")?,
            switchboard: programs.next(),
        })
    }

    /// Where logs and data go until the end.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Our program.
    pub(crate) fn switchboard(&self) -> anyhow::Result<&Path> {
        self.switchboard
            .as_deref()
            .context("switchboard was not built")
    }

    /// Starts a role in a process of its own.
    pub(crate) async fn worker(&self, arguments: &[&str]) -> anyhow::Result<Worker> {
        Worker::start(&self.xtask, self.folder(), arguments).await
    }
}

/// Builds packages and answers where their programs are, in the same order.
pub(crate) async fn build(profile: &str, packages: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    println!("building {} with profile {profile}", packages.join(" and "));
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args([
        "build",
        "--profile",
        profile,
        "--message-format",
        "json-render-diagnostics",
    ]);
    for package in packages {
        command.args(["--package", package]);
    }
    let output = command
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await?;
    ensure!(output.status.success(), "the build failed");
    let messages: Vec<serde_json::Value> = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    packages
        .iter()
        .map(|package| {
            let built = messages.iter().rev().find_map(|message| {
                let named = message["target"]["name"] == *package;
                message["executable"].as_str().filter(|_| named)
            });
            built
                .map(PathBuf::from)
                .with_context(|| format!("{package} has no program"))
        })
        .collect()
}
