//! JSON Schemas of devices: measured against a budget, then compiled, then checked within bounds.
//!
//! Invariant: nothing is fetched, no regular expression backtracks, and `jsonschema` receives no
//! schema that was not measured. The cost of a check has a bound. (I15)

use std::{fmt, str::FromStr};

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

mod budget;
mod compiled_schema;
mod document;
mod error;
mod expansion;
mod interner;
mod pattern;
mod registration;

pub use compiled_schema::Deferred;
pub use error::{RegisterError, SchemaFault};
pub use interner::Interner;
pub use registration::{Compilation, MeasuredServices, Registration, Service};

/// Limits on what a device may register. Schemas come from devices, so they are untrusted.
#[derive(Debug, Clone)]
pub struct SchemaLimits {
    /// Services of one device.
    pub max_services: usize,
    /// Bytes of one schema without white space.
    pub max_schema_bytes: usize,
    /// Nesting depth of objects and arrays in one schema.
    pub max_depth: usize,
    /// JSON values in one schema, its objects and arrays included.
    pub max_nodes: usize,
    /// JSON values in one schema with every `$ref` replaced by its target.
    pub max_expansion: usize,
    /// Bytes of a service's name.
    pub max_name_bytes: usize,
    /// Bytes of a service's description.
    pub max_description_bytes: usize,
}

impl Default for SchemaLimits {
    fn default() -> Self {
        Self {
            max_services: 128,
            max_schema_bytes: 16 * 1024,
            max_depth: 16,
            max_nodes: 500,
            max_expansion: 2000,
            max_name_bytes: 128,
            max_description_bytes: 4 * 1024,
        }
    }
}

/// SHA-256 of the services' JSON as sent. Equal registrations have equal digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Computes the digest of this JSON, byte for byte.
    #[must_use]
    pub fn compute(json: &[u8]) -> Self {
        Self(Sha256::digest(json).into())
    }

    /// Computes the digest of one service: of the JSON object with its `name` and, as far as its definition has them, the
    /// members [`SHOWN_MEMBERS`], without white space and with the keys of all objects in byte order.
    #[must_use]
    pub fn of_service(name: &str, definition: &Value) -> Self {
        let mut shown = shown_members(definition);
        shown.insert("name".to_owned(), name.into());
        let mut shown = Value::Object(shown);
        shown.sort_all_objects();
        Self::compute(shown.to_string().as_bytes())
    }
}

/// The members of a service's definition that a model sees, or that its calls and results are checked against.
pub const SHOWN_MEMBERS: [&str; 4] = ["annotations", "description", "output", "parameters"];

/// These members of a definition.
#[must_use]
pub fn shown_members(definition: &Value) -> Map<String, Value> {
    let members = SHOWN_MEMBERS.into_iter().filter_map(|name| {
        let member = definition.get(name)?;
        Some((name.to_owned(), member.clone()))
    });
    members.collect()
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is not a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 lower-case hexadecimal digits")]
pub struct DigestError;

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
            return Err(DigestError);
        };
        let mut digest = [0; 32];
        if pairs.len() != digest.len() {
            return Err(DigestError);
        }
        for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
            *byte = hex(*high)? << 4 | hex(*low)?;
        }
        Ok(Self(digest))
    }
}

fn hex(digit: u8) -> Result<u8, DigestError> {
    match digit {
        b'0'..=b'9' => Ok(digit.saturating_sub(b'0')),
        b'a'..=b'f' => Ok(digit.saturating_sub(b'a').saturating_add(10)),
        _ => Err(DigestError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_of_a_service_covers_what_a_model_sees() {
        let digest = |name: &str, json: &str| {
            let definition: Value = serde_json::from_str(json).unwrap();
            Digest::of_service(name, &definition)
        };
        let known = r#"{"description":"Waves","parameters":{"properties":{"a":{"type":"string"},"b":{}}},
                        "output":{},"annotations":{"readOnlyHint":true},"timeout_ms":5}"#;
        let same = r#"{"annotations":{"readOnlyHint":true},"output":{},"timeout_ms":7,"x":1,
                       "parameters":{"properties":{"b":{},"a":{"type":"string"}}},"description":"W\u0061ves"}"#;
        let first = digest("wave", known);
        assert_eq!(digest("wave", same), first);
        assert_ne!(digest("wave2", known), first);
        for (from, to) in [
            ("Waves", "Waves "),
            ("string", "integer"),
            ("\"output\":{}", "\"output\":true"),
            ("true}", "false}"),
        ] {
            assert_ne!(digest("wave", &known.replace(from, to)), first, "{to}");
        }
        assert_ne!(digest("wave", "{}"), digest("wave", r#"{"parameters":{}}"#));
        // It is stored: it never changes.
        assert!(
            digest("wave", "{}")
                .to_string()
                .starts_with("e3d2dec0fcf9de67"),
            "{}",
            digest("wave", "{}")
        );
    }

    #[test]
    fn digest_text_round_trips() {
        let digest = Digest::compute(b"{}");
        let text = digest.to_string();
        assert!(text.starts_with("44136fa355b3678a"), "{text}");
        assert_eq!(text.parse(), Ok(digest));
        for bad in [
            "",
            "44",
            &text.to_uppercase(),
            &format!("{text}00"),
            &text.replace('4', "g"),
        ] {
            assert_eq!(bad.parse::<Digest>(), Err(DigestError), "{bad}");
        }
    }
}
