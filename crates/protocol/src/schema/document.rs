//! JSON parsed into values, without hiding a repeated key.
//!
//! Invariant: an object with a repeated key is refused. What is checked here must be what the
//! device reads.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

/// A JSON text as values, and its size.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) value: Value,
    /// The number of values, objects and arrays included.
    pub(super) nodes: usize,
    /// The total length of all keys, which bounds the length of a pointer into the document.
    pub(super) key_bytes: usize,
}

/// Arrays and objects inside each other that the parser reads.
const MAX_DEPTH: usize = 127;
/// Steps to a value that is nested too deep.
const MAX_PATH_STEPS: usize = 16;

/// Why a JSON text is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DocumentError {
    /// A key is repeated in the object at `path`.
    Duplicate { path: Vec<String>, key: String },
    /// Not JSON, nested too deep, or with a number out of the range of a double.
    Malformed {
        /// To the innermost value that was read in part.
        path: Vec<String>,
        /// What is wrong there, and what would be right. It quotes nothing.
        detail: String,
    },
}

impl Document {
    pub(super) fn parse(json: &str) -> Result<Self, DocumentError> {
        let mut survey = DocumentSurvey::default();
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let value = Element(&mut survey).deserialize(&mut deserializer);
        let whole = value.and_then(|value| deserializer.end().map(|()| value));
        let error = match whole {
            Ok(value) => {
                return Ok(Self {
                    value,
                    nodes: survey.nodes,
                    key_bytes: survey.key_bytes,
                });
            }
            Err(error) => error,
        };
        let mut path = survey.path;
        path.reverse();
        if let Some(key) = survey.repeated {
            return Err(DocumentError::Duplicate { path, key });
        }
        let detail = describe(&error);
        // The path of what is nested too deep would have as many steps.
        if path.len() >= MAX_DEPTH {
            path.truncate(MAX_PATH_STEPS);
        }
        Err(DocumentError::Malformed { path, detail })
    }
}

/// What is wrong with a JSON text, for the caller.
fn describe(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    if error.is_eof() {
        return format!("the JSON ends before it is complete, at line {line}, column {column}");
    }
    // The parser has no other sign of these. All else is refused by what is JSON.
    let reason = error.to_string();
    if reason.starts_with("number out of range") {
        "the number is out of range: a number is from -1.797e308 to 1.797e308".to_owned()
    } else if reason.starts_with("recursion limit") {
        format!("arrays and objects are nested at most {MAX_DEPTH} deep")
    } else if reason.contains("hex escape") || reason.contains("unicode code point") {
        "a string has half of a surrogate pair: `\\ud800` to `\\udbff` is followed by `\\udc00` to `\\udfff`"
            .to_owned()
    } else {
        format!("it is not JSON at line {line}, column {column}: RFC 8259 defines what is")
    }
}

#[derive(Default)]
struct DocumentSurvey {
    nodes: usize,
    key_bytes: usize,
    /// The repeated key at which the parser was stopped.
    repeated: Option<String>,
    /// Where parsing failed. Built while the recursion unwinds, so the innermost step comes first.
    path: Vec<String>,
}

struct Element<'s>(&'s mut DocumentSurvey);

impl<'de> DeserializeSeed<'de> for Element<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.0.nodes = self.0.nodes.saturating_add(1);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Element<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("number out of range"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Value, S::Error> {
        let mut items = Vec::new();
        loop {
            match seq.next_element_seed(Element(self.0)) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => return Ok(Value::Array(items)),
                Err(error) => {
                    self.0.path.push(items.len().to_string());
                    return Err(error);
                }
            }
        }
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Value, M::Error> {
        let mut members = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            self.0.key_bytes = self.0.key_bytes.saturating_add(key.len());
            if members.contains_key(&key) {
                self.0.repeated = Some(key);
                return Err(M::Error::custom("repeated key"));
            }
            match map.next_value_seed(Element(self.0)) {
                Ok(member) => members.insert(key, member),
                Err(error) => {
                    self.0.path.push(key);
                    return Err(error);
                }
            };
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_equals_the_value_of_serde() {
        fn check(json: &str, nodes: usize) {
            let document = Document::parse(json).unwrap();
            assert_eq!(
                document.value,
                serde_json::from_str::<Value>(json).unwrap(),
                "{json}"
            );
            assert_eq!(document.nodes, nodes, "{json}");
        }
        check("null", 1);
        check(r#"{"a":[1,-2,3.5,1e3,true,"x\u00e9"],"b":{"a":{}}}"#, 10);
        check(" [ ] ", 1);
    }

    #[test]
    fn repeated_key_is_located() {
        fn check(json: &str, path: &[&str], key: &str) {
            let path = path.iter().map(|&step| step.to_owned()).collect();
            let expect = DocumentError::Duplicate {
                path,
                key: key.to_owned(),
            };
            assert_eq!(Document::parse(json).unwrap_err(), expect, "{json}");
        }
        check(r#"{"a":1,"a":1}"#, &[], "a");
        check(r#"{"a":1,"\u0061":1}"#, &[], "a");
        check(r#"{"x":[0,{"y":{"k":1,"k":2}}]}"#, &["x", "1", "y"], "k");
    }

    #[test]
    fn invalid_json_is_refused_with_the_place_and_what_is_right() {
        #[track_caller]
        fn check(json: &str, at: &[&str], expected: &str) {
            let Err(DocumentError::Malformed { path, detail }) = Document::parse(json) else {
                panic!("{json} is not malformed");
            };
            assert_eq!(path, at, "{json}");
            assert_eq!(detail, expected, "{json}");
        }
        let number = "the number is out of range: a number is from -1.797e308 to 1.797e308";
        check("1e999", &[], number);
        check(r#"{"a":[0,-1e999]}"#, &["a", "1"], number);
        let surrogate = "a string has half of a surrogate pair: `\\ud800` to `\\udbff` is followed by `\\udc00` to `\\udfff`";
        check(r#"{"a":"\ud800"}"#, &["a"], surrogate);
        check(r#"{"a":"\ud800\u0041"}"#, &["a"], surrogate);
        check(r#"["\udc00"]"#, &["0"], surrogate);
        let early =
            |column| format!("the JSON ends before it is complete, at line 1, column {column}");
        check("", &[], &early(0));
        check("{", &[], &early(1));
        check(r#"{"a":["b"#, &["a", "0"], &early(8));
        let syntax =
            |column| format!("it is not JSON at line 1, column {column}: RFC 8259 defines what is");
        check("1 2", &[], &syntax(3));
        check("nul1", &[], &syntax(4));
        check(r#"{"a":}"#, &["a"], &syntax(6));
        check("[1,]", &["1"], &syntax(4));
        check("[\"\u{1}\"]", &["0"], &syntax(3));
        let deep = "arrays and objects are nested at most 127 deep";
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let nested = |depth| format!("{}1{}", open.repeat(depth), close.repeat(depth));
            assert!(Document::parse(&nested(MAX_DEPTH)).is_ok());
            let step = if open == "[" { "0" } else { "a" };
            check(&nested(MAX_DEPTH + 1), &[step; MAX_PATH_STEPS], deep);
            check(&open.repeat(100_000), &[step; MAX_PATH_STEPS], deep);
        }
    }
}
