//! `cargo xtask neighbours`: attacks of noisy neighbours at full size, one after the other, against
//! the release build. The attacks are tests in `tests/e2e/neighbours/`.

use std::{fmt::Write as _, fs, process::Command};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// The variable that selects the full size and names the file of the measured values.
const REPORT: &str = "SWITCHBOARD_NEIGHBOURS_REPORT";
const KIB_PER_MIB: u64 = 1024;
/// Tests at the same time. One is measured, while the others recover and start.
const TEST_THREADS: &str = "4";

/// How much slower work may be during an attack.
const SLOWDOWN: f64 = 5.0;
/// Slower work than this is always accepted: on busy processors a thread that becomes ready waits for
/// several time slices of 3 to 4 ms, also without a budget.
const FLOOR_MS: f64 = 20.0;
/// The largest duration of work during an attack.
const LIMIT_MS: f64 = 250.0;
/// An event waits until control looks for deliveries, every 500 ms.
const WEBHOOK_POLL_MS: f64 = 500.0;
/// How much more memory may be in use a minute after an attack, in percent of the memory before.
const RECOVERED_PERCENT: u64 = 150;
/// Less additional memory than this is always accepted. A process that has just started uses 20 to
/// 30 MiB, and its allocator keeps some pages for each thread once they were in use.
const RECOVERED_KIB: u64 = 32 * KIB_PER_MIB;

/// What is measured.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run only attacks whose test names contain this
    filter: Option<String>,
    /// Cargo profile to build with; only `release` gives meaningful values
    #[arg(long, default_value = "release")]
    profile: String,
}

/// The measured values of one kind of work during one attack.
#[derive(Deserialize)]
struct Row {
    attack: String,
    process: String,
    work: String,
    count: u64,
    p99_before_ms: f64,
    p99_during_ms: f64,
    memory_before_kib: u64,
    memory_peak_kib: u64,
    memory_after_kib: u64,
    memory_limit_kib: u64,
}

/// Runs the attacks and prints a table.
///
/// # Errors
/// When work of the other organisation failed or was too slow, a process used too much memory, or
/// the tests do not build.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let report = folder.path().join("rows");
    let filter = options.filter.as_deref().unwrap_or_default();
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["nextest", "run", "--locked", "--no-fail-fast"])
        .args([
            "--cargo-profile",
            &options.profile,
            "--test-threads",
            TEST_THREADS,
        ])
        .args(["--package", "switchboard", "--test", "e2e"])
        .args(["-E", &format!("test(/^neighbours::.*{filter}/)")])
        .env(REPORT, &report)
        .status()?;
    let rows = fs::read_to_string(&report).context("no attack was measured")?;
    let rows: Vec<Row> = rows
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    print!("{}", table(&rows)?);
    ensure!(
        status.success(),
        "work of the other organisation failed; attacks that failed are not in the table"
    );
    ensure!(
        rows.iter().all(|row| shortfalls(row).is_empty()),
        "the last column names what falls short"
    );
    Ok(())
}

/// What falls short in a row.
fn shortfalls(row: &Row) -> Vec<String> {
    let mut shortfalls = Vec::new();
    let allowed_ms = (row.p99_before_ms * SLOWDOWN).max(FLOOR_MS);
    if row.p99_during_ms > allowed_ms {
        shortfalls.push(format!("p99 above {allowed_ms:.0} ms"));
    }
    let limit_ms = match row.work.as_str() {
        "webhooks" => LIMIT_MS + WEBHOOK_POLL_MS,
        _ => LIMIT_MS,
    };
    if row.p99_during_ms >= limit_ms {
        shortfalls.push(format!("p99 not below {limit_ms:.0} ms"));
    }
    if row.memory_peak_kib >= row.memory_limit_kib {
        shortfalls.push("memory not below its limit".to_owned());
    }
    let recovered_kib = (row.memory_before_kib * RECOVERED_PERCENT / 100)
        .max(row.memory_before_kib + RECOVERED_KIB);
    if row.memory_after_kib > recovered_kib {
        let recovered = recovered_kib / KIB_PER_MIB;
        shortfalls.push(format!("memory after it above {recovered} MiB"));
    }
    shortfalls
}

/// The rows as a Markdown table.
fn table(rows: &[Row]) -> anyhow::Result<String> {
    let mut table = "| attack | process | work of the other organisation | measured | p99 before, ms | during | memory before, MiB | at most | limit | 60 s after | |\n|---|---|---|---|---|---|---|---|---|---|---|\n".to_owned();
    for row in rows {
        let [before, peak, limit, after] = [
            row.memory_before_kib,
            row.memory_peak_kib,
            row.memory_limit_kib,
            row.memory_after_kib,
        ]
        .map(|kib| kib / KIB_PER_MIB);
        let shortfalls = shortfalls(row);
        let verdict = match shortfalls.as_slice() {
            [] => "ok".to_owned(),
            _ => shortfalls.join(", "),
        };
        writeln!(
            table,
            "| {} | {} | {} | {} | {:.1} | {:.1} | {before} | {peak} | {limit} | {after} | {verdict} |",
            row.attack, row.process, row.work, row.count, row.p99_before_ms, row.p99_during_ms
        )?;
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            attack: "frames".to_owned(),
            process: "edge".to_owned(),
            work: "calls".to_owned(),
            count: 7,
            p99_before_ms: 10.0,
            p99_during_ms: 50.0,
            memory_before_kib: 100 * KIB_PER_MIB,
            memory_peak_kib: 512 * KIB_PER_MIB - 1,
            memory_after_kib: 150 * KIB_PER_MIB,
            memory_limit_kib: 512 * KIB_PER_MIB,
        }
    }

    /// Changes the row whose values are all just accepted.
    fn check(change: impl FnOnce(&mut Row), expect: &[&str]) {
        let mut row = row();
        change(&mut row);
        assert_eq!(shortfalls(&row), expect);
    }

    #[test]
    fn each_criterion_is_judged() {
        check(|_| {}, &[]);
        check(|row| row.p99_during_ms = 50.1, &["p99 above 50 ms"]);
        check(
            |row| row.memory_peak_kib += 1,
            &["memory not below its limit"],
        );
        check(
            |row| row.memory_after_kib += 1,
            &["memory after it above 150 MiB"],
        );
    }

    #[test]
    fn small_values_have_a_floor() {
        let fast =
            |during| move |row: &mut Row| (row.p99_before_ms, row.p99_during_ms) = (0.5, during);
        check(fast(20.0), &[]);
        check(fast(20.1), &["p99 above 20 ms"]);
        let small = |after| {
            move |row: &mut Row| {
                (row.memory_before_kib, row.memory_after_kib) =
                    (20 * KIB_PER_MIB, after * KIB_PER_MIB);
            }
        };
        check(small(52), &[]);
        check(small(53), &["memory after it above 52 MiB"]);
    }

    #[test]
    fn slow_work_has_a_limit() {
        let slow = |work: &str, during| {
            let work = work.to_owned();
            move |row: &mut Row| {
                (row.p99_before_ms, row.p99_during_ms) = (600.0, during);
                row.work = work;
            }
        };
        check(slow("calls", 249.9), &[]);
        check(slow("calls", 250.0), &["p99 not below 250 ms"]);
        check(slow("webhooks", 749.9), &[]);
        check(slow("webhooks", 750.0), &["p99 not below 750 ms"]);
    }

    #[test]
    fn row_becomes_a_line_of_the_table() {
        let row = r#"{"attack":"frames","process":"edge","work":"calls","count":7,
            "p99_before_ms":1.25,"p99_during_ms":2.5,"memory_before_kib":2048,
            "memory_peak_kib":4096,"memory_after_kib":3000,"memory_limit_kib":8192}"#;
        let table = table(&[serde_json::from_str(row).unwrap()]).unwrap();
        let last = table.lines().next_back().unwrap();
        assert_eq!(
            last,
            "| frames | edge | calls | 7 | 1.2 | 2.5 | 2 | 4 | 8 | 2 | ok |"
        );
    }
}
