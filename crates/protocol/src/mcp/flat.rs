//! MCP messages in FlatBuffers, by `schema/mcp.fbs`: JSON text in, a buffer out, and back without
//! loss. What the fields are and why is in docs/flatbuffers.md.
//! Never: a byte of a foreign buffer that was not verified first, or a member that gets lost.
//!
//! ```
//! use switchboard_protocol::mcp::flat;
//! let buffer = flat::encode(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)?;
//! let message = flat::decode(&buffer)?;
//! assert_eq!(message["method"], "ping");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod from_json;
mod members;
mod message;
mod node;
mod reader;
mod schema;
#[cfg(test)]
mod tests;
mod to_json;
mod writer;

use serde_json::value::RawValue;

pub use error::{DecodeError, EncodeError};

use crate::message::nesting;
use schema::Table;

/// What a body in this encoding is called over HTTP.
pub const CONTENT_TYPE: &str = "application/vnd.mcp+flatbuffers";
/// The bytes 4 to 7 of every buffer.
pub const IDENTIFIER: &[u8; 4] = b"MCPP";
/// The most bytes of a buffer, and of the JSON that becomes one.
pub const MAX_BYTES: usize = 16 * 1024 * 1024;
/// The most tables of a buffer: each costs more memory than it has bytes.
pub const MAX_TABLES: usize = 65_536;
/// Deeper than the schema is nested; recursion ends here whatever the schema becomes.
const MAX_DEPTH: usize = 16;
/// The bytes of a size in front of a buffer.
const SIZE_BYTES: usize = 4;

/// What a buffer is about: a message, or one table of the schema for itself.
#[derive(Debug, Clone, Copy)]
pub struct Subject(&'static Table);

/// How a buffer stands among others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Alone: the end of the bytes is the end of the buffer.
    Alone,
    /// Behind its size in 4 bytes, little-endian, as `flatc --size-prefixed` has it.
    SizePrefixed,
}

impl Subject {
    /// A JSON-RPC message, the root of the schema.
    pub const MESSAGE: Self = Self(&schema::MESSAGE);

    /// Everything that can stand alone.
    pub fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::MESSAGE).chain(schema::STANDALONE.iter().map(|table| Self(table)))
    }

    /// The subject of this name, such as `Tool`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|subject| subject.name() == name)
    }

    /// The name of the table in the schema.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0.name
    }
}

/// Writes a JSON-RPC message as a buffer.
///
/// # Errors
/// When it is no message, or larger than [`MAX_BYTES`]; the error names the member.
pub fn encode(json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    encode_as(Subject::MESSAGE, Framing::Alone, json)
}

/// Reads a JSON-RPC message from a buffer. Numbers become what a [`serde_json::Value`] can hold;
/// [`decode_text`] keeps their digits.
///
/// # Errors
/// When the buffer is damaged or no message; the error names the field.
pub fn decode(bytes: &[u8]) -> Result<serde_json::Value, DecodeError> {
    serde_json::from_str(&decode_text(bytes)?)
        .map_err(|error| DecodeError::Unrepresentable(error.to_string()))
}

/// Reads a JSON-RPC message from a buffer as JSON text on one line.
///
/// # Errors
/// When the buffer is damaged or no message; the error names the field.
pub fn decode_text(bytes: &[u8]) -> Result<String, DecodeError> {
    decode_as(Subject::MESSAGE, Framing::Alone, bytes)
}

/// Writes JSON as a buffer about this subject.
///
/// # Errors
/// When it is not such JSON, or larger than [`MAX_BYTES`]; the error names the member.
pub fn encode_as(subject: Subject, framing: Framing, json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    if json.len() > MAX_BYTES {
        return Err(EncodeError::TooLarge { bytes: json.len() });
    }
    let malformed = |detail: String| EncodeError::Malformed(detail);
    let text = std::str::from_utf8(json)
        .map_err(|error| malformed(format!("not UTF-8 at byte {}", error.valid_up_to())))?;
    if nesting::too_deep(json) {
        return Err(EncodeError::TooDeep);
    }
    let raw: &RawValue =
        serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
    let node = if std::ptr::eq(subject.0, &schema::MESSAGE) {
        message::encode(raw.get())?
    } else {
        from_json::encode(subject.0, raw.get(), &mut subject.name().to_owned())?
    };
    match framing {
        Framing::Alone => writer::write(&node, 0),
        Framing::SizePrefixed => {
            let buffer = writer::write(&node, SIZE_BYTES)?;
            let size = u32::try_from(buffer.len()).map_err(|_| EncodeError::TooLarge {
                bytes: buffer.len(),
            })?;
            Ok([size.to_le_bytes().as_slice(), &buffer].concat())
        }
    }
}

/// Reads a buffer about this subject as JSON text on one line.
///
/// # Errors
/// When the buffer is damaged or about something else; the error names the field.
pub fn decode_as(subject: Subject, framing: Framing, bytes: &[u8]) -> Result<String, DecodeError> {
    let (buffer, lead) = match framing {
        Framing::Alone => (bytes, 0),
        Framing::SizePrefixed => match first(bytes)? {
            (whole, []) => (whole.get(SIZE_BYTES..).unwrap_or_default(), SIZE_BYTES),
            (whole, _) => {
                return Err(DecodeError::Damaged {
                    path: "the stream".to_owned(),
                    at: whole.len(),
                    flaw: "something follows the one buffer that was expected",
                });
            }
        },
    };
    let node = reader::read(buffer, lead, subject.0)?;
    let text = if std::ptr::eq(subject.0, &schema::MESSAGE) {
        message::decode(&node)?
    } else {
        to_json::decode(&node, subject.name())?
    };
    if nesting::too_deep(text.as_bytes()) {
        return Err(DecodeError::TooDeep);
    }
    Ok(text)
}

/// Splits a stream of [`Framing::SizePrefixed`] buffers that has not ended: the first one with its
/// size, and what comes after it.
///
/// # Errors
/// When the stream ends within a buffer, or the size is larger than [`MAX_BYTES`].
pub fn first(stream: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let cut = DecodeError::Damaged {
        path: "the stream".to_owned(),
        at: stream.len(),
        flaw: "it ends before the end of the buffer whose size it has",
    };
    let Some(size) = stream.first_chunk::<SIZE_BYTES>() else {
        return Err(cut);
    };
    let bytes = usize::try_from(u32::from_le_bytes(*size)).unwrap_or(usize::MAX);
    if bytes > MAX_BYTES {
        return Err(DecodeError::TooLarge { bytes });
    }
    stream
        .split_at_checked(bytes.saturating_add(SIZE_BYTES))
        .ok_or(cut)
}
