//! How latency, CPU and memory grow with devices, directory entries, edges and organisations, and the
//! coefficients of the capacity model. docs/performance.md describes the method.

mod check;
mod costs;
mod directory;
mod installation;
mod latency;
mod nodes;
mod series;
mod shards;
mod stored;

use std::{fs, path::Path};

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use switchboard_capacity::{Axis, Coefficients, write_documents};

use super::{environment::BenchEnv, report::Report};

pub(crate) use check::{Check, MAX_MODEL_DEVIATION_PERCENT, measure as check};
pub(crate) use shards::Shards;
pub(crate) use stored::wait_stored;

/// Options of `--only growth`.
#[derive(Debug, Args)]
pub(crate) struct GrowthOptions {
    /// Measure only this step of the growth (may be given several times)
    #[arg(long, value_name = "NAME")]
    growth_step: Vec<Step>,

    /// The most devices with a socket each
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1000..))]
    growth_devices: u32,

    /// The most entries in the directory
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u32).range(1000..))]
    growth_entries: u32,

    /// Write the coefficients, the plot, and the computed parts of docs/performance.md and
    /// docs/scale.md
    #[arg(long)]
    write: bool,
}

/// A step of the growth, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// More devices
    Devices,
    /// More edges, on one Redis
    Edges,
    /// More edges, on a cluster of three masters
    Cluster,
    /// More organisations
    Organisations,
    /// More entries in the directory, without sockets
    Entries,
    /// More devices in PostgreSQL
    Stored,
    /// The costs of one device, call, reconnect and turn
    Costs,
}

const STEPS: [(Step, &str); 7] = [
    (Step::Devices, "growth of devices"),
    (Step::Edges, "growth of edges"),
    (Step::Cluster, "growth of edges on a cluster"),
    (Step::Organisations, "growth of organisations"),
    (Step::Entries, "growth of directory entries"),
    (Step::Stored, "growth of stored devices"),
    (Step::Costs, "costs"),
];

/// Measures the selected steps. What fails is listed as skipped.
pub(crate) async fn measure(bench: &BenchEnv<'_>, report: &mut Report) -> anyhow::Result<()> {
    let options = &bench.options.growth;
    raise_file_limit()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut coefficients = read(&root)?;
    let skipped = report.skipped.len();
    for (step, name) in STEPS {
        if options.growth_step.is_empty() || options.growth_step.contains(&step) {
            eprintln!("{name}");
            let outcome = run(bench, step, &mut coefficients, report).await;
            report.or_skip(name, outcome);
        }
    }
    let is_complete = options.growth_step.is_empty() && report.skipped.len() == skipped;
    if is_complete {
        coefficients.measured = conditions();
    }
    if options.write {
        ensure!(
            report.skipped.len() == skipped,
            "nothing was written, because something was skipped:\n{}",
            report.skipped.join("\n")
        );
        let mut json = serde_json::to_string_pretty(&coefficients)?;
        json.push('\n');
        fs::write(root.join(Coefficients::FILE), json)?;
        write_documents(&root, &coefficients)?;
    }
    Ok(())
}

/// The coefficients of the working copy: a run of some steps keeps the others.
pub(crate) fn read(root: &Path) -> anyhow::Result<Coefficients> {
    let file = root.join(Coefficients::FILE);
    let json = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    Ok(serde_json::from_str(&json)?)
}

async fn run(
    bench: &BenchEnv<'_>,
    step: Step,
    coefficients: &mut Coefficients,
    report: &mut Report,
) -> anyhow::Result<()> {
    let series = match step {
        Step::Devices => series::devices(bench, coefficients, report).await?,
        Step::Edges => series::edges(bench, false, report).await?,
        Step::Cluster => series::edges(bench, true, report).await?,
        Step::Organisations => series::organisations(bench, report).await?,
        Step::Entries => directory::entries(bench, coefficients, report).await?,
        Step::Stored => stored::stored(bench, coefficients, report).await?,
        Step::Costs => return costs::measure(bench, coefficients).await,
    };
    report.growth.push(series.clone());
    coefficients.put(series);
    Ok(())
}

/// Raises the limit of open files, which the started processes inherit.
fn raise_file_limit() -> anyhow::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // Only a privileged process may raise the hard limit as well.
    let raised = hard.max(FILES);
    if setrlimit(Resource::RLIMIT_NOFILE, raised, raised).is_err() {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(())
}

/// Enough for all devices of a run at one edge.
const FILES: u64 = 300_000;

/// The processor and its number of cores.
fn conditions() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("an unknown processor", |name| {
        name.trim_matches([' ', '\t', ':'])
    });
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("Measured on {cores} cores of {model}")
}

/// Rounds to four digits: more are noise.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Rows of the report: one for each figure of each series.
pub(crate) fn rows(series: &switchboard_capacity::Series) -> Vec<[String; 8]> {
    let figures = series.figures().into_iter();
    figures
        .map(|figure| {
            let values = series.values(figure);
            let values: Vec<_> = values
                .map(|(at, value)| format!("{at}: {value:.1}"))
                .collect();
            let percent = series.percent_per_decade(figure);
            let empty = String::new;
            [
                format!("{}, {}", figure.name(), series.system),
                format!("by {}", Axis::plural(series.axis)),
                empty(),
                empty(),
                empty(),
                empty(),
                values.join(", "),
                percent.map_or_else(empty, |percent| format!("{percent:+.1} % a decade")),
            ]
        })
        .collect()
}
