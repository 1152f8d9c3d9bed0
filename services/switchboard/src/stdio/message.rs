//! JSON-RPC 2.0 messages, one per line.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

/// Id of a request: a string or a number, unmodified.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub(super) struct Id(Value);

/// Error codes of JSON-RPC, and the one for overload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    ParseError = -32_700,
    InvalidRequest = -32_600,
    MethodNotFound = -32_601,
    InvalidParams = -32_602,
    InternalError = -32_603,
    Overloaded = -32_000,
}

/// A message from the client.
#[derive(Debug)]
pub(super) enum Message {
    Request(Request),
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
    /// A response; ignored, because this server sends no requests.
    Response,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: Id,
    pub(super) method: String,
    pub(super) params: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Members {
    jsonrpc: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    id: Option<Value>,
    method: Option<Value>,
    params: Option<Box<RawValue>>,
    result: Option<Box<RawValue>>,
    error: Option<Box<RawValue>>,
}

impl Request {
    /// Returns whether the request may reach a device.
    pub(super) fn is_call(&self) -> bool {
        self.method == "tools/call"
    }
}

impl Members {
    fn is_response(&self) -> bool {
        let ended = self.result.is_some() || self.error.is_some();
        self.is_current() && self.method.is_none() && ended
    }

    fn is_current(&self) -> bool {
        self.jsonrpc
            .as_ref()
            .is_some_and(|version| version == "2.0")
    }
}

/// Deserialises `null` as a present value.
fn present<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(source).map(Some)
}

/// Parses a line.
///
/// # Errors
/// The error response for an invalid message.
pub(super) fn read(line: &[u8]) -> Result<Message, String> {
    let raw: &RawValue = serde_json::from_slice(line)
        .map_err(|error| refusal(None, Code::ParseError, &format!("Parse error: {error}")))?;
    let members: Members = serde_json::from_str(raw.get()).map_err(|_| {
        let detail = "Invalid Request: a message must be one object; batches are not supported";
        refusal(None, Code::InvalidRequest, detail)
    })?;
    // Responses are never answered: two peers would exchange errors endlessly.
    if members.is_response() {
        return Ok(Message::Response);
    }
    let is_current = members.is_current();
    let id = match members.id {
        None => None,
        Some(id @ (Value::String(_) | Value::Number(_))) => Some(Id(id)),
        Some(_) => {
            let detail = "Invalid Request: `id` must be a string or a number";
            return Err(refusal(None, Code::InvalidRequest, detail));
        }
    };
    let invalid = |detail: &str| {
        refusal(
            id.as_ref(),
            Code::InvalidRequest,
            &format!("Invalid Request: {detail}"),
        )
    };
    if !is_current {
        return Err(invalid("`jsonrpc` must be \"2.0\""));
    }
    let method = match members.method {
        Some(Value::String(method)) => method,
        _ => return Err(invalid("`method` must be a string")),
    };
    let params = members.params;
    if params
        .as_ref()
        .is_some_and(|params| !params.get().starts_with('{'))
    {
        let detail = "Invalid params: `params` must be an object";
        return Err(refusal(id.as_ref(), Code::InvalidParams, detail));
    }
    Ok(match id {
        Some(id) => Message::Request(Request { id, method, params }),
        None => Message::Notification { method, params },
    })
}

/// Formats an error response.
pub(super) fn refusal(id: Option<&Id>, code: Code, detail: &str) -> String {
    refusal_with(id, code, detail, None)
}

pub(super) fn refusal_with(
    id: Option<&Id>,
    code: Code,
    detail: &str,
    data: Option<Value>,
) -> String {
    let mut error = json!({"code": code as i32, "message": detail});
    if let (Some(data), Some(members)) = (data, error.as_object_mut()) {
        members.insert("data".to_owned(), data);
    }
    json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()
}

/// Formats a result response.
pub(super) fn success(id: &Id, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

/// Replaces line breaks, which JSON allows between tokens only.
pub(super) fn to_single_line(message: &str) -> String {
    message.replace(['\r', '\n'], " ")
}

/// Returns whether a message of the gateway is a notification or a request.
pub(super) fn is_notification(message: &str) -> bool {
    serde_json::from_str::<Members>(message).is_ok_and(|members| members.method.is_some())
}

impl Id {
    /// Returns a message as the response to the request with this id, `None` if it is not one. An
    /// error without an id was produced before the gateway parsed the id; it gets this id.
    pub(super) fn response_line(&self, message: &str) -> Option<String> {
        let members: Members = serde_json::from_str(message).ok()?;
        if !members.is_response() {
            return None;
        }
        match members.id {
            Some(id) if id == self.0 => Some(to_single_line(message)),
            None | Some(Value::Null) => {
                let error = members.error?;
                Some(json!({"jsonrpc": "2.0", "id": self, "error": error}).to_string())
            }
            Some(_) => None,
        }
    }

    /// Returns the id in `notifications/cancelled`.
    pub(super) fn cancelled(params: Option<&RawValue>) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Cancelled {
            request_id: Value,
        }
        let cancelled: Cancelled = serde_json::from_str(params?.get()).ok()?;
        Some(Self(cancelled.request_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_line_gets_its_error_code() {
        fn check(line: &str, id: Value, code: Code) {
            let answer = read(line.as_bytes()).unwrap_err();
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(
                (&answer["id"], &answer["error"]["code"]),
                (&id, &json!(code as i32)),
                "{line}"
            );
        }
        check("{", Value::Null, Code::ParseError);
        check("\u{7}", Value::Null, Code::ParseError);
        check("[]", Value::Null, Code::InvalidRequest);
        check("7", Value::Null, Code::InvalidRequest);
        check("{}", Value::Null, Code::InvalidRequest);
        check(
            r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
            json!(1),
            Code::InvalidRequest,
        );
        check(
            r#"{"jsonrpc":"2.0","id":"a"}"#,
            json!("a"),
            Code::InvalidRequest,
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
            json!(1),
            Code::InvalidRequest,
        );
        check(
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            Value::Null,
            Code::InvalidRequest,
        );
        check(
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            Value::Null,
            Code::InvalidRequest,
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#,
            json!(1),
            Code::InvalidParams,
        );
        assert!(read(b"\xff").is_err());
    }

    #[test]
    fn message_kinds_are_recognised() {
        fn check(line: &str, is: impl Fn(&Message) -> bool) {
            let message = read(line.as_bytes()).unwrap();
            assert!(is(&message), "{line}: {message:?}");
        }
        check(r#"{"jsonrpc":"2.0","id":"1","method":"ping"}"#, |m| {
            matches!(m, Message::Request(_))
        });
        check(r#"{"jsonrpc":"2.0","method":"x","params":{}}"#, |m| {
            matches!(m, Message::Notification { .. })
        });
        for id in ["1", "null"] {
            for end in [r#""result":{}"#, r#""error":{"code":-32600,"message":"m"}"#] {
                let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},{end}}}"#);
                check(&answer, |m| matches!(m, Message::Response));
            }
        }
    }

    #[test]
    fn gateway_response_gets_the_id_of_its_request() {
        fn check(message: &str, expect: Option<Value>) {
            let answer = Id(json!("a")).response_line(message);
            let answer = answer.map(|line| serde_json::from_str::<Value>(&line).unwrap());
            assert_eq!(answer, expect, "{message}");
        }
        let error = json!({"code": -32600, "message": "m"});
        let refused = json!({"jsonrpc": "2.0", "id": "a", "error": error});
        check(
            "{\"jsonrpc\":\"2.0\",\n\"id\":\"a\",\"result\":{}}",
            Some(json!({"jsonrpc": "2.0", "id": "a", "result": {}})),
        );
        check(&refused.to_string(), Some(refused.clone()));
        let without_id = json!({"jsonrpc": "2.0", "id": null, "error": error});
        check(&without_id.to_string(), Some(refused.clone()));
        let bare = json!({"jsonrpc": "2.0", "error": error});
        check(&bare.to_string(), Some(refused));
        check(r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, None);
        check(r#"{"jsonrpc":"2.0","id":"b","result":{}}"#, None);
        check(r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#, None);
        check(r#"{"id":"a","result":{}}"#, None);
        check("[]", None);
    }
}
