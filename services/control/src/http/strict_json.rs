//! JSON without duplicate member names. A document with duplicates is rejected; otherwise one of
//! the two values would be ignored silently.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

/// Any JSON without duplicate member names. The parser limits its depth.
#[derive(Debug)]
pub(crate) struct StrictJson(pub(crate) Value);

impl<'de> Deserialize<'de> for StrictJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyJson).map(Self)
    }
}

struct AnyJson;

impl<'de> Visitor<'de> for AnyJson {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(StrictJson(element)) = sequence.next_element()? {
            elements.push(element);
        }
        Ok(Value::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let StrictJson(value) = map.next_value()?;
            if members.insert(name.clone(), value).is_some() {
                let name: String = name.chars().take(64).collect();
                return Err(A::Error::custom(format!("duplicate field `{name}`")));
            }
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_member_is_rejected() {
        fn check(text: &str, duplicate: Option<&str>) {
            let parsed = serde_json::from_str::<StrictJson>(text);
            match (parsed, duplicate) {
                (Ok(StrictJson(value)), None) => {
                    assert_eq!(value, serde_json::from_str::<Value>(text).unwrap());
                }
                (Err(error), Some(name)) => {
                    let expected = format!("duplicate field `{name}`");
                    assert!(error.to_string().contains(&expected), "{error}");
                }
                (parsed, _) => panic!("{text}: {parsed:?}"),
            }
        }
        check(
            "{\"a\": [1, -1, 0.5, null, true, \"\\u00e9\", {\"a\": {}}], \"b\": {\"a\": 1}}",
            None,
        );
        check("18446744073709551615", None);
        check("{\"a\": 1, \"b\": 2, \"a\": 1}", Some("a"));
        check("{\"x\": [{\"a\": 1, \"\\u0061\": 2}]}", Some("a"));
    }
}
