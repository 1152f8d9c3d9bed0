//! Payloads of GOAWAY, ERROR and EVENT frames, none of which has an answer. (ours)

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{MessageError, utf8};

/// Maximum bytes of an event's name.
const MAX_EVENT_NAME_BYTES: usize = 128;

/// GOAWAY: the server asks the device to reconnect. (ours)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goaway {
    /// `drain`, `takeover`, `overload`, `idle`, `disconnect_requested`, or the code of the ERROR frame
    /// before.
    pub reason: String,
    /// Delay before reconnecting, in milliseconds.
    pub retry_after_ms: u32,
}

/// ERROR: why the server closes the connection. (ours)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorNotice {
    /// A stable name of the error.
    pub code: String,
    /// What was wrong, where, and what would be right.
    pub message: String,
}

/// EVENT: something happened on the device; delivered to webhooks. (ours)
#[derive(Debug, Deserialize)]
pub struct DeviceEvent<'a> {
    /// The name of the event, 1 to 128 bytes.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// More about the event, as sent.
    #[serde(default, borrow)]
    pub data: Option<&'a RawValue>,
}

impl<'a> DeviceEvent<'a> {
    /// Parses the payload of an EVENT frame.
    ///
    /// # Errors
    /// When it is not an object with a name.
    pub fn parse(payload: &'a [u8]) -> Result<Self, MessageError> {
        let event: Self = serde_json::from_str(utf8(payload)?)
            .map_err(|error| MessageError::from_json(&error, None))?;
        if (1..=MAX_EVENT_NAME_BYTES).contains(&event.name.len()) {
            return Ok(event);
        }
        let detail = format!("an event's `name` is 1 to {MAX_EVENT_NAME_BYTES} bytes");
        Err(MessageError::invalid(None, &detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_requires_a_name() {
        fn check(payload: &str, valid: bool) {
            assert_eq!(
                DeviceEvent::parse(payload.as_bytes()).is_ok(),
                valid,
                "{payload}"
            );
        }
        check(r#"{"name":"button","data":{"id":1}}"#, true);
        check(r#"{"name":"按钮"}"#, true);
        check(r#"{"name":"","data":1}"#, false);
        check(r#"{"name":5}"#, false);
        check(r#"{"name":"a","name":"b"}"#, false);
        check(r#"{"data":{}}"#, false);
        check("[]", false);
        check("", false);
        check(&format!(r#"{{"name":"{}"}}"#, "x".repeat(129)), false);
    }
}
