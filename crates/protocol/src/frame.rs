//! Frames as they stand on the wire: `##START type task seq payload ##END` (supplement 2.2).
//! Never: a buffer of its own, and no meaning of a payload beyond where it ends.

use std::fmt;

mod decoder;
mod encoder;

pub use decoder::Decoder;
pub use encoder::{StreamTooLong, encode, encode_stream};

/// What every frame begins with.
pub const START: &[u8] = b"##START";
/// What every frame ends with; there is no length, so no payload may contain it.
pub const END: &[u8] = b"##END";
/// The highest sequence number that four digits can say.
pub const MAX_SEQ: u16 = 9999;

/// What a frame carries; the byte after `##START`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The last frame of a task; its payload is empty. (S)
    End = 0x03,
    /// UTF-8 text, either direction. (S)
    Text = 0x04,
    /// A Model Control Protocol message: one JSON object. (S)
    Control = 0x06,
    /// Who the device is and the answer to it; JSON. (ours)
    Auth = 0x10,
    /// Asks the other side to echo the payload. (ours)
    Ping = 0x11,
    /// The echo of a ping's payload. (ours)
    Pong = 0x12,
    /// Reconnect elsewhere, server to device; JSON. (ours)
    Goaway = 0x13,
    /// The last word before the server closes; JSON. (ours)
    Error = 0x14,
    /// A chunk of binary audio, either direction. (ours)
    Audio = 0x15,
    /// The task id names what to stop. (ours)
    Cancel = 0x16,
    /// Something happened on the device; JSON. (ours)
    Event = 0x17,
}

impl Kind {
    /// All kinds, in the order of their bytes.
    pub const ALL: [Self; 11] = [
        Self::End,
        Self::Text,
        Self::Control,
        Self::Auth,
        Self::Ping,
        Self::Pong,
        Self::Goaway,
        Self::Error,
        Self::Audio,
        Self::Cancel,
        Self::Event,
    ];

    /// The byte on the wire.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// The kind behind a byte, if there is one.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0x03 => Self::End,
            0x04 => Self::Text,
            0x06 => Self::Control,
            0x10 => Self::Auth,
            0x11 => Self::Ping,
            0x12 => Self::Pong,
            0x13 => Self::Goaway,
            0x14 => Self::Error,
            0x15 => Self::Audio,
            0x16 => Self::Cancel,
            0x17 => Self::Event,
            _ => return None,
        })
    }

    /// Whether the payload is JSON, in which a delimiter can be escaped.
    #[must_use]
    pub const fn is_json(self) -> bool {
        match self {
            Self::Control | Self::Auth | Self::Goaway | Self::Error | Self::Event => true,
            Self::End | Self::Text | Self::Ping | Self::Pong | Self::Audio | Self::Cancel => false,
        }
    }
}

/// The eight bytes that name a task, padded with spaces; any bytes are taken as they are. (S 2.3)
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TaskId(pub [u8; 8]);

impl TaskId {
    /// The task id that the supplement recommends for its messages.
    pub const MCP: Self = Self(*b"mcp00001");
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.trim_ascii_end().escape_ascii())
    }
}

/// How the sequence number of a 0x06 frame is written; the supplement prints both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spelling {
    /// `0042`
    #[default]
    Plain,
    /// `[0042]`
    Bracketed,
}

/// A decoded frame, borrowing its payload from the buffer it was found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it carries.
    pub kind: Kind,
    /// The task it belongs to.
    pub task: TaskId,
    /// Its place in the task, `0..=9999`.
    pub seq: u16,
    /// How the place was written; plain unless the kind is `Control`.
    pub spelling: Spelling,
    /// Everything between the header and `##END`.
    pub payload: &'a [u8],
}

/// Why the bytes on a connection are no frame. There is no way back into step from here:
/// TCP does not corrupt, so garbage is a bug or an attack, and the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Something other than white space stands where a frame should begin.
    #[error("a frame begins with `##START`, and only white space may stand between frames")]
    Garbage,
    /// The byte after `##START` is no kind of frame.
    #[error("0x{0:02x} is no frame type; known are 0x03, 0x04, 0x06 and 0x10 to 0x17")]
    UnknownKind(u8),
    /// The sequence number is not four digits, nor four digits in brackets on a 0x06 frame.
    #[error("a sequence number is four digits, like `0042`, or on a 0x06 frame `[0042]`")]
    BadSeq,
    /// The frame does not end within the limit.
    #[error("a frame is at most {limit_bytes} bytes here, `##START` and `##END` included")]
    TooLong {
        /// The limit that was in force.
        limit_bytes: usize,
    },
}

impl FrameError {
    /// What [`Self::code`] may answer.
    pub const CODES: [&str; 4] = ["bad_start", "bad_type", "bad_seq", "frame_too_long"];

    /// The stable name for the ERROR frame and the metric.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Garbage => "bad_start",
            Self::UnknownKind(_) => "bad_type",
            Self::BadSeq => "bad_seq",
            Self::TooLong { .. } => "frame_too_long",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_round_trip() {
        for byte in 0..=u8::MAX {
            let listed = Kind::ALL.into_iter().find(|kind| kind.byte() == byte);
            assert_eq!(Kind::from_byte(byte), listed, "{byte:#04x}");
        }
    }

    #[test]
    fn task_ids_print_on_one_line() {
        assert_eq!(TaskId::MCP.to_string(), "mcp00001");
        assert_eq!(TaskId(*b"chat    ").to_string(), "chat");
        assert_eq!(TaskId(*b"a\n\xff     ").to_string(), "a\\n\\xff");
    }
}
