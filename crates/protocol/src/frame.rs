//! Frames on the wire: `##START type task seq payload ##END` (S 2.2).

use std::fmt;

mod decoder;
mod encoder;

pub use decoder::Decoder;
pub use encoder::{StreamTooLong, encode, encode_stream, next_seq};

/// The first bytes of every frame.
pub const START: &[u8] = b"##START";
/// The last bytes of every frame. There is no length field, so no payload may contain them.
pub const END: &[u8] = b"##END";
/// The largest sequence number: four digits.
pub const MAX_SEQ: u16 = 9999;

/// The frame type: the byte after `##START`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The last frame of a task's message; its payload is empty. (S 7.1)
    End = 0x03,
    /// UTF-8 text, in either direction. (S 7.1)
    Text = 0x04,
    /// A Model Control Protocol message: one JSON object. (S 2)
    Control = 0x06,
    /// The device's access token, and the answer to it; JSON. (ours)
    Auth = 0x10,
    /// Requests a PONG with the same payload. (ours)
    Ping = 0x11,
    /// The answer to a PING. (ours)
    Pong = 0x12,
    /// The server asks the device to reconnect elsewhere; JSON. (ours)
    Goaway = 0x13,
    /// The reason why the server closes the connection; JSON. (ours)
    Error = 0x14,
    /// A chunk of binary audio, in either direction. (ours)
    Audio = 0x15,
    /// Cancels the work on the task. (ours)
    Cancel = 0x16,
    /// An event on the device; JSON. (ours)
    Event = 0x17,
    /// The course of a spoken conversation, in either direction; JSON. (ours)
    Voice = 0x18,
    /// A part of the picture of a message, or of the id of an uploaded one. (ours)
    Picture = 0x19,
}

impl Kind {
    /// All kinds, in the order of their bytes.
    pub const ALL: [Self; 13] = [
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
        Self::Voice,
        Self::Picture,
    ];

    /// Returns the byte on the wire.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// Returns the kind of a byte, if there is one.
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
            0x18 => Self::Voice,
            0x19 => Self::Picture,
            _ => return None,
        })
    }

    /// Returns true when the payload is JSON, in which a delimiter can be escaped.
    #[must_use]
    pub const fn is_json(self) -> bool {
        match self {
            Self::Control | Self::Auth | Self::Goaway | Self::Error | Self::Event | Self::Voice => {
                true
            }
            Self::End
            | Self::Text
            | Self::Ping
            | Self::Pong
            | Self::Audio
            | Self::Cancel
            | Self::Picture => false,
        }
    }
}

/// The eight bytes that name a task, padded with spaces. Any bytes are valid. (S 2.3)
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TaskId(pub [u8; 8]);

impl TaskId {
    /// The task id that the supplement recommends for control messages. (S 2.3)
    pub const MCP: Self = Self(*b"mcp00001");
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.trim_ascii_end().escape_ascii())
    }
}

/// How the sequence number of a 0x06 frame is written. The supplement prints both formats. (ours)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SeqFormat {
    /// `0042`
    #[default]
    Plain,
    /// `[0042]`
    Bracketed,
}

/// A decoded frame. Its payload borrows from the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The frame type.
    pub kind: Kind,
    /// The task it belongs to.
    pub task: TaskId,
    /// The sequence number within the task, `0..=9999`. That of audio continues at 0 after 9999.
    pub seq: u16,
    /// The format of the sequence number; plain unless the kind is `Control`.
    pub seq_format: SeqFormat,
    /// The bytes between the header and `##END`.
    pub payload: &'a [u8],
}

/// Why the received bytes are not a frame. There is no resynchronisation: TCP does not corrupt, so
/// garbage is a bug or an attack, and the connection closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Something other than white space precedes a frame.
    #[error("a frame begins with `##START`, and only white space may be between frames")]
    Garbage,
    /// The byte after `##START` is not a frame type.
    #[error("0x{0:02x} is no frame type; known are 0x03, 0x04, 0x06 and 0x10 to 0x19")]
    UnknownKind(u8),
    /// The sequence number is not four digits, and not four digits in brackets on a 0x06 frame.
    #[error("a sequence number is four digits, like `0042`, or on a 0x06 frame `[0042]`")]
    BadSeq,
    /// The frame does not end within the limit.
    #[error("a frame is at most {limit_bytes} bytes here, `##START` and `##END` included")]
    TooLong {
        /// The limit in bytes.
        limit_bytes: usize,
    },
}

impl FrameError {
    /// All values of [`Self::code`].
    pub const CODES: [&str; 4] = ["bad_start", "bad_type", "bad_seq", "frame_too_long"];

    /// Returns the stable name for the ERROR frame and the metric.
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
    fn kind_bytes_round_trip() {
        for byte in 0..=u8::MAX {
            let listed = Kind::ALL.into_iter().find(|kind| kind.byte() == byte);
            assert_eq!(Kind::from_byte(byte), listed, "{byte:#04x}");
        }
    }

    #[test]
    fn task_id_display_is_one_line() {
        assert_eq!(TaskId::MCP.to_string(), "mcp00001");
        assert_eq!(TaskId(*b"chat    ").to_string(), "chat");
        assert_eq!(TaskId(*b"a\n\xff     ").to_string(), "a\\n\\xff");
    }
}
