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

use super::error::quoted;

/// A JSON text as values, and its size.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) value: Value,
    /// The number of values, objects and arrays included.
    pub(super) nodes: usize,
    /// The total length of all keys, which bounds the length of a pointer into the document.
    pub(super) key_bytes: usize,
}

/// Why a JSON text is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DocumentError {
    /// A key is repeated in the object at `path`.
    Duplicate { path: Vec<String>, key: String },
    /// Not JSON, nested too deep, or with a number out of the range of a double.
    Malformed(String),
}

impl Document {
    pub(super) fn parse(json: &str) -> Result<Self, DocumentError> {
        let mut survey = DocumentSurvey::default();
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let value = Element(&mut survey).deserialize(&mut deserializer);
        let whole = value.and_then(|value| deserializer.end().map(|()| value));
        match (whole, survey.duplicate) {
            (Ok(value), None) => Ok(Self {
                value,
                nodes: survey.nodes,
                key_bytes: survey.key_bytes,
            }),
            (_, Some(DuplicateKey { mut path, key })) => {
                path.reverse();
                Err(DocumentError::Duplicate { path, key })
            }
            (Err(error), None) => Err(DocumentError::Malformed(quoted(&error.to_string()))),
        }
    }
}

#[derive(Default)]
struct DocumentSurvey {
    nodes: usize,
    key_bytes: usize,
    duplicate: Option<DuplicateKey>,
}

/// Built while the recursion unwinds, so the innermost step comes first.
struct DuplicateKey {
    path: Vec<String>,
    key: String,
}

impl DocumentSurvey {
    fn push_step(&mut self, key: String) {
        if let Some(duplicate) = &mut self.duplicate {
            duplicate.path.push(key);
        }
    }
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
                    self.0.push_step(items.len().to_string());
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
                self.0.duplicate = Some(DuplicateKey {
                    path: Vec::new(),
                    key,
                });
                return Err(M::Error::custom("repeated key"));
            }
            match map.next_value_seed(Element(self.0)) {
                Ok(member) => members.insert(key, member),
                Err(error) => {
                    self.0.push_step(key);
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
    fn invalid_json_is_refused() {
        for json in ["", "{", "1 2", "nul", "1e999", r#"{"a":}"#] {
            assert!(
                matches!(Document::parse(json), Err(DocumentError::Malformed(_))),
                "{json}"
            );
        }
        for open in ["[", "{\"a\":"] {
            let bomb = open.repeat(100_000);
            assert!(matches!(
                Document::parse(&bomb),
                Err(DocumentError::Malformed(_))
            ));
        }
    }
}
