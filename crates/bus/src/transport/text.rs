//! Text that shares the buffer in which it was received.

use std::ops::Deref;

use bytes::Bytes;

use super::message::Malformed;

/// A slice of a received buffer that is valid UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Text(Bytes);

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        // Validated at construction; the buffer cannot change afterwards.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl TryFrom<Bytes> for Text {
    type Error = Malformed;

    fn try_from(bytes: Bytes) -> Result<Self, Malformed> {
        match std::str::from_utf8(&bytes) {
            Ok(_) => Ok(Self(bytes)),
            Err(_) => Err(Malformed),
        }
    }
}
