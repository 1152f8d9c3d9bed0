//! Runs the official suite for a revision and reads its findings from the files it writes. The
//! suite's terminal output is not parsed.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use tokio::{process::Command, time::timeout};

const PACKAGE: &str = "node_modules/@modelcontextprotocol/conformance";
const PROGRAM: &str = "node_modules/.bin/conformance";
const NODE: &str = "node_modules/node/bin/node";
/// Timeout for all scenarios of one revision. The suite allows 30 s for each.
const REVISION_TIMEOUT: Duration = Duration::from_secs(600);
/// Length of the time in the name of a result folder, after the scenario: `-2026-07-28T00-00-00-000Z`.
const TIME_LENGTH: usize = 25;

/// The path of the suite in its installation.
pub(super) struct Suite {
    installed: PathBuf,
}

/// One finding of a scenario.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Check {
    pub(super) id: String,
    pub(super) status: Status,
    #[serde(default)]
    pub(super) error_message: Option<String>,
    #[serde(default)]
    pub(super) description: String,
}

/// The status of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Status {
    Success,
    Failure,
    /// A violated SHOULD rule; not a failure.
    Warning,
    Skipped,
    Info,
}

/// The findings of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The scenarios that the revision requires, in the suite's order.
    pub(super) required: Vec<String>,
    /// The findings of every scenario that ran, required or not.
    pub(super) checks: BTreeMap<String, Vec<Check>>,
}

impl Suite {
    /// `installed` is the folder with `node_modules`.
    pub(super) fn new(installed: &Path) -> anyhow::Result<Self> {
        for path in [NODE, PROGRAM] {
            let path = installed.join(path);
            ensure!(path.exists(), "{} is not installed", path.display());
        }
        Ok(Self {
            installed: installed.to_owned(),
        })
    }

    /// Runs the scenarios of a revision against a URL; logs and findings go to `folder`.
    pub(super) async fn run(
        &self,
        revision: &str,
        url: &str,
        folder: &Path,
    ) -> anyhow::Result<Outcome> {
        let list = self
            .installed
            .join(PACKAGE)
            .join(format!("requirements/{revision}.yaml"));
        let list = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
        let required = required(&list);
        ensure!(!required.is_empty(), "{revision} requires nothing");

        let findings = folder.join(revision);
        if findings.exists() {
            fs::remove_dir_all(&findings)?;
        }
        fs::create_dir(&findings)?;
        let log = folder.join(format!("suite-{revision}.log"));
        let file = File::create(&log)?;
        let mut suite = Command::new(self.installed.join(NODE))
            .arg(self.installed.join(PROGRAM))
            .args(["server", "--url", url, "--requirements", revision])
            .arg("--output-dir")
            .arg(&findings)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .kill_on_drop(true)
            .spawn()?;
        // The exit code reports only that there are failures; the files have the details.
        if timeout(REVISION_TIMEOUT, suite.wait()).await.is_err() {
            bail!(
                "the suite did not end within {} s",
                REVISION_TIMEOUT.as_secs()
            );
        }
        let checks = read(&findings)?;
        if checks.is_empty() {
            let output = fs::read_to_string(&log).unwrap_or_default();
            bail!("the suite found nothing at all:\n{output}");
        }
        Ok(Outcome { required, checks })
    }
}

/// Reads `server-SCENARIO-TIME/checks.json` of every scenario.
fn read(findings: &Path) -> anyhow::Result<BTreeMap<String, Vec<Check>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(findings)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let scenario = name.and_then(scenario_of);
        let scenario =
            scenario.with_context(|| format!("not a scenario's folder: {}", path.display()))?;
        let file = path.join("checks.json");
        // An interrupted scenario leaves an empty folder.
        let checks = match fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text)
                .with_context(|| format!("not readable: {}", file.display()))?,
            Err(_) => Vec::new(),
        };
        found.insert(scenario.to_owned(), checks);
    }
    Ok(found)
}

fn scenario_of(folder: &str) -> Option<&str> {
    let timed = folder.strip_prefix("server-")?;
    let (scenario, time) = timed.split_at_checked(timed.len().checked_sub(TIME_LENGTH)?)?;
    (time.starts_with('-') && time.ends_with('Z')).then_some(scenario)
}

/// The entries below `server:` in a list of requirements, a flat YAML list.
fn required(list: &str) -> Vec<String> {
    list.lines()
        .skip_while(|line| *line != "server:")
        .skip(1)
        .take_while(|line| line.is_empty() || line.starts_with([' ', '#']))
        .filter_map(|line| line.trim().strip_prefix("- "))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_those_of_servers() {
        let list = "# server:\n#   - no\nserver:\n  - ping\n\n  # why\n  - tools-list\n\nclient:\n  - no\n";
        assert_eq!(required(list), ["ping", "tools-list"]);
        assert!(required("client:\n  - no\n").is_empty());
    }

    #[test]
    fn result_folder_contains_its_scenario() {
        fn check(folder: &str, expected: Option<&str>) {
            assert_eq!(scenario_of(folder), expected, "{folder}");
        }
        check(
            "server-tools-list-2026-07-28T10-50-47-123Z",
            Some("tools-list"),
        );
        check("server-ping", None);
        check("client-ping-2026-07-28T10-50-47-123Z", None);
    }
}
