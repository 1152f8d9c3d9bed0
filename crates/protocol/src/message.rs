//! The JSON inside 0x06, AUTH, GOAWAY, ERROR and EVENT frames, in both directions: the edge is the
//! server, `switchboard device` the client. (Supplement 3 to 6.)
//! Never: copies what can be borrowed, merges a key that stands twice, escapes `#` (frames do that).

mod auth;
mod device;
mod envelope;
pub(crate) mod nesting;
mod notice;
mod server;

pub use auth::{
    AuthAccepted, AuthRequest, ClientInfo, parse_auth_answer, write_auth_accepted,
    write_auth_refused,
};
pub use device::{DeviceMessage, DeviceResult};
pub use notice::{DeviceEvent, ErrorNotice, Goaway};
pub use server::{Call, ServerMessage, write_cancel, write_result};

use serde::Serialize;

/// The most a message's explanation says, in bytes: it may quote what the other side sent.
const MAX_DETAIL_BYTES: usize = 256;

/// Why a payload is no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not JSON at all; says where it stops being so.
    #[error("the payload is not valid JSON: {0}")]
    Malformed(String),
    /// JSON with a `type` that this side of the connection does not understand.
    #[error("`{kind}` is no message type here; known are {known}")]
    Unknown {
        /// The message's call id, if it has one.
        call_id: Option<String>,
        /// The type as sent, shortened.
        kind: String,
        /// What would be right.
        known: &'static str,
    },
    /// A known message with something missing, repeated or of the wrong type.
    #[error("{detail}")]
    Invalid {
        /// The message's call id, if it could be read.
        call_id: Option<String>,
        /// What is wrong.
        detail: String,
    },
}

impl MessageError {
    /// The stable name of the error.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed_json",
            Self::Unknown { .. } => "unknown_message",
            Self::Invalid { .. } => "bad_message",
        }
    }

    /// The call id of the message, for the answer, if it could be read.
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

    /// What serde says about a payload: bad syntax has a place, the rest has a reason.
    fn from_json(error: &serde_json::Error, call_id: Option<String>) -> Self {
        let detail = shortened(&error.to_string());
        if error.is_data() {
            Self::Invalid { call_id, detail }
        } else {
            Self::Malformed(detail)
        }
    }
}

/// A payload as text: JSON is UTF-8, in the parts that are skipped as well. (S 5.3)
fn utf8(payload: &[u8]) -> Result<&str, MessageError> {
    std::str::from_utf8(payload).map_err(|error| {
        let at = error.valid_up_to();
        MessageError::Malformed(format!("it is not UTF-8 at byte {at}"))
    })
}

/// At most [`MAX_DETAIL_BYTES`] of a text, cut between two characters.
fn shortened(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_DETAIL_BYTES);
    match text.get(..end) {
        Some(head) if head.len() < text.len() => format!("{head}…"),
        _ => text.to_owned(),
    }
}

/// The envelope that all messages but those of our own frame types share.
#[derive(Serialize)]
struct Tagged<'a, T> {
    r#type: &'a str,
    data: T,
}

fn write_tagged(out: &mut Vec<u8>, r#type: &str, data: impl Serialize) {
    write_json(out, &Tagged { r#type, data });
}

/// Appends a value that is made of strings, numbers and raw JSON only.
fn write_json(out: &mut Vec<u8>, value: &impl Serialize) {
    // Neither such a value nor a vector can fail to be written.
    serde_json::to_writer(out, value).ok();
}
