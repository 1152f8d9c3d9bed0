//! The lines of the report.
//!
//! Invariant: a line about a problem ends with the command or the setting that solves it.

use std::{fmt::Display, process::ExitCode};

use anyhow::Context as _;
use clap::ValueEnum;
use serde_json::{json, value::to_raw_value};

use crate::exit::{self, Failure};

/// What a line is about. The value is its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Check {
    #[value(name = "installation")]
    Installation,
    #[value(name = "data folder")]
    DataFolder,
    #[value(name = "databases of up")]
    OrphanedDatabases,
    #[value(name = "PostgreSQL programs")]
    Programs,
    #[value(name = "Postgres")]
    Postgres,
    #[value(name = "keys in Postgres")]
    StoredKeys,
    #[value(name = "objects")]
    Objects,
    #[value(name = "Redis")]
    Redis,
    #[value(name = "embeddings")]
    Embeddings,
    #[value(name = "conversations")]
    Conversations,
    #[value(name = "speech recognition")]
    Recognition,
    #[value(name = "speech synthesis")]
    Synthesis,
    #[value(name = "HTTP API")]
    Api,
    #[value(name = "admin port")]
    AdminPort,
    #[value(name = "device port")]
    DevicePort,
    #[value(name = "webhooks")]
    Webhooks,
}

/// One line.
#[derive(Debug)]
pub(super) struct Finding {
    check: Check,
    /// What was done to find out, and with what.
    how: String,
    verdict: Verdict,
}

/// The result of a check.
#[derive(Debug)]
pub(super) enum Verdict {
    /// With what was found.
    Passed(String),
    /// With the reason: it is neither known to work nor to fail.
    NotChecked(String),
    Failed(Problem),
}

impl From<Result<String, Problem>> for Verdict {
    fn from(result: Result<String, Problem>) -> Self {
        result.map_or_else(Self::Failed, Self::Passed)
    }
}

/// What is wrong, and the command or the setting that solves it.
#[derive(Debug)]
pub(super) struct Problem {
    what: String,
    remedy: String,
}

impl Problem {
    /// A problem with a remedy in words.
    pub(super) fn new(what: impl Display, remedy: impl Into<String>) -> Self {
        Self {
            what: what.to_string(),
            remedy: remedy.into(),
        }
    }

    /// The remedy.
    pub(super) fn into_remedy(self) -> String {
        self.remedy
    }

    /// A problem that a command solves.
    pub(super) fn run(what: impl Display, command: impl Display) -> Self {
        Self::new(what, format!("run `{command}`"))
    }

    /// A problem that settings solve, as the user names them.
    pub(super) fn set(what: impl Display, settings: impl Display) -> Self {
        Self::new(what, format!("correct {settings}"))
    }

    /// A problem that a command solves, unless settings are wrong.
    pub(super) fn run_or_set(
        what: impl Display,
        command: impl Display,
        settings: impl Display,
    ) -> Self {
        Self::new(what, format!("run `{command}`, or correct {settings}"))
    }
}

impl Check {
    fn name(self) -> String {
        // Every value has a name.
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The line of this check; `how` is what was done to find out, and with what.
    pub(super) fn line(self, how: impl Into<String>, verdict: impl Into<Verdict>) -> Finding {
        Finding {
            check: self,
            how: how.into(),
            verdict: verdict.into(),
        }
    }

    /// The line of a check that is not done, for this reason.
    pub(super) fn skipped(self, how: impl Into<String>, reason: impl Into<String>) -> Finding {
        self.line(how, Verdict::NotChecked(reason.into()))
    }
}

impl Finding {
    fn text(&self) -> String {
        let (name, how) = (self.check.name(), &self.how);
        match &self.verdict {
            Verdict::Passed(detail) => format!("ok    {name}: {detail} [{how}]"),
            Verdict::NotChecked(reason) => format!("-     {name}: not checked: {reason} [{how}]"),
            Verdict::Failed(Problem { what, remedy }) => {
                format!("FAIL  {name}: {what} [{how}]; {remedy}")
            }
        }
    }

    fn json(&self) -> serde_json::Value {
        let (is_ok, detail, remedy) = match &self.verdict {
            Verdict::Passed(detail) => (Some(true), detail, None),
            Verdict::NotChecked(reason) => (None, reason, None),
            Verdict::Failed(problem) => (Some(false), &problem.what, Some(&problem.remedy)),
        };
        json!({
            "check": self.check.name(),
            "ok": is_ok,
            "how": self.how,
            "detail": detail,
            "remedy": remedy,
        })
    }
}

/// Prints the report; the exit code is 1 if a check has failed.
pub(super) fn print(findings: &[Finding], as_json: bool) -> Result<ExitCode, Failure> {
    if as_json {
        let list: Vec<_> = findings.iter().map(Finding::json).collect();
        exit::print_json(&to_raw_value(&list).context("the findings are no JSON")?)?;
    } else {
        let mut lines = findings.iter().map(Finding::text);
        lines.try_for_each(|line| exit::print(&line))?;
    }
    let has_failed = |finding: &Finding| matches!(finding.verdict, Verdict::Failed(_));
    let has_failed = findings.iter().any(has_failed);
    Ok(ExitCode::from(u8::from(has_failed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_ends_with_its_remedy() {
        let check = |problem: Problem, end: &str| {
            let line = Check::Redis.line("PING", Err(problem)).text();
            assert_eq!(line, format!("FAIL  Redis: away [PING]; {end}"));
        };
        check(Problem::run("away", "start it"), "run `start it`");
        check(Problem::set("away", "REDIS_URL"), "correct REDIS_URL");
        let both = Problem::run_or_set("away", "start it", "REDIS_URL");
        check(both, "run `start it`, or correct REDIS_URL");
    }

    #[test]
    fn line_that_is_not_checked_has_a_reason_and_is_neither_true_nor_false() {
        let line = Check::Redis.skipped("read the settings", "none are given");
        assert_eq!(
            line.text(),
            "-     Redis: not checked: none are given [read the settings]"
        );
        assert_eq!(line.json()["ok"], serde_json::Value::Null);
    }

    #[test]
    fn every_line_is_in_the_documentation() {
        let page = include_str!("../../../../../docs/operations.md");
        for check in Check::value_variants() {
            let row = format!("| `{}` |", check.name());
            assert!(page.contains(&row), "docs/operations.md has no row {row}");
        }
    }
}
