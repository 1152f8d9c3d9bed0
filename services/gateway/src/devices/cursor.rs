//! Where a page of devices ended, opaque to callers.
//! Never: a place that is no device id.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use switchboard_protocol::id::DeviceId;

/// The last device of a page; the next begins behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor(DeviceId);

impl Cursor {
    pub(super) fn behind(id: &DeviceId) -> Self {
        Self(id.clone())
    }

    pub(super) fn as_str(&self) -> &str {
        self.0.as_str()
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        std::str::from_utf8(&bytes).ok()?.parse().ok().map(Self)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.as_str()))
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| de::Error::custom("not a cursor; use `next_cursor` of the page before"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_cursors_are_taken() {
        fn check(text: &str, expected: Option<&str>) {
            assert_eq!(
                Cursor::parse(text).as_ref().map(Cursor::as_str),
                expected,
                "{text:?}"
            );
        }
        let longest = "x".repeat(DeviceId::MAX_BYTES);
        for id in ["toy-1", "a:b.c_D", &longest] {
            let cursor = Cursor::behind(&id.parse().unwrap());
            check(&cursor.to_string(), Some(id));
        }
        check("", None);
        check("toy-1", None);
        check("dG95LTE=", None);
        check("4pi6", None);
        check(&URL_SAFE_NO_PAD.encode("two words"), None);
    }
}
