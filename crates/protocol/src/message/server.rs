//! What the server says in a 0x06 frame: written by the edge, read by a device.
//! Never: touches the params of a call, which go through byte for byte.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    MessageError,
    envelope::{Data, Envelope, Text},
    write_tagged,
};
use crate::id::CallId;

const KNOWN: &str = "`call`, `result` and `cancel`";

/// Asks a device to run a service. (S 4.2)
#[derive(Debug, Serialize)]
pub struct Call<'a> {
    /// What the result is matched by.
    pub call_id: CallId,
    /// The service's name.
    pub method: &'a str,
    /// Its parameters, an object.
    pub params: &'a RawValue,
    /// What the device asked for in its result to the call before, an object. (ours)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<&'a RawValue>,
}

impl Call<'_> {
    /// Appends the message's JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_tagged(out, "call", self);
    }
}

#[derive(Serialize)]
struct ResultData<'a> {
    call_id: &'a str,
    result: ResultBody<'a>,
}

#[derive(Serialize)]
struct ResultBody<'a> {
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// Appends a `result`, which answers a `register` or refuses any other message: `error` says why,
/// none means success. (S 6.3)
pub fn write_result(out: &mut Vec<u8>, call_id: &str, error: Option<&str>) {
    let result = ResultBody {
        success: error.is_none(),
        error,
    };
    write_tagged(out, "result", ResultData { call_id, result });
}

/// Appends a `cancel`: whatever the call was to do, nobody waits for it any more. (ours)
pub fn write_cancel(out: &mut Vec<u8>, call_id: CallId) {
    #[derive(Serialize)]
    struct CancelData {
        call_id: CallId,
    }
    write_tagged(out, "cancel", CancelData { call_id });
}

/// What the server says, as a device reads it.
#[derive(Debug)]
pub enum ServerMessage<'a> {
    /// Run a service and answer with a `result`. (S 4.2)
    Call {
        /// To be repeated in the result.
        call_id: Cow<'a, str>,
        /// The service's name.
        method: Cow<'a, str>,
        /// Its parameters; an empty object if the message has none.
        params: &'a RawValue,
        /// What the device asked for when this was called before. (ours)
        input: Option<&'a RawValue>,
    },
    /// The answer to a `register`, or why another message was refused. (S 6.3)
    Result {
        /// The message's `call_id`, or `register`.
        call_id: Cow<'a, str>,
        /// Whether it was accepted.
        success: bool,
        /// Why not.
        error: Option<Cow<'a, str>>,
    },
    /// Nobody waits for this call any more. (ours)
    Cancel {
        /// Which call.
        call_id: Cow<'a, str>,
    },
}

impl<'a> ServerMessage<'a> {
    /// Reads the payload of a 0x06 frame from the server.
    ///
    /// # Errors
    /// When it is no JSON, of an unknown type, or has a member missing, repeated or mistyped.
    pub fn parse(payload: &'a [u8]) -> Result<Self, MessageError> {
        let mut envelope = Envelope::parse(payload)?;
        match envelope.kind()? {
            "call" => call(envelope.data),
            "result" => result(envelope.data),
            "cancel" => Ok(Self::Cancel {
                call_id: envelope.data.take_call_id("cancel")?,
            }),
            _ => Err(envelope.unknown(KNOWN)),
        }
    }
}

fn call<'a>(mut data: Data<'a>) -> Result<ServerMessage<'a>, MessageError> {
    let Some(method) = data.method.take() else {
        return Err(data.invalid("a `call` has a `method` in its `data`"));
    };
    let params = match data.params {
        Some(params) => params,
        None => serde_json::from_str("{}").map_err(|error| data.invalid(&error.to_string()))?,
    };
    let call_id = data.take_call_id("call")?;
    Ok(ServerMessage::Call {
        call_id,
        method: method.0,
        params,
        input: data.input,
    })
}

fn result<'a>(mut data: Data<'a>) -> Result<ServerMessage<'a>, MessageError> {
    #[derive(Deserialize)]
    struct Body<'a> {
        success: bool,
        #[serde(default, borrow)]
        error: Option<Text<'a>>,
    }
    let Some(raw) = data.result else {
        return Err(data.invalid("a `result` has a `result` object in its `data`"));
    };
    let body: Body<'a> = serde_json::from_str(raw.get())
        .map_err(|error| data.invalid(&format!("`result` is not as it should be: {error}")))?;
    let call_id = data.take_call_id("result")?;
    let error = body.error.map(|error| error.0);
    Ok(ServerMessage::Result {
        call_id,
        success: body.success,
        error,
    })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const ID: &str = "call_0000000000000000000000000000abcd";

    fn call_id() -> CallId {
        CallId::from_uuid(Uuid::from_u128(0xabcd))
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn messages_are_written_as_the_supplement_has_them() {
        let params = serde_json::from_str(r###"{ "a" : "##END 坏" }"###).unwrap();
        let call = Call {
            call_id: call_id(),
            method: "say \"hi\"",
            params,
            input: None,
        };
        assert_eq!(
            written(|out| call.write(out)),
            format!(
                r###"{{"type":"call","data":{{"call_id":"{ID}","method":"say \"hi\"","params":{{ "a" : "##END 坏" }}}}}}"###
            ),
        );
        assert_eq!(
            written(|out| write_result(out, "register", None)),
            r#"{"type":"result","data":{"call_id":"register","result":{"success":true}}}"#,
        );
        assert_eq!(
            written(|out| write_result(out, "r1", Some("no"))),
            r#"{"type":"result","data":{"call_id":"r1","result":{"success":false,"error":"no"}}}"#,
        );
        assert_eq!(
            written(|out| write_cancel(out, call_id())),
            format!(r#"{{"type":"cancel","data":{{"call_id":"{ID}"}}}}"#),
        );
    }

    #[test]
    fn a_device_reads_what_the_server_writes() {
        let params: &RawValue = serde_json::from_str("{}").unwrap();
        let json = written(|out| {
            Call {
                call_id: call_id(),
                method: "时间",
                params,
                input: Some(params),
            }
            .write(out)
        });
        let Ok(ServerMessage::Call {
            call_id,
            method,
            params,
            input,
        }) = ServerMessage::parse(json.as_bytes())
        else {
            panic!("{json}");
        };
        assert_eq!((&*call_id, &*method, params.get()), (ID, "时间", "{}"));
        assert_eq!(input.map(RawValue::get), Some("{}"));

        let json = written(|out| write_result(out, "r1", Some("no")));
        let Ok(ServerMessage::Result {
            call_id,
            success,
            error,
        }) = ServerMessage::parse(json.as_bytes())
        else {
            panic!("{json}");
        };
        assert_eq!(
            (&*call_id, success, error.as_deref()),
            ("r1", false, Some("no"))
        );
    }

    #[test]
    fn params_may_be_absent() {
        let json = br#"{"type":"call","data":{"call_id":"c","method":"m"}}"#;
        let Ok(ServerMessage::Call { params, .. }) = ServerMessage::parse(json) else {
            panic!("a call without params is a call");
        };
        assert_eq!(params.get(), "{}");
    }

    #[test]
    fn a_device_message_is_not_the_servers() {
        let error =
            ServerMessage::parse(br#"{"type":"register","data":{"services":{}}}"#).unwrap_err();
        assert_eq!(error.code(), "unknown_message");
    }
}
