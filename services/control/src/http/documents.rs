//! Strict parsing of JSON documents. Every problem has a JSON Pointer to the invalid value.
//!
//! Invariant: no unknown member is ignored, and no text is accepted without a limit.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
pub(crate) use switchboard_runtime::problem::child_pointer;
use switchboard_runtime::problem::{Problem, mismatch};

use super::limits::{self, Rule};
pub(crate) use super::strict_json::StrictJson;

/// The problem of an invalid value at this pointer (RFC 6901) in the body.
pub(crate) fn invalid(pointer: &str, detail: impl Into<String>) -> Problem {
    Problem::invalid_body(pointer, detail)
}

/// Parses a document, at the pointer `base` in the body, and checks it against the rules.
///
/// `T` must serialise all of its members, including empty ones: members that it does
/// not serialise are rejected as unknown.
pub(crate) fn parse<T>(document: &Value, base: &str, rules: &[Rule]) -> Result<T, Problem>
where
    T: DeserializeOwned + Serialize,
{
    let parsed: T = serde_path_to_error::deserialize(document)
        .map_err(|error| mismatch(base, error.path(), error.inner()))?;
    let known = serde_json::to_value(&parsed).unwrap_or(Value::Null);
    check(document, &known, base, rules)?;
    Ok(parsed)
}

fn check(document: &Value, known: &Value, base: &str, rules: &[Rule]) -> Result<(), Problem> {
    reject_unknown(document, known, base)?;
    limits::check(document, base, rules)
}

/// Rejects members that the parsed document does not have.
fn reject_unknown(document: &Value, known: &Value, base: &str) -> Result<(), Problem> {
    let mut open = vec![(base.to_owned(), document, known)];
    while let Some((pointer, sent, known)) = open.pop() {
        match (sent, known) {
            (Value::Object(sent), Value::Object(known)) => {
                for (name, value) in sent {
                    let pointer = child_pointer(&pointer, name);
                    let Some(known_value) = known.get(name) else {
                        let names: Vec<_> = known.keys().map(String::as_str).collect();
                        let detail = format!(
                            "`{pointer}` is not a known member; known members are {}.",
                            names.join(", ")
                        );
                        return Err(invalid(&pointer, detail));
                    };
                    open.push((pointer, value, known_value));
                }
            }
            (Value::Array(sent), Value::Array(known)) => {
                let pairs = sent.iter().zip(known).enumerate();
                open.extend(
                    pairs.map(|(index, (sent, known))| (format!("{pointer}/{index}"), sent, known)),
                );
            }
            // serde also accepts an array for an object, and an object for a unit variant.
            (Value::Array(_) | Value::Object(_), known) => {
                let detail = format!("`{pointer}` must be {}.", type_name(known));
                return Err(invalid(&pointer, detail));
            }
            _ => {}
        }
    }
    Ok(())
}

const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, Serialize, Deserialize)]
    #[serde(default)]
    struct Order {
        lines: Vec<Line>,
        note: Option<String>,
        way: Option<Way>,
        free: serde_json::Map<String, Value>,
    }

    #[derive(Debug, Serialize, Deserialize)]
    enum Way {
        Up,
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Line {
        count: u8,
        #[serde(rename = "a/b")]
        odd: Option<u8>,
    }

    #[test]
    fn problem_has_a_pointer_to_the_invalid_value() {
        fn check(document: Value, pointer: Option<&str>, part: &str) {
            let refused = parse::<Order>(&document, "/order", &[]).err();
            let place = refused.as_ref().and_then(Problem::pointer);
            assert_eq!(place, pointer, "{document}");
            let detail = refused.map(|problem| problem.detail).unwrap_or_default();
            assert!(detail.contains(part), "{detail}");
        }
        check(json!({}), None, "");
        check(
            json!({"lines": [{"count": 1, "a/b": 2}], "note": null, "free": {"any": {"x": [1]}}}),
            None,
            "",
        );
        check(json!([]), Some("/order"), "must be an object");
        check(json!("x"), Some("/order"), "must be an object");
        check(
            json!({"lines": [[1, 2]]}),
            Some("/order/lines/0"),
            "must be an object",
        );
        check(
            json!({"way": {"Up": null}}),
            Some("/order/way"),
            "must be a string",
        );
        check(
            json!({"lines": [{"count": 1}, {"count": -1}]}),
            Some("/order/lines/1/count"),
            "-1",
        );
        check(
            json!({"lines": [{"count": 1, "a/b": "x"}]}),
            Some("/order/lines/0/a~1b"),
            "string",
        );
        check(
            json!({"lines": [{}]}),
            Some("/order/lines/0/count"),
            "is required",
        );
        check(
            json!({"liens": []}),
            Some("/order/liens"),
            "free, lines, note, way",
        );
        check(
            json!({"liens": null}),
            Some("/order/liens"),
            "not a known member",
        );
        check(
            json!({"lines": [{"count": 1, "x": 1}]}),
            Some("/order/lines/0/x"),
            "not a known member",
        );
        check(
            json!({"note": "x".repeat(9), "lines": "y".repeat(9_999)}),
            Some("/order/lines"),
            "yyy",
        );
    }

    #[test]
    fn long_reason_is_truncated() {
        let problem = parse::<Order>(&json!({"lines": "y".repeat(9_999)}), "", &[]).unwrap_err();
        assert!(problem.detail.len() < 300, "{}", problem.detail);
    }
}
