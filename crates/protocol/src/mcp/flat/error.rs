//! What can be wrong with a message on its way into a buffer or out of one.
//! Never: more than a short piece of the message itself.

use super::{MAX_BYTES, MAX_TABLES};
use crate::message::nesting::MAX_DEPTH;

/// Why JSON was not encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The message, or what it becomes, is larger than [`MAX_BYTES`].
    #[error("{bytes} bytes, {MAX_BYTES} at most")]
    TooLarge {
        /// The bytes it has, or has at least.
        bytes: usize,
    },
    /// More than [`MAX_TABLES`] tables.
    #[error("it becomes more than {MAX_TABLES} tables")]
    TooManyTables,
    /// Nesting that most readers of JSON refuse.
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// Not JSON, or not UTF-8; names line and column.
    #[error("this is no JSON: {0}")]
    Malformed(String),
    /// A value stands where something else belongs.
    #[error("{path} is {found}; right would be {expected}")]
    Unexpected {
        /// Where, as in `params._meta`.
        path: String,
        /// What stands there.
        found: String,
        /// What would be right.
        expected: &'static str,
    },
    /// A member that must be there is not.
    #[error("{path} is missing; right would be {expected}")]
    Missing {
        /// Where it should be.
        path: String,
        /// What it should be.
        expected: &'static str,
    },
    /// An object has two members of one name.
    #[error("{path} has `{name}` twice; right would be once")]
    Twice {
        /// Which object.
        path: String,
        /// Which name.
        name: String,
    },
    /// A member that this table has no room for.
    #[error("{path} has `{name}`, which its table cannot hold")]
    Homeless {
        /// Which object.
        path: String,
        /// Which name.
        name: String,
    },
}

/// Why a buffer was not decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The buffer is larger than [`MAX_BYTES`].
    #[error("{bytes} bytes, {MAX_BYTES} at most")]
    TooLarge {
        /// The bytes it has.
        bytes: usize,
    },
    /// The buffer is not one of this schema.
    #[error("bytes 4 to 7 are `{found}`; right would be `MCPP`, the identifier of mcp.fbs")]
    Identifier {
        /// What stands there, with unprintable bytes escaped.
        found: String,
    },
    /// An offset, a size or an alignment is wrong: this is no FlatBuffer, or it was cut or changed.
    #[error("{path}: at byte {at} {flaw}")]
    Damaged {
        /// Which field.
        path: String,
        /// The byte of the buffer.
        at: usize,
        /// What is wrong there.
        flaw: &'static str,
    },
    /// More than [`MAX_TABLES`] tables, or parts that are pointed at so often that the message
    /// would be many times larger than its buffer.
    #[error("{path}: the buffer stands for much more than it holds: parts are shared too often")]
    Inflated {
        /// Where it became too much.
        path: String,
    },
    /// A required field is missing.
    #[error("{path} is missing, and the schema requires it")]
    Missing {
        /// Which field.
        path: String,
    },
    /// A field holds a value that it cannot have in a message.
    #[error("{path} is {found}; right would be {expected}")]
    Unexpected {
        /// Which field.
        path: String,
        /// What it holds.
        found: String,
        /// What would be right.
        expected: &'static str,
    },
    /// A member stands in a field of its own and in another one too, so that readers would differ.
    #[error("{path} has `{name}`, which stands elsewhere already")]
    Twice {
        /// Which field.
        path: String,
        /// Which member.
        name: String,
    },
    /// The JSON would be nested deeper than most readers of JSON take.
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// The JSON is right, and has a number or a string that a value in memory cannot hold.
    #[error("as JSON it cannot be held in memory: {0}")]
    Unrepresentable(String),
}

/// The beginning of what was found, for an error.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 60;
    let mut shown: String = text.chars().take(MOST).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
