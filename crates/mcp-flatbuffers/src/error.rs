//! Errors of encoding and decoding. Each quotes at most a short excerpt of the message.

use super::{MAX_BYTES, MAX_TABLES};
use switchboard_protocol::message::nesting::MAX_DEPTH;

/// Why JSON was not encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The message or its buffer is larger than [`MAX_BYTES`].
    #[error("{bytes} bytes, {MAX_BYTES} at most")]
    TooLarge {
        /// Its size, or a lower bound of it.
        bytes: usize,
    },
    /// More than [`MAX_TABLES`] tables.
    #[error("it becomes more than {MAX_TABLES} tables")]
    TooManyTables,
    /// Nested deeper than most JSON parsers accept.
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// Invalid JSON or UTF-8; has the line and column.
    #[error("invalid JSON: {0}")]
    Malformed(String),
    /// A value of the wrong type.
    #[error("{path} is {found}; expected {expected}")]
    Unexpected {
        /// Where, such as `params._meta`.
        path: String,
        /// The value.
        found: String,
        /// What would be right.
        expected: &'static str,
    },
    /// A required member is missing.
    #[error("{path} is missing; expected {expected}")]
    Missing {
        /// Where it should be.
        path: String,
        /// What it should be.
        expected: &'static str,
    },
    /// An object has two members of the same name.
    #[error("{path} has the member `{name}` twice")]
    Duplicate {
        /// The object.
        path: String,
        /// The name.
        name: String,
    },
    /// A member for which the table has no field.
    #[error("{path} has `{name}`, which has no field in its table")]
    NoField {
        /// The object.
        path: String,
        /// The name.
        name: String,
    },
}

/// Why a buffer was not decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The buffer is larger than [`MAX_BYTES`].
    #[error("{bytes} bytes, {MAX_BYTES} at most")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The buffer has another schema.
    #[error("bytes 4 to 7 are `{found}`; expected `MCPP`, the identifier of mcp.fbs")]
    Identifier {
        /// The identifier, with unprintable bytes escaped.
        found: String,
    },
    /// An invalid offset, size or alignment: this is not a FlatBuffer, or it was truncated or
    /// changed.
    #[error("{path}: at byte {at} {flaw}")]
    Damaged {
        /// The field.
        path: String,
        /// The byte of the buffer.
        at: usize,
        /// What is wrong there.
        flaw: &'static str,
    },
    /// More than [`MAX_TABLES`] tables, or parts that are referenced so often that the message
    /// would be many times larger than its buffer.
    #[error("{path}: the message would be much larger than its buffer: parts are shared too often")]
    Inflated {
        /// Where the limit was reached.
        path: String,
    },
    /// A required field is missing.
    #[error("{path} is missing, and the schema requires it")]
    Missing {
        /// The field.
        path: String,
    },
    /// A field has a value that is invalid in a message.
    #[error("{path} is {found}; expected {expected}")]
    Unexpected {
        /// The field.
        path: String,
        /// The value.
        found: String,
        /// What would be right.
        expected: &'static str,
    },
    /// A member is present in its own field and in another one, so two readers could differ.
    #[error("{path} has `{name}`, which is present in another field too")]
    Duplicate {
        /// The field.
        path: String,
        /// The member.
        name: String,
    },
    /// The JSON would be nested deeper than most JSON parsers accept.
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// The JSON is valid, but has a number or a string that a [`serde_json::Value`] cannot hold.
    #[error("the JSON does not fit into a value: {0}")]
    Unrepresentable(String),
}

/// The beginning of a text, for an error.
pub(crate) fn excerpt(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    let mut excerpt: String = text.chars().take(MAX_CHARS).collect();
    if excerpt.len() < text.len() {
        excerpt.push('…');
    }
    excerpt
}
