//! `cargo xtask neighbours`: attacks of noisy neighbours at full size, one after the other, against
//! the release build. The attacks are tests in `tests/e2e/neighbours/`.

use std::{fmt::Write as _, fs, process::Command};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// The variable that selects the full size and names the file of the measured values.
const REPORT: &str = "SWITCHBOARD_NEIGHBOURS_REPORT";
const KIB_PER_MIB: u64 = 1024;

/// What is measured.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run only attacks whose test names contain this
    filter: Option<String>,
    /// Cargo profile to build with; only `release` gives meaningful values
    #[arg(long, default_value = "release")]
    profile: String,
}

/// The measured values of one attack.
#[derive(Deserialize)]
struct Row {
    attack: String,
    calls: u64,
    p99_before_ms: f64,
    p99_during_ms: f64,
    memory_before_kib: u64,
    memory_during_kib: u64,
    memory_after_kib: u64,
}

/// Runs the attacks and prints a table.
///
/// # Errors
/// When a call of the other organisation failed, or the tests do not build.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let report = folder.path().join("rows");
    let filter = options.filter.as_deref().unwrap_or_default();
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["nextest", "run", "--locked", "--no-fail-fast"])
        .args(["--cargo-profile", &options.profile, "--test-threads", "1"])
        .args(["--package", "switchboard", "--test", "e2e"])
        .args(["-E", &format!("test(/^neighbours::.*{filter}/)")])
        .env(REPORT, &report)
        .status()?;
    let rows = fs::read_to_string(&report).context("no attack was measured")?;
    print!("{}", table(&rows)?);
    ensure!(status.success(), "a call of the other organisation failed");
    Ok(())
}

/// The rows as a Markdown table.
fn table(rows: &str) -> anyhow::Result<String> {
    let mut table = "| attack | calls of the other organisation | p99 before, ms | p99 during, ms | memory before, MiB | during | 60 s after |\n|---|---|---|---|---|---|---|\n".to_owned();
    for line in rows.lines() {
        let row: Row = serde_json::from_str(line)?;
        let [before, during, after] = [
            row.memory_before_kib,
            row.memory_during_kib,
            row.memory_after_kib,
        ]
        .map(|kib| kib / KIB_PER_MIB);
        writeln!(
            table,
            "| {} | {} | {:.1} | {:.1} | {before} | {during} | {after} |",
            row.attack, row.calls, row.p99_before_ms, row.p99_during_ms
        )?;
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_becomes_a_line_of_the_table() {
        let row = r#"{"attack":"frames","calls":7,"p99_before_ms":1.25,"p99_during_ms":2.5,
            "memory_before_kib":2048,"memory_during_kib":4096,"memory_after_kib":3000}"#;
        let table = table(&row.replace('\n', "")).unwrap();
        let last = table.lines().next_back().unwrap();
        assert_eq!(last, "| frames | 7 | 1.2 | 2.5 | 2 | 4 | 2 |");
    }
}
