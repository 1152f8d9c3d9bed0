//! Checks the Prometheus rules with promtool. Each alert has a test in which it fires, a runbook, and a
//! row in the list of runbooks.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::resume_unwind,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context as _, ensure};

use super::{files, read, root, succeed};

const CONFIG: &str = "deploy/prometheus/prometheus.yml";
const RULES: &str = "deploy/prometheus/rules";
const TESTS: &str = "deploy/prometheus/tests";
const PAGES: &str = "docs/runbooks";
/// Where the gateway of the compose setup serves them.
const BASE: &str = "http://127.0.0.1:8080/runbooks/";
/// The list of runbooks.
const LIST: &str = "README.md";

pub(super) fn check() -> anyhow::Result<()> {
    let (rules, tests) = (files(RULES, "yml")?, files(TESTS, "yml")?);
    let missing = missing(&together(&rules)?, &together(&tests)?)?;
    ensure!(missing.is_empty(), "alerts:\n{}", missing.join("\n"));
    let with = |words: &[&str], files: &[PathBuf]| {
        let words = words.iter().map(PathBuf::from);
        succeed("promtool", words.chain(files.iter().cloned()))
    };
    with(&["check", "config", "--syntax-only", CONFIG], &[])?;
    with(&["check", "rules"], &rules)?;
    side_by_side(&tests)
}

/// Runs each test file in its own promtool: a process uses one core, and some replay hours.
fn side_by_side(tests: &[PathBuf]) -> anyhow::Result<()> {
    let test = |file: &Path| succeed("promtool", [Path::new("test"), Path::new("rules"), file]);
    thread::scope(|scope| {
        let begin = |file| scope.spawn(move || test(file));
        let all: Vec<_> = tests.iter().map(|file| begin(file.as_path())).collect();
        all.into_iter()
            .try_for_each(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// The faults of the alerts, one line each.
fn missing(rules: &str, tests: &str) -> anyhow::Result<Vec<String>> {
    let alerts = pages_of(rules)?;
    let fired = fired(tests);
    let list = read(&Path::new(PAGES).join(LIST))?;
    let mut missing = Vec::new();
    let mut lacks = |alert: &str, what: String| missing.push(format!("{alert}: {what}"));
    for (alert, page) in &alerts {
        if !fired.contains(alert) {
            lacks(alert, format!("no test below {TESTS} sees it fire"));
        }
        let Some(name) = page.strip_prefix(BASE) else {
            lacks(alert, format!("{page} is not below {BASE}"));
            continue;
        };
        if !list.contains(&format!("| [{alert}]({name}.md) |")) {
            lacks(alert, format!("no row of {PAGES}/{LIST} leads to {page}"));
        }
        let text = read(&page_file(name));
        if !text.is_ok_and(|text| text.contains(&format!("`{alert}` ("))) {
            lacks(alert, format!("{page} is not there or does not name it"));
        }
    }
    for row in listed(&list).filter(|row| !alerts.contains_key(row)) {
        lacks(row, format!("in {PAGES}/{LIST}, and no alert"));
    }
    let names = alerts.values().filter_map(|page| page.strip_prefix(BASE));
    let linked: BTreeSet<_> = names.map(|name| root().join(page_file(name))).collect();
    for page in files(PAGES, "md")? {
        if !page.ends_with(LIST) && !linked.contains(&root().join(&page)) {
            lacks(&page.display().to_string(), "no alert leads to it".into());
        }
    }
    Ok(missing)
}

fn page_file(name: &str) -> PathBuf {
    Path::new(PAGES).join(format!("{name}.md"))
}

/// Each alert with its runbook.
fn pages_of(rules: &str) -> anyhow::Result<BTreeMap<&str, &str>> {
    let mut alerts = BTreeMap::new();
    for rule in rules.split("- alert: ").skip(1) {
        let alert = rule.lines().next().unwrap_or_default().trim();
        let page = rule
            .lines()
            .find_map(|line| line.trim().strip_prefix("runbook_url: "));
        let page = page.with_context(|| format!("{alert} has no runbook_url"))?;
        let other = alerts.insert(alert, page).filter(|other| *other != page);
        ensure!(other.is_none(), "{alert} leads to two pages");
    }
    ensure!(!alerts.is_empty(), "{RULES} has no alerts");
    Ok(alerts)
}

/// Alerts that a test expects to fire.
fn fired(tests: &str) -> BTreeSet<&str> {
    let cases = tests.split("- alertname: ").skip(1);
    let firing = cases.filter(|case| {
        let mut lines = case.lines().map(str::trim);
        lines.any(|line| line == "exp_alerts:")
            && lines.next().is_some_and(|line| line.starts_with("- "))
    });
    firing
        .filter_map(|case| case.lines().next().map(str::trim))
        .collect()
}

/// The alerts in the rows of a list.
fn listed(list: &str) -> impl Iterator<Item = &str> {
    let rows = list.lines().filter_map(|line| line.strip_prefix("| ["));
    rows.filter_map(|row| row.split_once("](").map(|(alert, _)| alert))
}

fn together(paths: &[PathBuf]) -> anyhow::Result<String> {
    let texts = paths.iter().map(|path| read(path));
    Ok(texts.collect::<anyhow::Result<Vec<_>>>()?.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: &str = "
      - alert: Down
        annotations:
          runbook_url: http://127.0.0.1:8080/runbooks/down
      - alert: Slow
        annotations:
          runbook_url: http://127.0.0.1:8080/runbooks/slow
";

    #[test]
    fn alerts_lead_to_pages() {
        let pages = pages_of(RULE).unwrap();
        assert_eq!(pages["Down"], "http://127.0.0.1:8080/runbooks/down");
        assert_eq!(pages.len(), 2);
        for (bad, expected) in [
            ("- alert: A\n", "A has no runbook_url"),
            ("groups:\n", "has no alerts"),
            (
                "- alert: A\n runbook_url: a\n- alert: A\n runbook_url: b\n",
                "two pages",
            ),
        ] {
            let error = pages_of(bad).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn alert_without_expected_labels_is_untested() {
        let tests = "
      - alertname: Down
        exp_alerts:
          - exp_labels: {}
      - alertname: Slow
        exp_alerts: []
  - name: another
    alert_rule_test:
      - alertname: Full
        exp_alerts:
";
        assert_eq!(fired(tests), BTreeSet::from(["Down"]));
    }

    #[test]
    fn incomplete_alert_lists_missing_parts() {
        let lacks = missing(RULE, "").unwrap().join("\n");
        for expected in [
            "Down: no test below deploy/prometheus/tests sees it fire",
            "Slow: no row of docs/runbooks/README.md leads to http://127.0.0.1:8080/runbooks/slow",
            "Slow: http://127.0.0.1:8080/runbooks/slow is not there or does not name it",
            "SwitchboardAbsent: in docs/runbooks/README.md, and no alert",
            "docs/runbooks/absent.md: no alert leads to it",
        ] {
            assert!(lacks.contains(expected), "{expected} is not in {lacks}");
        }
        let relative = RULE.replace(BASE, "docs/runbooks/");
        let lacks = missing(&relative, "").unwrap().join("\n");
        assert!(
            lacks.contains("Down: docs/runbooks/down is not below http"),
            "{lacks}"
        );
    }
}
