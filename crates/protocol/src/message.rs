//! The JSON payloads of 0x06, AUTH, GOAWAY, ERROR, EVENT and VOICE frames, in both directions, and
//! pictures: the edge is the server, `switchboard device` the client. (S 3 to 6)
//!
//! Messages borrow from the payload where they can. The frame encoder escapes `#`, not this module.

mod audio;
mod auth;
mod device;
mod envelope;
pub mod nesting;
mod notice;
mod picture;
mod server;
mod voice;

pub use audio::{AudioFormat, AudioTerms, Codec, ListenMode};
pub use auth::{
    AuthAccepted, AuthRequest, ClientInfo, ResumeTicket, parse_auth_answer, write_auth_accepted,
    write_auth_refused,
};
pub use device::{DeviceMessage, DeviceResult};
pub use notice::{DeviceEvent, ErrorNotice, Goaway};
pub use picture::{MAX_PICTURE_BYTES, Picture};
pub use server::{Call, ServerMessage, write_cancel, write_result};
pub use voice::{DeviceVoice, Listen, ServerVoice, VoiceProblem, VoiceState};

use serde::Serialize;

/// Maximum bytes of an error's detail, which may quote what the peer sent.
const MAX_DETAIL_BYTES: usize = 256;

/// Why a payload is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not valid JSON; has the position.
    #[error("the payload is not valid JSON: {0}")]
    Malformed(String),
    /// The `type` is unknown in this direction.
    #[error("`{kind}` is not a message type in this direction; known are {known}")]
    Unknown {
        /// The message's call id, if it has one.
        call_id: Option<String>,
        /// The type as sent, shortened.
        kind: String,
        /// The types that are known.
        known: &'static str,
    },
    /// A known message with a member that is missing, repeated or of the wrong type.
    #[error("{detail}")]
    Invalid {
        /// The message's call id, if it could be read.
        call_id: Option<String>,
        /// What is wrong.
        detail: String,
    },
}

impl MessageError {
    /// Returns the stable name of the error.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed_json",
            Self::Unknown { .. } => "unknown_message",
            Self::Invalid { .. } => "bad_message",
        }
    }

    /// Returns the call id of the message, for the answer, if it could be read.
    #[must_use]
    pub fn call_id(&self) -> Option<&str> {
        match self {
            Self::Malformed(_) => None,
            Self::Unknown { call_id, .. } | Self::Invalid { call_id, .. } => call_id.as_deref(),
        }
    }

    fn invalid(call_id: Option<&str>, detail: &str) -> Self {
        Self::Invalid {
            call_id: call_id.map(str::to_owned),
            detail: shortened(detail),
        }
    }

    /// Converts an error of serde: bad syntax has a position, wrong data has a reason.
    fn from_json(error: &serde_json::Error, call_id: Option<String>) -> Self {
        let detail = shortened(&error.to_string());
        if error.is_data() {
            Self::Invalid { call_id, detail }
        } else {
            Self::Malformed(detail)
        }
    }
}

/// Checks that a payload is UTF-8, also in the parts that are skipped. (S 5.3)
fn utf8(payload: &[u8]) -> Result<&str, MessageError> {
    std::str::from_utf8(payload).map_err(|error| {
        let at = error.valid_up_to();
        MessageError::Malformed(format!("it is not UTF-8 at byte {at}"))
    })
}

/// The first [`MAX_DETAIL_BYTES`] of a text, split between two characters.
fn shortened(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_DETAIL_BYTES);
    match text.get(..end) {
        Some(head) if head.len() < text.len() => format!("{head}…"),
        _ => text.to_owned(),
    }
}

/// The envelope of all messages except those of our own frame types.
#[derive(Serialize)]
struct Tagged<'a, T> {
    r#type: &'a str,
    data: T,
}

fn write_tagged(out: &mut Vec<u8>, r#type: &str, data: impl Serialize) {
    write_json(out, &Tagged { r#type, data });
}

/// Appends a value that consists of strings, numbers and raw JSON only.
fn write_json(out: &mut Vec<u8>, value: &impl Serialize) {
    // Neither such a value nor a vector can fail to serialise.
    serde_json::to_writer(out, value).ok();
}
