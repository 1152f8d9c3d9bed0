//! How a message is written over HTTP: as JSON, or as FlatBuffers where a client asks for it by content type.
//! Never: a message's meaning; both say the same.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
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
    /// # Errors
    /// 415, when the body is declared as neither of the two.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let request = match essences(headers, &header::CONTENT_TYPE).next() {
            Some(kind) if kind.eq_ignore_ascii_case(flat::CONTENT_TYPE) => Form::Flat,
            Some(kind) if kind.eq_ignore_ascii_case("application/json") => Form::Json,
            _ => return Err(unsupported()),
        };
        let accepts = |wanted: &str| {
            essences(headers, &header::ACCEPT).any(|kind| kind.eq_ignore_ascii_case(wanted))
        };
        Ok(Self {
            request,
            answer: if accepts(flat::CONTENT_TYPE) {
                Form::Flat
            } else {
                Form::Json
            },
            streams: accepts("text/event-stream"),
        })
    }

    /// Whether notifications can come before the answer: FlatBuffers are one message, and a stream is JSON.
    pub(super) fn can_stream(self) -> bool {
        self.streams || self.answer == Form::Json
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

    /// The answer as the client wants it. A stream stays one: there is none unless the client reads it.
    pub(super) async fn write(self, response: Response) -> Result<Response, Problem> {
        if self.answer == Form::Json {
            return Ok(response);
        }
        let kind = response.headers().get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("application/json") {
            return Ok(response);
        }
        let (mut head, body) = response.into_parts();
        let body = body.collect().await.map_err(|_| internal())?.to_bytes();
        let encoded = flat::encode(&body).map_err(|error| {
            tracing::error!(%error, "an answer could not be written as FlatBuffers");
            internal()
        })?;
        head.headers.remove(header::CONTENT_LENGTH);
        let kind = HeaderValue::from_static(flat::CONTENT_TYPE);
        head.headers.insert(header::CONTENT_TYPE, kind);
        Ok(Response::from_parts(head, Body::from(encoded)))
    }
}

/// The media types in a header, without their parameters.
fn essences<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let values = headers.get_all(name).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let kinds = texts.flat_map(|text| text.split(','));
    kinds.map(|kind| kind.split(';').next().unwrap_or_default().trim())
}

fn unsupported() -> Problem {
    Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        "Unsupported media type",
        format!(
            "A message is sent with Content-Type: application/json, or {}.",
            flat::CONTENT_TYPE
        ),
    )
}

/// The answer to a buffer that is none.
pub(super) fn unreadable(error: &flat::DecodeError) -> Response {
    refusal(
        StatusCode::BAD_REQUEST,
        ErrorCode::PARSE_ERROR,
        &error.to_string(),
        &Value::Null,
    )
}

/// The answer to a body that is no message of the protocol. (JSON-RPC 2.0, section 5.1.)
pub(super) fn no_message(body: &[u8]) -> Response {
    match serde_json::from_slice::<Value>(body) {
        Err(error) => refusal(
            StatusCode::BAD_REQUEST,
            ErrorCode::PARSE_ERROR,
            &format!("this is not JSON: {error}"),
            &Value::Null,
        ),
        Ok(message) => {
            let id = match &message["id"] {
                id @ (Value::String(_) | Value::Number(_)) => id.clone(),
                _ => Value::Null,
            };
            refusal(
                StatusCode::BAD_REQUEST,
                ErrorCode::INVALID_REQUEST,
                fault_of(&message),
                &id,
            )
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

/// An error of JSON-RPC, made before the request came to the protocol's implementation.
pub(super) fn refusal(status: StatusCode, code: ErrorCode, detail: &str, id: &Value) -> Response {
    let message = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": detail}});
    (status, axum::Json(message)).into_response()
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
    fn media_types_are_told_by_their_essence() {
        fn check(content_type: &str, accept: &str, expect: Option<(Form, Form, bool)>) {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, content_type.parse().unwrap());
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            let encoding = Encoding::of(&headers).ok();
            let found = encoding.map(|found| (found.request, found.answer, found.can_stream()));
            assert_eq!(found, expect, "{content_type} {accept}");
        }
        let flat = flat::CONTENT_TYPE;
        check(
            "application/JSON; charset=utf-8",
            "*/*",
            Some((Form::Json, Form::Json, true)),
        );
        check(flat, flat, Some((Form::Flat, Form::Flat, false)));
        let both = format!("text/event-stream, {flat};q=1");
        check(
            "application/json",
            &both,
            Some((Form::Json, Form::Flat, true)),
        );
        check("text/plain", "*/*", None);
        check("", "*/*", None);
        check(&format!("{flat}2"), "*/*", None);
        assert!(Encoding::of(&HeaderMap::new()).is_err());
    }
}
