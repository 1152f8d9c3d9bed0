//! Classifies findings as required or optional, expected or not, and prints them.
//!
//! Invariant: a failure without a listed reason fails the run.

use std::fmt;

use anyhow::Context as _;
use serde::Deserialize;

use super::suite::{Check, Outcome, Status};

/// Maximum number of failed findings in the line of a required scenario. Other lines name one.
const SHOWN: usize = 6;

/// The known failures with their reasons.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expected {
    #[serde(default)]
    failure: Vec<Known>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    revision: String,
    scenario: String,
    reason: String,
}

/// The result of one revision.
#[derive(Debug)]
pub(super) struct Verdict {
    revision: String,
    required: usize,
    passed: usize,
    /// Scenario and reason.
    expected: Vec<(String, String)>,
    /// Scenario and the suite's message.
    unexpected: Vec<(String, String)>,
    /// Scenarios listed as failures that pass or are not required.
    stale: Vec<String>,
    /// Violated SHOULD rules, and failures that are not required.
    remarks: Vec<(String, String)>,
}

impl Expected {
    pub(super) fn read(toml: &str) -> anyhow::Result<Self> {
        toml::from_str(toml).context("tests/conformance/expected-failures.toml")
    }

    /// Compares the findings of one revision with the expected failures.
    pub(super) fn judge(&self, revision: &str, outcome: Outcome) -> Verdict {
        let known: Vec<_> = self
            .failure
            .iter()
            .filter(|known| known.revision == revision)
            .collect();
        let mut verdict = Verdict {
            revision: revision.to_owned(),
            required: outcome.required.len(),
            passed: 0,
            expected: Vec::new(),
            unexpected: Vec::new(),
            stale: Vec::new(),
            remarks: Vec::new(),
        };
        for scenario in &outcome.required {
            let checks = outcome.checks.get(scenario).map_or(&[][..], Vec::as_slice);
            let known = known.iter().find(|known| known.scenario == *scenario);
            match (failure(checks, SHOWN), known) {
                (None, None) => verdict.passed += 1,
                (None, Some(_)) => {
                    verdict.passed += 1;
                    verdict.stale.push(scenario.clone());
                }
                (Some(_), Some(known)) => verdict
                    .expected
                    .push((scenario.clone(), known.reason.clone())),
                (Some(why), None) => verdict.unexpected.push((scenario.clone(), why)),
            }
            let warnings = checks
                .iter()
                .filter(|check| check.status == Status::Warning);
            let warnings = warnings.map(|check| (scenario.clone(), words(check)));
            verdict.remarks.extend(warnings);
        }
        let unknown = known.iter().map(|known| &known.scenario);
        let unknown = unknown.filter(|scenario| !outcome.required.contains(scenario));
        verdict.stale.extend(unknown.cloned());
        for (scenario, checks) in &outcome.checks {
            if !outcome.required.contains(scenario)
                && let Some(why) = failure(checks, 1)
            {
                let why = format!("not required; {why}");
                verdict.remarks.push((scenario.clone(), why));
            }
        }
        verdict
    }
}

impl Verdict {
    /// Whether a result differs from the expectation.
    pub(super) fn is_bad(&self) -> bool {
        !self.unexpected.is_empty() || !self.stale.is_empty()
    }

    /// The report, one line per scenario.
    pub(super) fn findings(&self) -> String {
        let stale = |scenario| {
            let why = "passes or is not required: take it out of expected-failures.toml";
            (scenario, why.to_owned())
        };
        let stale: Vec<_> = self.stale.iter().cloned().map(stale).collect();
        let kinds = [
            ("FAILED", &self.unexpected),
            ("STALE", &stale),
            ("expected", &self.expected),
            ("remark", &self.remarks),
        ];
        let mut text = String::new();
        for (kind, lines) in kinds {
            for (scenario, why) in lines {
                text.push_str(&format!("{kind:<9} {scenario}: {why}\n"));
            }
        }
        text
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            revision,
            required,
            passed,
            ..
        } = self;
        write!(f, "{revision}: {passed} of {required} required")?;
        match self.expected.len() {
            0 => Ok(()),
            1 => write!(f, ", 1 expected failure"),
            many => write!(f, ", {many} expected failures"),
        }
    }
}

/// Why a scenario failed, if it did. A scenario without findings did not complete.
fn failure(checks: &[Check], most: usize) -> Option<String> {
    if checks.is_empty() {
        return Some("it did not run to its end; see the suite's log".to_owned());
    }
    let failures = checks
        .iter()
        .filter(|check| check.status == Status::Failure);
    let failures: Vec<_> = failures.map(words).collect();
    let (shown, hidden) = failures.split_at(failures.len().min(most));
    if shown.is_empty() {
        return None;
    }
    let more = match hidden.len() {
        0 => String::new(),
        more => format!(" | and {more} more"),
    };
    Some(shown.join(" | ") + &more)
}

fn words(check: &Check) -> String {
    let why = check.error_message.as_ref().unwrap_or(&check.description);
    format!("{}: {}", check.id, why.replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(id: &str, status: Status) -> Check {
        Check {
            id: id.to_owned(),
            status,
            error_message: None,
            description: "why".to_owned(),
        }
    }

    fn judged(expected: &str, scenarios: &[(&str, Status)]) -> Verdict {
        let checks = scenarios
            .iter()
            .map(|(scenario, status)| ((*scenario).to_owned(), vec![check("id", *status)]));
        let outcome = Outcome {
            required: vec!["a".to_owned(), "b".to_owned()],
            checks: checks.collect(),
        };
        Expected::read(expected).unwrap().judge("R", outcome)
    }

    const B_FAILS: &str = "[[failure]]\nrevision = \"R\"\nscenario = \"b\"\nreason = \"because\"\n";

    #[test]
    fn only_known_failures_are_fine() {
        fn sample(expected: &str, scenarios: &[(&str, Status)], line: &str, is_bad: bool) {
            let verdict = judged(expected, scenarios);
            assert_eq!(
                (verdict.to_string().as_str(), verdict.is_bad()),
                (line, is_bad)
            );
        }
        use Status::{Failure, Success, Warning};
        let fine = [("a", Success), ("b", Warning)];
        let broken = [("a", Success), ("b", Failure)];
        sample("", &fine, "R: 2 of 2 required", false);
        sample("", &broken, "R: 1 of 2 required", true);
        sample(
            B_FAILS,
            &broken,
            "R: 1 of 2 required, 1 expected failure",
            false,
        );
        sample(B_FAILS, &fine, "R: 2 of 2 required", true);
        sample("", &[("a", Success)], "R: 1 of 2 required", true);
        sample(
            "",
            &[("a", Success), ("b", Success), ("c", Failure)],
            "R: 2 of 2 required",
            false,
        );
    }

    #[test]
    fn every_finding_has_a_line() {
        let verdict = judged(
            B_FAILS,
            &[
                ("a", Status::Failure),
                ("b", Status::Success),
                ("c", Status::Failure),
            ],
        );
        let findings = verdict.findings();
        assert_eq!(
            findings,
            "FAILED    a: id: why\nSTALE     b: passes or is not required: take it out of expected-failures.toml\n\
             remark    c: not required; id: why\n"
        );
    }
}
