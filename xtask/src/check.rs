//! `cargo xtask check`: the steps of CI, in order. The first failure ends the run.
//!
//! Invariant: with `CI` set no step is skipped; otherwise the summary names every skipped step.

use std::{
    env,
    num::NonZero,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

/// The name of an environment variable and its value.
type Variable = (&'static str, fn() -> String);

/// One command that must succeed.
struct Step {
    name: &'static str,
    arguments: &'static [&'static str],
    /// An environment variable of the command.
    environment: Option<Variable>,
    /// The cargo subcommand that the step needs, and the command that installs it.
    tool: Option<(&'static str, &'static str)>,
    /// The program that the step needs, and the command that installs it.
    program: Option<(&'static str, &'static str)>,
}

/// The bench is no part of the product; the scheduled workflow checks it.
const WITHOUT_BENCH: &str = "--exclude=switchboard-bench";

const STEPS: [Step; 5] = [
    Step {
        tool: Some(("fmt", "rustup component add rustfmt")),
        ..Step::new("fmt", &["fmt", "--all", "--check"])
    },
    Step {
        tool: Some(("clippy", "rustup component add clippy")),
        ..Step::new(
            "clippy",
            &[
                "clippy",
                "--workspace",
                WITHOUT_BENCH,
                "--all-targets",
                "--locked",
                "--",
                "-D",
                "warnings",
            ],
        )
    },
    Step {
        environment: Some(("RUSTDOCFLAGS", || "-D warnings".to_owned())),
        ..Step::new(
            "doc",
            &["doc", "--workspace", WITHOUT_BENCH, "--no-deps", "--locked"],
        )
    },
    Step {
        tool: Some(("deny", "cargo install --locked cargo-deny")),
        ..Step::new("deny", &["deny", "check", "licenses", "bans", "sources"])
    },
    Step {
        tool: Some(("machete", "cargo install --locked cargo-machete")),
        ..Step::new("machete", &["machete"])
    },
];

const TEST_THREADS: &str = "NEXTEST_TEST_THREADS";
/// Reports every failed test, not only the first.
const NEXTEST: Step = Step {
    environment: Some((TEST_THREADS, test_threads)),
    ..Step::new(
        "test",
        &[
            "nextest",
            "run",
            "--workspace",
            WITHOUT_BENCH,
            "--locked",
            "--no-fail-fast",
        ],
    )
};
const CARGO_TEST: Step = Step::new(
    "test",
    &[
        "test",
        "--workspace",
        WITHOUT_BENCH,
        "--all-targets",
        "--locked",
        "--no-fail-fast",
    ],
);
const DOC_TESTS: Step = Step::new(
    "doc tests",
    &["test", "--workspace", WITHOUT_BENCH, "--doc", "--locked"],
);
/// Installs the third-party clients that the tests run.
const CLIENTS: Step = Step {
    program: Some(("npm", "apt-get install npm")),
    ..Step::new("clients", &["xtask", "clients"])
};
const CONFORMANCE: Step = Step {
    program: Some(("npm", "apt-get install npm")),
    ..Step::new("conformance", &["xtask", "conformance"])
};
/// The seed is fixed, so that a change fails only for its own faults.
const SCHEMATHESIS: Step = Step {
    program: Some(("python3", "apt-get install python3-venv")),
    ..Step::new("schemathesis", &["xtask", "schemathesis", "--seed", "1"])
};

/// The tests have built the program.
const CONSOLE: Step = Step {
    program: Some(("chromium", "apt-get install chromium")),
    ..Step::new("console", &["xtask", "console"])
};

const DEPLOY: Step = Step {
    program: Some(("promtool", "apt-get install prometheus")),
    ..Step::new("deploy", &["xtask", "deploy"])
};

/// The tests have built the program.
const FIRST_HOUR: Step = Step {
    program: Some(("script", "apt-get install bsdutils")),
    ..Step::new("first hour", &["xtask", "first-hour", "--here"])
};

const PACKAGES: Step = Step {
    program: Some(("npm", "apt-get install npm")),
    ..Step::new("packages", &["xtask", "packages"])
};

const HELM: Step = Step {
    program: Some(("python3", "apt-get install python3-venv")),
    ..Step::new("helm", &["xtask", "helm"])
};

impl Step {
    const fn new(name: &'static str, arguments: &'static [&'static str]) -> Self {
        Self {
            name,
            arguments,
            environment: None,
            tool: None,
            program: None,
        }
    }

    fn run(&self) -> anyhow::Result<()> {
        let line = format!("cargo {}", self.arguments.join(" "));
        println!("\n== {}: {line}", self.name);
        let status = cargo()
            .args(self.arguments)
            .envs(self.environment.map(|(name, value)| (name, value())))
            .status()
            .with_context(|| format!("`{line}` could not be started"))?;
        if !status.success() {
            bail!("`{}` failed: {line} ({status})", self.name);
        }
        Ok(())
    }
}

/// The result of a step, for the summary.
struct StepReport {
    name: &'static str,
    took: Duration,
    skipped: Option<String>,
}

/// Runs every step; the error names the one that failed.
pub(crate) fn run() -> anyhow::Result<()> {
    let tests = if has("nextest") { NEXTEST } else { CARGO_TEST };
    let mut reports = Vec::new();
    let tested = [
        CLIENTS,
        DEPLOY,
        HELM,
        tests,
        DOC_TESTS,
        CONSOLE,
        FIRST_HOUR,
        PACKAGES,
        CONFORMANCE,
        SCHEMATHESIS,
    ];
    for step in STEPS.into_iter().chain(tested) {
        let began = Instant::now();
        let skipped = missing(&step);
        let outcome = if skipped.is_some() {
            Ok(())
        } else {
            step.run()
        };
        reports.push(StepReport {
            name: step.name,
            took: began.elapsed(),
            skipped,
        });
        if outcome.is_err() {
            summarise(&reports);
            return outcome;
        }
    }
    summarise(&reports);
    let skipped = reports
        .iter()
        .filter(|report| report.skipped.is_some())
        .count();
    println!(
        "check: {} steps passed, {skipped} skipped",
        reports.len() - skipped
    );
    Ok(())
}

fn summarise(reports: &[StepReport]) {
    println!();
    for report in reports {
        let seconds = report.took.as_secs_f64();
        match &report.skipped {
            None => println!("{:<12} {seconds:>7.1} s", report.name),
            Some(why) => println!("{:<12} skipped: {why}", report.name),
        }
    }
}

/// Twice the number of cores unless the variable is set: most tests wait for servers.
fn test_threads() -> String {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    env::var(TEST_THREADS).unwrap_or_else(|_| (2 * cores).to_string())
}

fn missing(step: &Step) -> Option<String> {
    if env::var_os("CI").is_some() {
        // The step runs and fails with its own message.
        return None;
    }
    let tool = step.tool.filter(|(tool, _)| !has(tool));
    let tool = tool.map(|(tool, install)| (format!("cargo-{tool}"), install));
    let program = step
        .program
        .filter(|(program, _)| !prints_version(Command::new(program)));
    let program = program.map(|(program, install)| (program.to_owned(), install));
    let (missing, install) = tool.or(program)?;
    Some(format!(
        "{missing} is not installed; get it with `{install}`"
    ))
}

fn has(tool: &str) -> bool {
    let mut command = cargo();
    command.arg(tool);
    prints_version(command)
}

/// Whether a command exists and prints its version.
fn prints_version(mut command: Command) -> bool {
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The cargo that runs us, so that a chosen toolchain stays chosen.
fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // `cargo run` sets it for this program. With it, cargo-machete takes the name of its subcommand
    // for a folder.
    command.env_remove("CARGO_PKG_NAME");
    if env::var_os("CI").is_some() {
        // What makes a second build fast costs a first one time, and gigabytes.
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}
