//! Messages of a device in 0x06 frames.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    MessageError,
    envelope::{Data, Envelope, Text},
    utf8,
};

const KNOWN: &str = "`register`, `result`, `progress` and `log`";

/// A message of a device. No key is repeated in the envelope or its `data`; [`crate::schema`]
/// checks `services`, and nothing looks into a result's `data`.
#[derive(Debug)]
pub enum DeviceMessage<'a> {
    /// Replaces all services of the device. (S 3.2)
    Register {
        /// The call id of the answer; `register` if absent. (ours)
        call_id: Option<Cow<'a, str>>,
        /// The `services` object as sent.
        services: &'a RawValue,
    },
    /// The result of a call. (S 4.3)
    Result(DeviceResult<'a>),
    /// The progress of a call. (ours)
    Progress {
        /// The call.
        call_id: Cow<'a, str>,
        /// The `data` object as sent.
        raw: &'a RawValue,
    },
    /// A log message, about a call or in general. (ours)
    Log {
        /// The call, if any.
        call_id: Option<Cow<'a, str>>,
        /// The `data` object as sent.
        raw: &'a RawValue,
    },
}

/// The result of a call. Its shape is checked, its data is passed on. (S 5.2)
#[derive(Debug)]
pub struct DeviceResult<'a> {
    /// The call.
    pub call_id: Cow<'a, str>,
    /// Whether the device succeeded.
    pub success: bool,
    /// The whole `{"success", …}` object, as sent.
    pub raw: &'a RawValue,
}

impl<'a> DeviceMessage<'a> {
    /// Parses the payload of a 0x06 frame.
    ///
    /// # Errors
    /// When it is not JSON, of an unknown type, or has a member that is missing, repeated or of the
    /// wrong type.
    pub fn parse(payload: &'a [u8]) -> Result<Self, MessageError> {
        let mut envelope = Envelope::parse(payload)?;
        match envelope.kind()? {
            "register" => Self::register(envelope.data),
            "result" => result(envelope.data).map(Self::Result),
            "progress" => Ok(Self::Progress {
                call_id: envelope.data.take_call_id("progress")?,
                raw: raw_data(payload)?,
            }),
            "log" => Ok(Self::Log {
                call_id: envelope.data.call_id.map(|id| id.0),
                raw: raw_data(payload)?,
            }),
            _ => Err(envelope.unknown(KNOWN)),
        }
    }

    fn register(data: Data<'a>) -> Result<Self, MessageError> {
        match data.services {
            Some(services) => Ok(Self::Register {
                call_id: data.call_id.map(|id| id.0),
                services,
            }),
            None => Err(data.invalid("a `register` has `services` in its `data`")),
        }
    }
}

fn result<'a>(mut data: Data<'a>) -> Result<DeviceResult<'a>, MessageError> {
    let Some(raw) = data.result else {
        return Err(data.invalid("a `result` has a `result` object in its `data`"));
    };
    let shape: ResultShape<'a> = serde_json::from_str(raw.get())
        .map_err(|error| data.invalid(&format!("the `result` is invalid: {error}")))?;
    let call_id = data.take_call_id("result")?;
    Ok(DeviceResult {
        call_id,
        success: shape.success,
        raw,
    })
}

/// The members of a result that S 5.2 defines. `data` may be anything, and there may be more.
#[derive(Deserialize)]
struct ResultShape<'a> {
    success: bool,
    #[serde(rename = "error", default, borrow)]
    _error: Option<Text<'a>>,
}

fn raw_data(payload: &[u8]) -> Result<&RawValue, MessageError> {
    #[derive(Deserialize)]
    struct Raw<'a> {
        #[serde(borrow)]
        data: &'a RawValue,
    }
    let raw: Raw<'_> = serde_json::from_str(utf8(payload)?)
        .map_err(|error| MessageError::from_json(&error, None))?;
    Ok(raw.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A one-line summary of a parsed message or its error.
    fn summary(payload: &str) -> String {
        match DeviceMessage::parse(payload.as_bytes()) {
            Ok(DeviceMessage::Register { call_id, services }) => {
                format!("register {call_id:?} {}", services.get())
            }
            Ok(DeviceMessage::Result(DeviceResult {
                call_id,
                success,
                raw,
            })) => {
                format!("result {call_id} {success} {}", raw.get())
            }
            Ok(DeviceMessage::Progress { call_id, raw }) => {
                format!("progress {call_id} {}", raw.get())
            }
            Ok(DeviceMessage::Log { call_id, raw }) => format!("log {call_id:?} {}", raw.get()),
            Err(error) => format!("{} {:?} {error}", error.code(), error.call_id()),
        }
    }

    fn check(payload: &str, expect: &str) {
        let summary = summary(payload);
        assert!(
            summary.starts_with(expect),
            "{payload}\n is {summary}\nnot {expect}"
        );
    }

    #[test]
    fn message_parses_in_any_key_order() {
        check(
            r#"{"type":"register","data":{"services":{"a":{}}}}"#,
            r#"register None {"a":{}}"#,
        );
        check(
            r#"{"data":{"services":{},"call_id":"r\u00311"},"v":1,"type":"register"}"#,
            r#"register Some("r11") {}"#,
        );
        check(
            r#"{"type":"result","data":{"call_id":"c","result":{"success":true,"data":[1],"x":{}}}}"#,
            r#"result c true {"success":true,"data":[1],"x":{}}"#,
        );
        check(
            r#"{"type":"result","data":{"call_id":"c","result":{"success":false,"error":"坏了"}}}"#,
            r#"result c false {"success":false,"error":"坏了"}"#,
        );
        check(
            r#"{"type":"progress","data":{"call_id":"c","progress":1}}"#,
            r#"progress c {"#,
        );
        check(
            r#"{"type":"log","data":{"level":"info","message":"m"}}"#,
            r#"log None {"#,
        );
    }

    #[test]
    fn invalid_message_names_the_error_and_its_call() {
        check("", "malformed_json None the payload is not valid JSON: EOF");
        check(r#"{"type":"register","data":{"#, "malformed_json None");
        check(r#"{"type":"register","data":{}} x"#, "malformed_json None");
        check(
            "[]",
            "bad_message None invalid type: sequence, expected an object",
        );
        check(
            r#"{"data":{"call_id":"c"}}"#,
            r#"bad_message Some("c") a message has a `type`"#,
        );
        check(
            r#"{"type":"call","data":{"call_id":"c"}}"#,
            r#"unknown_message Some("c") `call`"#,
        );
        check(
            r#"{"type":"register","data":{}}"#,
            "bad_message None a `register` has `services`",
        );
        check(
            r#"{"type":"result","data":{"result":{"success":true}}}"#,
            "bad_message None",
        );
        check(
            r#"{"type":"result","data":{"call_id":"c"}}"#,
            r#"bad_message Some("c")"#,
        );
        for result in [
            r#"{}"#,
            r#"{"success":1}"#,
            r#"{"success":true,"error":5}"#,
            r#"[]"#,
            "null",
        ] {
            let payload =
                format!(r#"{{"type":"result","data":{{"call_id":"c","result":{result}}}}}"#);
            check(&payload, r#"bad_message Some("c") the `result` is invalid"#);
        }
        check(
            r#"{"type":"result","data":{"call_id":7}}"#,
            "bad_message None invalid type: integer",
        );
        check(
            r#"{"type":5,"data":{"call_id":"c"}}"#,
            r#"bad_message Some("c") invalid type"#,
        );
    }

    #[test]
    fn repeated_key_is_refused() {
        fn check_repeated(payload: &str, key: &str) {
            let error = DeviceMessage::parse(payload.as_bytes()).unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains(&format!("duplicate field `{key}`")),
                "{error}"
            );
        }
        check_repeated(
            r#"{"type":"log","type":"register","data":{"services":{}}}"#,
            "type",
        );
        check_repeated(
            r#"{"type":"register","data":{"services":{}},"data":{"services":{}}}"#,
            "data",
        );
        check_repeated(
            r#"{"type":"register","data":{"services":{},"services":{}}}"#,
            "services",
        );
        check_repeated(
            r#"{"type":"register","x":1,"\u0078":2,"data":{"services":{}}}"#,
            "x",
        );
        check_repeated(
            r#"{"type":"register","data":{"y":1,"services":{},"y":1}}"#,
            "y",
        );
        check_repeated(
            r#"{"type":"result","data":{"call_id":"c","result":{"success":true,"success":false}}}"#,
            "success",
        );
    }

    #[test]
    fn deep_nesting_is_refused() {
        for open in ["[", "{\"a\":"] {
            let bomb = format!(r#"{{"type":"log","data":{{"x":{}"#, open.repeat(100_000));
            check(
                &bomb,
                "bad_message None a message is nested at most 128 deep",
            );
        }
    }

    #[test]
    fn error_detail_is_bounded() {
        let payload = format!(r#"{{"type":"log","data":"{}"}}"#, "好".repeat(10_000));
        let error = DeviceMessage::parse(payload.as_bytes()).unwrap_err();
        assert!(error.to_string().len() < 300, "{error}");
    }
}
