//! The encoding of messages over HTTP: JSON, or FlatBuffers if the client selects it.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt as _;
use rmcp::model::ErrorCode;
use serde_json::{Value, json};
use switchboard_mcp_flatbuffers as flat;
use switchboard_runtime::problem::{Problem, ProblemKind, internal};

use crate::media_types;

/// The media types that rmcp requires a client to accept.
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The encodings of a request and of its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mcp) struct Encoding {
    request: Format,
    response: Format,
    /// Whether the client reads a stream of JSON messages.
    streams: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Flat,
}

impl Encoding {
    /// # Errors
    /// 415 if the content type is neither of the two.
    pub(super) fn negotiate(headers: &HeaderMap) -> Result<Self, Problem> {
        let request = match media_types(headers, &header::CONTENT_TYPE).next() {
            Some(kind) if kind.eq_ignore_ascii_case(flat::CONTENT_TYPE) => Format::Flat,
            Some(kind) if kind.eq_ignore_ascii_case("application/json") => Format::Json,
            _ => return Err(unsupported()),
        };
        let accepts = |wanted: &str| {
            media_types(headers, &header::ACCEPT).any(|kind| kind.eq_ignore_ascii_case(wanted))
        };
        Ok(Self {
            request,
            response: if accepts(flat::CONTENT_TYPE) {
                Format::Flat
            } else {
                Format::Json
            },
            streams: accepts("text/event-stream"),
        })
    }

    /// Whether notifications can precede the response. FlatBuffers carry one message; a stream
    /// carries JSON.
    pub(in crate::mcp) fn can_stream(self) -> bool {
        self.streams || self.response == Format::Json
    }

    /// Converts a request's message and its headers to JSON.
    ///
    /// # Errors
    /// If the body is not a valid message; respond with [`undecodable`].
    pub(super) fn decode(
        self,
        headers: &mut HeaderMap,
        body: Bytes,
    ) -> Result<Bytes, flat::DecodeError> {
        if self.response == Format::Flat {
            headers.insert(header::ACCEPT, BOTH);
        }
        if self.request == Format::Json {
            return Ok(body);
        }
        headers.insert(header::CONTENT_TYPE, JSON);
        headers.remove(header::CONTENT_LENGTH);
        flat::decode_text(&body).map(Bytes::from)
    }

    /// Converts a JSON response to the client's encoding. A stream is not converted.
    pub(super) async fn encode(self, response: Response) -> Result<Response, Problem> {
        if self.response == Format::Json {
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
            tracing::error!(%error, "a response could not be encoded as FlatBuffers");
            internal()
        })?;
        head.headers.remove(header::CONTENT_LENGTH);
        let kind = HeaderValue::from_static(flat::CONTENT_TYPE);
        head.headers.insert(header::CONTENT_TYPE, kind);
        Ok(Response::from_parts(head, Body::from(encoded)))
    }
}

fn unsupported() -> Problem {
    Problem::new(
        ProblemKind::UnsupportedMediaType,
        format!(
            "The Content-Type of a message must be application/json or {}.",
            flat::CONTENT_TYPE
        ),
    )
}

/// The response to a body that is not a valid FlatBuffers message.
pub(super) fn undecodable(error: &flat::DecodeError) -> Response {
    refusal(
        StatusCode::BAD_REQUEST,
        ErrorCode::PARSE_ERROR,
        &error.to_string(),
        &Value::Null,
    )
}

/// The response to a body that is not a JSON-RPC message. (JSON-RPC 2.0, section 5.1.)
pub(super) fn invalid_message(body: &[u8]) -> Response {
    match serde_json::from_slice::<Value>(body) {
        Err(error) => refusal(
            StatusCode::BAD_REQUEST,
            ErrorCode::PARSE_ERROR,
            &format!("the body is not JSON: {error}"),
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
                fault(&message),
                &id,
            )
        }
    }
}

fn fault(message: &Value) -> &'static str {
    match message {
        Value::Array(_) => "batches are not supported; send one message per request",
        Value::Object(_) if message["jsonrpc"] != "2.0" => {
            "a message must have `\"jsonrpc\": \"2.0\"`"
        }
        Value::Object(_) if !message["method"].is_string() => {
            "a request must have a `method`, a string"
        }
        Value::Object(_) => "`id` must be a string or an integer, and `params` an object",
        _ => "a message must be an object",
    }
}

/// A JSON-RPC error for a request that is not passed to rmcp.
pub(in crate::mcp) fn refusal(
    status: StatusCode,
    code: ErrorCode,
    detail: &str,
    id: &Value,
) -> Response {
    let message = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": detail}});
    (status, axum::Json(message)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_message_names_its_fault() {
        fn check(body: &str, part: &str) {
            let message: Value = serde_json::from_str(body).unwrap();
            assert!(fault(&message).contains(part), "{body}");
        }
        check("[]", "batches");
        check("7", "an object");
        check("{}", "jsonrpc");
        check(r#"{"jsonrpc":"2.0","id":1}"#, "method");
        check(r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, "id");
    }

    #[test]
    fn media_type_parameters_are_ignored() {
        fn check(content_type: &str, accept: &str, expect: Option<(Format, Format, bool)>) {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, content_type.parse().unwrap());
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            let encoding = Encoding::negotiate(&headers).ok();
            let found = encoding.map(|found| (found.request, found.response, found.can_stream()));
            assert_eq!(found, expect, "{content_type} {accept}");
        }
        let flat = flat::CONTENT_TYPE;
        check(
            "application/JSON; charset=utf-8",
            "*/*",
            Some((Format::Json, Format::Json, true)),
        );
        check(flat, flat, Some((Format::Flat, Format::Flat, false)));
        let both = format!("text/event-stream, {flat};q=1");
        check(
            "application/json",
            &both,
            Some((Format::Json, Format::Flat, true)),
        );
        check("text/plain", "*/*", None);
        check("", "*/*", None);
        check(&format!("{flat}2"), "*/*", None);
        assert!(Encoding::negotiate(&HeaderMap::new()).is_err());
    }
}
