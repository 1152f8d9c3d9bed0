//! Builds programs of the workspace and returns their paths.

use std::{env, path::PathBuf, process::Stdio};

use anyhow::{Context as _, ensure};
use tokio::process::Command;

/// Builds a package with a profile and returns the path of its program of the same name.
///
/// # Errors
/// A failed build (cargo's messages are on stderr), or a package without such a program.
pub async fn build(profile: &str, package: &str) -> anyhow::Result<PathBuf> {
    println!("building {package} with profile {profile}");
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--package", package, "--profile", profile])
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await?;
    ensure!(output.status.success(), "the build of {package} failed");
    let messages = output.stdout.split(|byte| *byte == b'\n');
    let mut executables = messages.filter_map(|line| {
        let message: serde_json::Value = serde_json::from_slice(line).ok()?;
        let named = message["target"]["name"] == package;
        named.then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    executables
        .next_back()
        .with_context(|| format!("{package} has no program"))
}
