//! Checks that Prometheus can parse every expression of the Grafana dashboards. Whether the series
//! exist is not checked.

use std::{fmt::Write as _, io::Write as _, path::Path};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{files, read, succeed};

const DASHBOARDS: &str = "deploy/grafana/dashboards";
/// Values for Grafana's own variables, longest name first.
const BUILT_IN: [(&str, &str); 3] = [
    ("$__rate_interval", "5m"),
    ("$__interval", "1m"),
    ("$__range", "1h"),
];

pub(super) fn check() -> anyhow::Result<()> {
    let mut rules = "groups:\n".to_owned();
    for path in files(DASHBOARDS, "json")? {
        let name = path.file_stem().unwrap_or_default().display().to_string();
        let dashboard = serde_json::from_str(&read(&path)?)
            .map_err(anyhow::Error::from)
            .and_then(|dashboard| as_rules(&name, &dashboard));
        rules += &dashboard.with_context(|| path.display().to_string())?;
    }
    let mut file = tempfile::Builder::new()
        .prefix("dashboards-")
        .suffix(".yml")
        .tempfile()?;
    file.write_all(rules.as_bytes())?;
    let words = ["check", "rules"].map(Path::new);
    succeed("promtool", words.into_iter().chain([file.path()]))
}

/// A rule group with the expressions of a dashboard as `NAME:1`, `NAME:2`, …, for promtool.
fn as_rules(name: &str, dashboard: &Value) -> anyhow::Result<String> {
    let variables = dashboard["templating"]["list"].as_array();
    let variables = variables.into_iter().flatten();
    let mut names: Vec<_> = variables.filter_map(|it| it["name"].as_str()).collect();
    // `$node_name` must not match `$node`.
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    let mut expressions = Vec::new();
    gather(dashboard, &mut expressions);
    ensure!(!expressions.is_empty(), "it has no expressions");
    let mut rules = format!("  - name: {name}\n    rules:\n");
    for (index, expression) in expressions.into_iter().enumerate() {
        let expression = fill_in(expression, &names)?;
        // A JSON string is a YAML string.
        let quoted = Value::from(expression);
        writeln!(
            rules,
            "      - record: {name}:{index}\n        expr: {quoted}"
        )?;
    }
    Ok(rules)
}

/// The expressions of panels, annotations and variables.
fn gather<'a>(value: &'a Value, expressions: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value.as_str()) {
                    ("expr", Some(expression)) => expressions.push(expression),
                    ("query", Some(query)) => expressions.extend(labelled(query)),
                    _ => gather(value, expressions),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| gather(value, expressions)),
        _ => {}
    }
}

/// The series of `label_values(SERIES, LABEL)`.
fn labelled(query: &str) -> Option<&str> {
    let inner = query.strip_prefix("label_values(")?.strip_suffix(')')?;
    inner.rsplit_once(',').map(|(series, _)| series)
}

/// An expression as Grafana sends it, with all values selected.
fn fill_in(expression: &str, variables: &[&str]) -> anyhow::Result<String> {
    let mut filled = expression.to_owned();
    for (name, value) in BUILT_IN {
        filled = filled.replace(name, value);
    }
    for name in variables {
        filled = filled.replace(&format!("${{{name}}}"), ".*");
        filled = filled.replace(&format!("${name}"), ".*");
    }
    ensure!(!filled.contains('$'), "undefined variable in: {expression}");
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_are_filled_in() {
        for (expression, expected) in [
            ("rate(a[$__rate_interval])", Some("rate(a[5m])")),
            ("a{n=~\"$node\"}", Some("a{n=~\".*\"}")),
            (
                "a{n=~\"${node}\", m=~\"$node_name\"}",
                Some("a{n=~\".*\", m=~\".*\"}"),
            ),
            ("a{n=~\"$other\"}", None),
        ] {
            let filled = fill_in(expression, &["node_name", "node"]).ok();
            assert_eq!(filled.as_deref(), expected);
        }
    }

    #[test]
    fn every_expression_of_a_dashboard_becomes_a_rule() {
        let dashboard = json!({
            "templating": {"list": [
                {"name": "source", "query": "prometheus"},
                {"name": "node", "query": {"query": "label_values(up{a=~\"$node\"}, instance)"}},
            ]},
            "annotations": {"list": [{"expr": "ALERTS"}]},
            "panels": [{"targets": [{"expr": "sum(a)\n/\nb"}]}, {"panels": [{"targets": [{"expr": "c"}]}]}],
        });
        let rules = as_rules("bus", &dashboard).unwrap();
        for expected in [
            "expr: \"ALERTS\"",
            "expr: \"sum(a)\\n/\\nb\"",
            "expr: \"c\"",
            "expr: \"up{a=~\\\".*\\\"}\"",
        ] {
            assert!(rules.contains(expected), "{rules}");
        }
        assert_eq!(rules.matches("- record: bus:").count(), 4);
        assert!(as_rules("bus", &json!({"panels": []})).is_err());
    }
}
