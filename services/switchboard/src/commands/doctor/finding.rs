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
    result: Result<String, Problem>,
}

/// What is wrong, and the command or the setting that solves it.
#[derive(Debug)]
pub(super) struct Problem {
    what: String,
    remedy: String,
}

impl Problem {
    /// A problem that a command solves.
    pub(super) fn run(what: impl Display, command: impl Display) -> Self {
        Self {
            what: what.to_string(),
            remedy: format!("run `{command}`"),
        }
    }

    /// A problem that settings solve, as the user names them.
    pub(super) fn set(what: impl Display, settings: impl Display) -> Self {
        Self {
            what: what.to_string(),
            remedy: format!("correct {settings}"),
        }
    }

    /// A problem that a command solves, unless settings are wrong.
    pub(super) fn run_or_set(
        what: impl Display,
        command: impl Display,
        settings: impl Display,
    ) -> Self {
        Self {
            what: what.to_string(),
            remedy: format!("run `{command}`, or correct {settings}"),
        }
    }
}

impl Check {
    fn name(self) -> String {
        // Every value has a name.
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The line of this check; `how` says what was done to find out, and with what.
    pub(super) fn line(self, how: impl Into<String>, result: Result<String, Problem>) -> Finding {
        Finding {
            check: self,
            how: how.into(),
            result,
        }
    }
}

impl Finding {
    fn text(&self) -> String {
        let (name, how) = (self.check.name(), &self.how);
        match &self.result {
            Ok(detail) => format!("ok    {name}: {detail} [{how}]"),
            Err(Problem { what, remedy }) => format!("FAIL  {name}: {what} [{how}]; {remedy}"),
        }
    }

    fn json(&self) -> serde_json::Value {
        let (detail, remedy) = match &self.result {
            Ok(detail) => (detail, None),
            Err(problem) => (&problem.what, Some(&problem.remedy)),
        };
        json!({
            "check": self.check.name(),
            "ok": self.result.is_ok(),
            "how": self.how,
            "detail": detail,
            "remedy": remedy,
        })
    }
}

/// Prints the report; the exit code says whether all checks have passed.
pub(super) fn print(findings: &[Finding], as_json: bool) -> Result<ExitCode, Failure> {
    if as_json {
        let list: Vec<_> = findings.iter().map(Finding::json).collect();
        exit::print_json(&to_raw_value(&list).context("the findings are no JSON")?)?;
    } else {
        let mut lines = findings.iter().map(Finding::text);
        lines.try_for_each(|line| exit::print(&line))?;
    }
    let has_failed = findings.iter().any(|finding| finding.result.is_err());
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
    fn every_line_is_in_the_documentation() {
        let page = include_str!("../../../../../docs/operations.md");
        for check in Check::value_variants() {
            let row = format!("| `{}` |", check.name());
            assert!(page.contains(&row), "docs/operations.md has no row {row}");
        }
    }
}
