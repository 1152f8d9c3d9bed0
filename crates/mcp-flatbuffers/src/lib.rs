//! MCP messages in FlatBuffers, by `schema/mcp.fbs`: JSON text to a buffer and back without loss.
//! `docs/flatbuffers.md` explains the fields.
//!
//! Invariant: every byte of a foreign buffer is verified before it is used, and no member is lost.
//!
//! ```
//! use switchboard_mcp_flatbuffers as flatbuffers;
//! let buffer = flatbuffers::encode(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)?;
//! let message = flatbuffers::decode(&buffer)?;
//! assert_eq!(message["method"], "ping");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::string_slice
    )
)]

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

use schema::Table;
use switchboard_protocol::message::nesting;

/// The content type of this encoding over HTTP.
pub const CONTENT_TYPE: &str = "application/vnd.mcp+flatbuffers";
/// Bytes 4 to 7 of every buffer.
pub const IDENTIFIER: &[u8; 4] = b"MCPP";
/// Maximum bytes of a buffer, and of the JSON that is encoded.
pub const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of tables in a buffer. A table needs more memory than its bytes.
pub const MAX_TABLES: usize = 65_536;
/// Deeper than the schema is nested; bounds the recursion whatever the schema becomes.
const MAX_DEPTH: usize = 16;
/// Bytes of the size before a prefixed buffer.
const SIZE_BYTES: usize = 4;

/// The table at the root of a buffer: a message, or another table of the schema.
#[derive(Debug, Clone, Copy)]
pub struct RootType(&'static Table);

/// Whether a buffer is preceded by its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// No size: the buffer ends with the bytes.
    Unprefixed,
    /// Its size in 4 bytes, little-endian, as `flatc --size-prefixed` writes it.
    SizePrefixed,
}

impl RootType {
    /// A JSON-RPC message, the root type of the schema.
    pub const MESSAGE: Self = Self(&schema::MESSAGE);

    /// Iterates over all tables that can be a root.
    pub fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::MESSAGE).chain(schema::STANDALONE.iter().map(|table| Self(table)))
    }

    /// Returns the root type of this name, such as `Tool`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|root| root.name() == name)
    }

    /// Returns the name of the table in the schema.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0.name
    }
}

/// Encodes a JSON-RPC message as a buffer.
///
/// # Errors
/// When it is not a message, or larger than [`MAX_BYTES`]. The error names the member.
pub fn encode(json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    encode_as(RootType::MESSAGE, Framing::Unprefixed, json)
}

/// Decodes a JSON-RPC message. Numbers become what a [`serde_json::Value`] can hold;
/// [`decode_text`] keeps their digits.
///
/// # Errors
/// When the buffer is damaged or not a message. The error names the field.
pub fn decode(bytes: &[u8]) -> Result<serde_json::Value, DecodeError> {
    serde_json::from_str(&decode_text(bytes)?)
        .map_err(|error| DecodeError::Unrepresentable(error.to_string()))
}

/// Decodes a JSON-RPC message as JSON text on one line.
///
/// # Errors
/// When the buffer is damaged or not a message. The error names the field.
pub fn decode_text(bytes: &[u8]) -> Result<String, DecodeError> {
    decode_as(RootType::MESSAGE, Framing::Unprefixed, bytes)
}

/// Encodes JSON as a buffer with this root type.
///
/// # Errors
/// When the JSON does not match the type, or is larger than [`MAX_BYTES`]. The error names the
/// member.
pub fn encode_as(root: RootType, framing: Framing, json: &[u8]) -> Result<Vec<u8>, EncodeError> {
    if json.len() > MAX_BYTES {
        return Err(EncodeError::TooLarge { bytes: json.len() });
    }
    let malformed = |detail: String| EncodeError::Malformed(detail);
    let text = std::str::from_utf8(json)
        .map_err(|error| malformed(format!("not UTF-8 at byte {}", error.valid_up_to())))?;
    if nesting::is_too_deep(json) {
        return Err(EncodeError::TooDeep);
    }
    let raw: &RawValue =
        serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
    let node = if std::ptr::eq(root.0, &schema::MESSAGE) {
        message::encode(raw.get())?
    } else {
        from_json::encode(root.0, raw.get(), &mut root.name().to_owned())?
    };
    match framing {
        Framing::Unprefixed => writer::write(&node, 0),
        Framing::SizePrefixed => {
            let buffer = writer::write(&node, SIZE_BYTES)?;
            let size = u32::try_from(buffer.len()).map_err(|_| EncodeError::TooLarge {
                bytes: buffer.len(),
            })?;
            Ok([size.to_le_bytes().as_slice(), &buffer].concat())
        }
    }
}

/// Decodes a buffer with this root type as JSON text on one line.
///
/// # Errors
/// When the buffer is damaged or has another root type. The error names the field.
pub fn decode_as(root: RootType, framing: Framing, bytes: &[u8]) -> Result<String, DecodeError> {
    let (buffer, lead) = match framing {
        Framing::Unprefixed => (bytes, 0),
        Framing::SizePrefixed => match split_first(bytes)? {
            (whole, []) => (whole.get(SIZE_BYTES..).unwrap_or_default(), SIZE_BYTES),
            (whole, _) => {
                return Err(DecodeError::Damaged {
                    path: "the stream".to_owned(),
                    at: whole.len(),
                    flaw: "more bytes follow the buffer",
                });
            }
        },
    };
    let node = reader::read(buffer, lead, root.0)?;
    let text = if std::ptr::eq(root.0, &schema::MESSAGE) {
        message::decode(&node)?
    } else {
        to_json::decode(&node, root.name())?
    };
    if nesting::is_too_deep(text.as_bytes()) {
        return Err(DecodeError::TooDeep);
    }
    Ok(text)
}

/// Splits the split_first buffer, with its size, off a stream of [`Framing::SizePrefixed`] buffers.
/// Returns it and the rest.
///
/// # Errors
/// When the stream ends within the buffer, or the size is larger than [`MAX_BYTES`].
pub fn split_first(stream: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let cut = DecodeError::Damaged {
        path: "the stream".to_owned(),
        at: stream.len(),
        flaw: "it ends within a buffer",
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
