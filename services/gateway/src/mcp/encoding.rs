//! How a message is written over HTTP: as JSON, or as FlatBuffers where a client asks for it by content type.
//! Never: a message's meaning; both say the same.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt as _;
use rmcp::model::ErrorCode;
use serde_json::{Value, json};
use switchboard_protocol::mcp::flat;
use switchboard_runtime::problem::{Problem, internal};

/// What the protocol's implementation insists on being accepted.
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// What one request is written in, and what its answer is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Encoding {
    request: Form,
    answer: Form,
    /// Whether the client reads a stream of JSON messages.
    streams: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Flat,
}

impl Encoding {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let form = |name| {
            let values = headers.get_all(name).iter();
            let mut texts = values.filter_map(|value| value.to_str().ok());
            if texts.any(|text| text.contains(flat::CONTENT_TYPE)) {
                Form::Flat
            } else {
                Form::Json
            }
        };
        let mut accepted = headers.get_all(header::ACCEPT).iter();
        Self {
            request: form(header::CONTENT_TYPE),
            answer: form(header::ACCEPT),
            streams: accepted.any(|value| {
                let text = value.to_str().unwrap_or_default();
                text.contains("text/event-stream")
            }),
        }
    }

    /// The request's message as JSON, under headers that say so.
    ///
    /// # Errors
    /// When it is no such message; [`unreadable`] is the answer.
    pub(super) fn read(
        self,
        headers: &mut HeaderMap,
        body: Bytes,
    ) -> Result<Bytes, flat::DecodeError> {
        if self.answer == Form::Flat {
            headers.insert(header::ACCEPT, BOTH);
        }
        if self.request == Form::Json {
            return Ok(body);
        }
        headers.insert(header::CONTENT_TYPE, JSON);
        headers.remove(header::CONTENT_LENGTH);
        flat::decode_text(&body).map(Bytes::from)
    }

    /// The answer as the client wants it.
    pub(super) async fn write(self, response: Response) -> Result<Response, Problem> {
        if self.answer == Form::Json {
            return Ok(response);
        }
        let kind = response.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_stream = kind.starts_with("text/event-stream");
        if (is_stream && self.streams) || !(is_stream || kind.starts_with("application/json")) {
            return Ok(response);
        }
        let (mut head, body) = response.into_parts();
        let body = body.collect().await.map_err(|_| internal())?.to_bytes();
        let json = if is_stream { last_event(&body) } else { &body };
        let encoded = flat::encode(json).map_err(|error| {
            tracing::error!(%error, "an answer could not be written as FlatBuffers");
            internal()
        })?;
        head.headers.remove(header::CONTENT_LENGTH);
        let kind = HeaderValue::from_static(flat::CONTENT_TYPE);
        head.headers.insert(header::CONTENT_TYPE, kind);
        Ok(Response::from_parts(head, Body::from(encoded)))
    }
}

/// The last message of a stream of events: the answer. What came before it needs a client that reads streams.
fn last_event(stream: &[u8]) -> &[u8] {
    let lines = stream.rsplit(|byte| *byte == b'\n');
    let mut data = lines.filter_map(|line| line.strip_prefix(b"data:"));
    data.find(|data| !data.trim_ascii().is_empty())
        .map_or(&[], <[u8]>::trim_ascii)
}

/// The answer to a buffer that is none.
pub(super) fn unreadable(error: &flat::DecodeError) -> Response {
    refusal(ErrorCode::PARSE_ERROR, &error.to_string(), &Value::Null)
}

/// The answer to a body that is no message of the protocol. (JSON-RPC 2.0, section 5.1.)
pub(super) fn no_message(body: &[u8]) -> Response {
    match serde_json::from_slice::<Value>(body) {
        Err(error) => refusal(
            ErrorCode::PARSE_ERROR,
            &format!("this is not JSON: {error}"),
            &Value::Null,
        ),
        Ok(message) => {
            let id = match &message["id"] {
                id @ (Value::String(_) | Value::Number(_)) => id.clone(),
                _ => Value::Null,
            };
            refusal(ErrorCode::INVALID_REQUEST, fault_of(&message), &id)
        }
    }
}

fn fault_of(message: &Value) -> &'static str {
    match message {
        Value::Array(_) => "batches left the protocol; send one message at a time",
        Value::Object(_) if message["jsonrpc"] != "2.0" => "a message has `\"jsonrpc\": \"2.0\"`",
        Value::Object(_) if !message["method"].is_string() => "a request has a `method`, a string",
        Value::Object(_) => "`id` is a string or an integer, and `params` an object",
        _ => "a message is an object",
    }
}

fn refusal(code: ErrorCode, detail: &str, id: &Value) -> Response {
    let message = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": detail}});
    (StatusCode::BAD_REQUEST, axum::Json(message)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_message_is_named() {
        fn check(body: &str, part: &str) {
            let message: Value = serde_json::from_str(body).unwrap();
            assert!(fault_of(&message).contains(part), "{body}");
        }
        check("[]", "batches");
        check("7", "an object");
        check("{}", "jsonrpc");
        check(r#"{"jsonrpc":"2.0","id":1}"#, "method");
        check(r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, "id");
    }

    #[test]
    fn the_answer_is_the_last_event() {
        fn check(stream: &str, last: &str) {
            assert_eq!(last_event(stream.as_bytes()), last.as_bytes());
        }
        check(
            "data: {\"a\":1}\n\nevent: message\ndata: {\"b\":2}\n\n",
            "{\"b\":2}",
        );
        check(": alive\n\n", "");
    }
}
