//! JSON that says everything once.
//! Never: one of two members with the same name chosen for whoever sent both.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

/// Any JSON in which no object has two members of one name. As deep as its parser allows.
#[derive(Debug)]
pub(crate) struct Unambiguous(pub(crate) Value);

impl<'de> Deserialize<'de> for Unambiguous {
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
        while let Some(Unambiguous(element)) = sequence.next_element()? {
            elements.push(element);
        }
        Ok(Value::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let Unambiguous(value) = map.next_value()?;
            if members.insert(name.clone(), value).is_some() {
                let shown: String = name.chars().take(64).collect();
                return Err(A::Error::custom(format!("duplicate field `{shown}`")));
            }
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_said_once() {
        fn check(text: &str, duplicate: Option<&str>) {
            let read = serde_json::from_str::<Unambiguous>(text);
            match (read, duplicate) {
                (Ok(Unambiguous(value)), None) => {
                    assert_eq!(value, serde_json::from_str::<Value>(text).unwrap());
                }
                (Err(error), Some(name)) => {
                    let expected = format!("duplicate field `{name}`");
                    assert!(error.to_string().contains(&expected), "{error}");
                }
                (read, _) => panic!("{text}: {read:?}"),
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
