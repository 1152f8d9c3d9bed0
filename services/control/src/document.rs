//! JSON documents that people write: read strictly, each refusal with a JSON pointer to what is wrong.
//! Never: a field passed over, or a text without a limit stored.

mod unambiguous;

use std::fmt::Write as _;

use http::StatusCode;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};
use switchboard_runtime::problem::Problem;

use crate::limits::{self, Rule};
pub(crate) use unambiguous::Unambiguous;

/// The longest reason that is repeated from the parser, in characters: it may quote what was sent.
const LONGEST_REASON: usize = 200;

/// A value that does not do; `pointer` (RFC 6901) says where it stands in the body.
pub(crate) fn invalid(pointer: &str, detail: impl Into<String>) -> Problem {
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "invalid_body",
        "Invalid body",
        detail,
    )
    .with("pointer", pointer)
}

/// A pointer to a member of what another pointer points to.
pub(crate) fn member(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// What a document says, if it says nothing else and keeps the rules. It stands at `at` in the body. `T` must write
/// all of its fields, also those that are empty, since what it does not write counts as unknown.
pub(crate) fn read<T>(document: &Value, at: &str, rules: &[Rule]) -> Result<T, Problem>
where
    T: DeserializeOwned + Serialize,
{
    let read: T = serde_path_to_error::deserialize(document).map_err(|error| {
        let pointer = format!("{at}{}", pointer_to(error.path()));
        let reason: String = error
            .inner()
            .to_string()
            .chars()
            .take(LONGEST_REASON)
            .collect();
        match pointer.as_str() {
            "" => invalid("", format!("The body does not fit: {reason}.")),
            _ => invalid(&pointer, format!("`{pointer}` does not fit: {reason}.")),
        }
    })?;
    let known = serde_json::to_value(&read).unwrap_or(Value::Null);
    refuse_unknown(document, &known, at)?;
    limits::keep(document, at, rules)?;
    Ok(read)
}

fn pointer_to(path: &Path) -> String {
    path.iter().fold(String::new(), |mut pointer, segment| {
        match segment {
            Segment::Map { key } => pointer = member(&pointer, key),
            Segment::Seq { index } => {
                // Writing to a String does not fail.
                let _ = write!(pointer, "/{index}");
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
        pointer
    })
}

/// Refuses a member that what was read does not have.
fn refuse_unknown(document: &Value, known: &Value, at: &str) -> Result<(), Problem> {
    let mut open = vec![(at.to_owned(), document, known)];
    while let Some((pointer, sent, known)) = open.pop() {
        match (sent, known) {
            (Value::Object(sent), Value::Object(known)) => {
                for (name, value) in sent {
                    let pointer = member(&pointer, name);
                    let Some(known_value) = known.get(name) else {
                        let names: Vec<_> = known.keys().map(String::as_str).collect();
                        let detail = format!(
                            "`{pointer}` is not known; known here are {}.",
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
            // The parser also takes the members of an object as an array, and a word as an object.
            (Value::Array(_) | Value::Object(_), known) => {
                let detail = format!("`{pointer}` must be {}.", kind(known));
                return Err(invalid(&pointer, detail));
            }
            _ => {}
        }
    }
    Ok(())
}

const fn kind(value: &Value) -> &'static str {
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
    fn refusals_point_at_the_place() {
        fn check(document: Value, pointer: Option<&str>, part: &str) {
            let refused = read::<Order>(&document, "/order", &[]).err();
            let place = refused
                .as_ref()
                .and_then(|problem| problem.extra.get("pointer"));
            assert_eq!(place, pointer.map(Value::from).as_ref(), "{document}");
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
        check(json!("x"), Some("/order"), "invalid type");
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
            Some("/order/lines/0"),
            "missing field `count`",
        );
        check(
            json!({"liens": []}),
            Some("/order/liens"),
            "free, lines, note, way",
        );
        check(json!({"liens": null}), Some("/order/liens"), "not known");
        check(
            json!({"lines": [{"count": 1, "x": 1}]}),
            Some("/order/lines/0/x"),
            "not known",
        );
        check(
            json!({"note": "x".repeat(9), "lines": "y".repeat(9_999)}),
            Some("/order/lines"),
            "yyy",
        );
    }

    #[test]
    fn a_reason_is_short() {
        let problem = read::<Order>(&json!({"lines": "y".repeat(9_999)}), "", &[]).unwrap_err();
        assert!(problem.detail.len() < 300, "{}", problem.detail);
    }
}
