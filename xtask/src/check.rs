//! What CI runs, and what everybody runs before: one step after another, the first failure ends it.
//! Never: a step that needs the network once its tools are there, or one that is left out without saying so.

use std::{
    env,
    num::NonZero,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

/// The name of a variable, and what it is set to.
type Variable = (&'static str, fn() -> String);

/// One command that must succeed.
struct Step {
    name: &'static str,
    arguments: &'static [&'static str],
    /// A variable that it is given.
    environment: Option<Variable>,
    /// A cargo subcommand that may be missing, and how to get it.
    tool: Option<(&'static str, &'static str)>,
    /// A program that may be missing, and how to get it.
    program: Option<(&'static str, &'static str)>,
    /// Whether it may be missing where the verdict counts: with `CI` set.
    optional: bool,
}

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
        ..Step::new("doc", &["doc", "--workspace", "--no-deps", "--locked"])
    },
    Step {
        optional: true,
        tool: Some(("deny", "cargo install --locked cargo-deny")),
        ..Step::new("deny", &["deny", "check", "licenses", "bans", "sources"])
    },
    Step {
        optional: true,
        tool: Some(("machete", "cargo install --locked cargo-machete")),
        ..Step::new("machete", &["machete"])
    },
];

const TEST_THREADS: &str = "NEXTEST_TEST_THREADS";
/// A verdict names every test that failed, not the first alone.
const NEXTEST: Step = Step {
    environment: Some((TEST_THREADS, test_threads)),
    ..Step::new(
        "test",
        &[
            "nextest",
            "run",
            "--workspace",
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
        "--all-targets",
        "--locked",
        "--no-fail-fast",
    ],
);
const DOC_TESTS: Step = Step::new("doc tests", &["test", "--workspace", "--doc", "--locked"]);
/// What the tests point at our endpoints.
const CLIENTS: Step = Step {
    program: Some(("npm", "apt-get install npm")),
    ..Step::new("clients", &["xtask", "clients"])
};
const CONFORMANCE: Step = Step {
    program: Some(("npm", "apt-get install npm")),
    ..Step::new("conformance", &["xtask", "conformance"])
};
/// The same requests each time: what others would find does not turn up in a change that it is not of.
const SCHEMATHESIS: Step = Step {
    program: Some(("python3", "apt-get install python3-venv")),
    ..Step::new("schemathesis", &["xtask", "schemathesis", "--seed", "1"])
};

const DEPLOY: Step = Step {
    program: Some(("promtool", "apt-get install prometheus")),
    ..Step::new("deploy", &["xtask", "deploy"])
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
            optional: false,
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

/// How a step went, for the closing lines.
struct Finding {
    name: &'static str,
    took: Duration,
    skipped: Option<String>,
}

/// Runs every step; the error names the one that failed.
pub(crate) fn run() -> anyhow::Result<()> {
    let tests = if has("nextest") { NEXTEST } else { CARGO_TEST };
    let mut findings = Vec::new();
    let tested = [
        CLIENTS,
        DEPLOY,
        HELM,
        tests,
        DOC_TESTS,
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
        findings.push(Finding {
            name: step.name,
            took: began.elapsed(),
            skipped,
        });
        if outcome.is_err() {
            summarise(&findings);
            return outcome;
        }
    }
    summarise(&findings);
    let skipped = findings
        .iter()
        .filter(|finding| finding.skipped.is_some())
        .count();
    println!(
        "check: {} steps passed, {skipped} skipped",
        findings.len() - skipped
    );
    Ok(())
}

fn summarise(findings: &[Finding]) {
    println!();
    for finding in findings {
        let seconds = finding.took.as_secs_f64();
        match &finding.skipped {
            None => println!("{:<12} {seconds:>7.1} s", finding.name),
            Some(why) => println!("{:<12} skipped: {why}", finding.name),
        }
    }
}

/// Twice the cores unless somebody has said: most tests wait for servers most of the time.
fn test_threads() -> String {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    env::var(TEST_THREADS).unwrap_or_else(|_| (2 * cores).to_string())
}

fn missing(step: &Step) -> Option<String> {
    if !step.optional && env::var_os("CI").is_some() {
        // It runs, and fails in its own words.
        return None;
    }
    let tool = step.tool.filter(|(tool, _)| !has(tool));
    let tool = tool.map(|(tool, install)| (format!("cargo-{tool}"), install));
    let program = step
        .program
        .filter(|(program, _)| !answers(Command::new(program)));
    let program = program.map(|(program, install)| (program.to_owned(), install));
    let (missing, install) = tool.or(program)?;
    Some(format!(
        "{missing} is not installed; get it with `{install}`"
    ))
}

fn has(tool: &str) -> bool {
    let mut command = cargo();
    command.arg(tool);
    answers(command)
}

/// Whether a command is there to say which version it is.
fn answers(mut command: Command) -> bool {
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The cargo that runs us, so that a chosen toolchain stays chosen.
fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}
