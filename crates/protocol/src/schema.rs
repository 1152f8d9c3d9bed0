//! The gate that device-supplied JSON Schemas pass: budget first, compile after, check bounded.
//! Never: fetches anything, runs an engine that backtracks, or hands `jsonschema` an unmeasured
//! schema. (I15.)

use std::{fmt, str::FromStr};

use sha2::{Digest as _, Sha256};

mod budget;
mod document;
mod error;
mod expansion;
mod gate;
mod interner;
mod registration;

pub use error::{RegisterError, SchemaFault};
pub use interner::Interner;
pub use registration::{Registration, Service};

/// How much a device may register. Schemas come from devices, so they are hostile.
#[derive(Debug, Clone)]
pub struct SchemaLimits {
    /// Services per device.
    pub max_services: usize,
    /// Bytes of one schema, written without white space.
    pub max_schema_bytes: usize,
    /// Objects and arrays of one schema inside each other.
    pub max_depth: usize,
    /// JSON values of one schema, its objects and arrays included.
    pub max_nodes: usize,
    /// JSON values of one schema with every `$ref` replaced by what it names.
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

/// SHA-256 of the services' JSON as sent: what equal registrations are known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of this JSON, byte for byte.
    #[must_use]
    pub fn of(json: &[u8]) -> Self {
        Self(Sha256::digest(json).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is no digest.
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
    fn digests_round_trip() {
        let digest = Digest::of(b"{}");
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
