//! Text that is not copied out of the buffer in which it came.
//! Never: bytes that are not UTF-8.

use std::ops::Deref;

use bytes::Bytes;

use crate::envelope::Malformed;

/// A slice of a received buffer that is known to be UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Text(Bytes);

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        // Checked at construction; the buffer can not change afterwards.
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
