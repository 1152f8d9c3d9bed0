//! Messages of the server in 0x06 frames: written by the edge, parsed by a device.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::fmt::Simple;

use super::{
    MessageError,
    envelope::{Data, Envelope, Text},
    write_json, write_tagged,
};
use crate::id::CallId;

const KNOWN: &str = "`call`, `result` and `cancel`";

/// Calls a service of the device. Its params are written byte for byte as they are. (S 4.2)
#[derive(Debug)]
pub struct Call<'a> {
    /// The id that the result repeats.
    pub call_id: CallId,
    /// The service's name.
    pub method: &'a str,
    /// The parameters, an object.
    pub params: &'a RawValue,
    /// The input that the device requested in its result to the previous call, an object. (ours)
    pub input: Option<&'a RawValue>,
}

impl Call<'_> {
    /// Appends the message's JSON. Piece by piece: this is written for each call.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"type":"call","data":{"call_id":""#);
        out.extend_from_slice(CallId::PREFIX.as_bytes());
        let mut digits = [0; Simple::LENGTH];
        let simple = self.call_id.uuid().simple();
        out.extend_from_slice(simple.encode_lower(&mut digits).as_bytes());
        out.extend_from_slice(br#"","method":"#);
        write_json(out, &self.method);
        out.extend_from_slice(br#","params":"#);
        out.extend_from_slice(self.params.get().as_bytes());
        if let Some(input) = self.input {
            out.extend_from_slice(br#","input":"#);
            out.extend_from_slice(input.get().as_bytes());
        }
        out.extend_from_slice(b"}}");
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

/// Appends a `result`: the answer to a `register`, or the refusal of any other message. No `error`
/// means success. (S 6.3)
pub fn write_result(out: &mut Vec<u8>, call_id: &str, error: Option<&str>) {
    let result = ResultBody {
        success: error.is_none(),
        error,
    };
    write_tagged(out, "result", ResultData { call_id, result });
}

/// Appends a `cancel`: no caller waits for the call any longer. (ours)
pub fn write_cancel(out: &mut Vec<u8>, call_id: CallId) {
    #[derive(Serialize)]
    struct CancelData {
        call_id: CallId,
    }
    write_tagged(out, "cancel", CancelData { call_id });
}

/// A message of the server, as a device parses it.
#[derive(Debug)]
pub enum ServerMessage<'a> {
    /// Call a service and answer with a `result`. (S 4.2)
    Call {
        /// The id to repeat in the result.
        call_id: Cow<'a, str>,
        /// The service's name.
        method: Cow<'a, str>,
        /// The parameters; an empty object if the message has none.
        params: &'a RawValue,
        /// The input that the device requested in its result to the previous call. (ours)
        input: Option<&'a RawValue>,
    },
    /// The answer to a `register`, or the refusal of another message. (S 6.3)
    Result {
        /// The message's `call_id`, or `register`.
        call_id: Cow<'a, str>,
        /// Whether the message was accepted.
        success: bool,
        /// Why it was not.
        error: Option<Cow<'a, str>>,
    },
    /// No caller waits for this call any longer. (ours)
    Cancel {
        /// The call.
        call_id: Cow<'a, str>,
    },
}

impl<'a> ServerMessage<'a> {
    /// Parses the payload of a 0x06 frame from the server.
    ///
    /// # Errors
    /// When it is not JSON, of an unknown type, or has a member that is missing, repeated or of the
    /// wrong type.
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
        .map_err(|error| data.invalid(&format!("the `result` is invalid: {error}")))?;
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
    fn message_json_matches_the_supplement() {
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
    fn written_message_parses_to_the_same() {
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
    fn call_without_params_parses_to_an_empty_object() {
        let json = br#"{"type":"call","data":{"call_id":"c","method":"m"}}"#;
        let Ok(ServerMessage::Call { params, .. }) = ServerMessage::parse(json) else {
            panic!("a call without params must parse");
        };
        assert_eq!(params.get(), "{}");
    }

    #[test]
    fn device_message_is_refused_by_the_server_parser() {
        let error =
            ServerMessage::parse(br#"{"type":"register","data":{"services":{}}}"#).unwrap_err();
        assert_eq!(error.code(), "unknown_message");
    }
}
