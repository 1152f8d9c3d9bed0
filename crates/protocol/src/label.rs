//! Labels of devices, by which callers choose them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// Labels of one device. Protects lists of devices.
pub const MAX_LABELS: usize = 16;
/// As long as a label of Kubernetes.
const MAX_LABEL_BYTES: usize = 63;

/// A label of a device, such as `room:kitchen`. Its parts have no meaning here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
#[schema(value_type = String, pattern = "^[A-Za-z0-9._:/=-]{1,63}$", example = "room:kitchen")]
#[serde(transparent)]
pub struct DeviceLabel(Box<str>);

/// A text that is no label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a label is 1 to {MAX_LABEL_BYTES} characters out of A-Z a-z 0-9 . _ : / = -")]
pub struct LabelError;

impl DeviceLabel {
    /// The label as it was given.
    #[must_use]
    pub const fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DeviceLabel {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/=-".contains(&byte);
        if (1..=MAX_LABEL_BYTES).contains(&text.len()) && text.bytes().all(is_known) {
            Ok(Self(text.into()))
        } else {
            Err(LabelError)
        }
    }
}

impl fmt::Display for DeviceLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for DeviceLabel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_has_an_alphabet_and_a_length() {
        fn check(text: &str, valid: bool) {
            assert_eq!(text.parse::<DeviceLabel>().is_ok(), valid, "{text:?}");
        }
        check("room:kitchen", true);
        check("app/tier=front-1_a.b", true);
        check(&"x".repeat(63), true);
        check(&"x".repeat(64), false);
        check("", false);
        check("two words", false);
        check("a,b", false);
        check("küche", false);
    }
}
