//! What a device says in a 0x06 frame.
//! Never: looks into services or a result's data; others do, if they need to.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    MessageError,
    envelope::{Data, Envelope, Text},
    utf8,
};

const KNOWN: &str = "`register`, `result`, `progress` and `log`";

/// A message from a device. No key stands twice in the envelope or its `data`; within `services`
/// the schema gate looks.
#[derive(Debug)]
pub enum DeviceMessage<'a> {
    /// Replaces the device's whole set of services. (S 3.2)
    Register {
        /// What the answer is matched by; `register` stands in for it if absent. (ours)
        call_id: Option<Cow<'a, str>>,
        /// The `services` object as sent.
        services: &'a RawValue,
    },
    /// How a call ended. (S 4.3)
    Result(DeviceResult<'a>),
    /// How far a call has got. (ours)
    Progress {
        /// Which call.
        call_id: Cow<'a, str>,
        /// The `data` object as sent.
        raw: &'a RawValue,
    },
    /// Something to note, with or without a call. (ours)
    Log {
        /// Which call, if any.
        call_id: Option<Cow<'a, str>>,
        /// The `data` object as sent.
        raw: &'a RawValue,
    },
}

/// A device's answer to a call; its shape is checked, its data is not looked at. (S 5.2)
#[derive(Debug)]
pub struct DeviceResult<'a> {
    /// Which call.
    pub call_id: Cow<'a, str>,
    /// What the device says of its own success.
    pub success: bool,
    /// The whole `{"success", …}` object, as sent.
    pub raw: &'a RawValue,
}

impl<'a> DeviceMessage<'a> {
    /// Reads the payload of a 0x06 frame.
    ///
    /// # Errors
    /// When it is no JSON, of an unknown type, or has a member missing, repeated or mistyped.
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
        .map_err(|error| data.invalid(&format!("`result` is not as it should be: {error}")))?;
    let call_id = data.take_call_id("result")?;
    Ok(DeviceResult {
        call_id,
        success: shape.success,
        raw,
    })
}

/// What S 5.2 fixes of a result; `data` may be anything and there may be more.
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

    /// A one-line account of what was read.
    fn account(payload: &str) -> String {
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
        let account = account(payload);
        assert!(
            account.starts_with(expect),
            "{payload}\n is {account}\nnot {expect}"
        );
    }

    #[test]
    fn messages_are_read_in_any_order_of_keys() {
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
    fn what_is_wrong_is_named_with_its_call() {
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
            check(&payload, r#"bad_message Some("c") `result` is not"#);
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
    fn a_key_that_stands_twice_is_seen() {
        fn twice(payload: &str, key: &str) {
            let error = DeviceMessage::parse(payload.as_bytes()).unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains(&format!("duplicate field `{key}`")),
                "{error}"
            );
        }
        twice(
            r#"{"type":"log","type":"register","data":{"services":{}}}"#,
            "type",
        );
        twice(
            r#"{"type":"register","data":{"services":{}},"data":{"services":{}}}"#,
            "data",
        );
        twice(
            r#"{"type":"register","data":{"services":{},"services":{}}}"#,
            "services",
        );
        twice(
            r#"{"type":"register","x":1,"\u0078":2,"data":{"services":{}}}"#,
            "x",
        );
        twice(
            r#"{"type":"register","data":{"y":1,"services":{},"y":1}}"#,
            "y",
        );
        twice(
            r#"{"type":"result","data":{"call_id":"c","result":{"success":true,"success":false}}}"#,
            "success",
        );
    }

    #[test]
    fn nesting_bombs_are_refused() {
        for open in ["[", "{\"a\":"] {
            let bomb = format!(r#"{{"type":"log","data":{{"x":{}"#, open.repeat(100_000));
            check(
                &bomb,
                "bad_message None a message is nested at most 128 deep",
            );
        }
    }

    #[test]
    fn an_explanation_stays_short() {
        let payload = format!(r#"{{"type":"log","data":"{}"}}"#, "好".repeat(10_000));
        let error = DeviceMessage::parse(payload.as_bytes()).unwrap_err();
        assert!(error.to_string().len() < 300, "{error}");
    }
}
