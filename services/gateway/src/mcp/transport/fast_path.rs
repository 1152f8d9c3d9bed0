//! The fast path of `tools/call` in the stateless revision.
//!
//! Reads the common form of the request with one pass and without rmcp. Everything else, and every
//! invalid request, is left to rmcp, which reports what is wrong.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts};
use rmcp::{
    ErrorData,
    model::{CallToolResponse, ClientCapabilities, ErrorCode, ProtocolVersion, ServerResult},
};
use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};
use serde_json::value::RawValue;
use switchboard_runtime::{http::received_at, problem::internal, rate_limit::RateLimited};
use tracing::{Instrument as _, Span};

use super::{auth::ClientContext, protocol_version::VERSION_HEADER};
use crate::{
    Gateway,
    mcp::tools::{
        call::{self, ElicitedInput, METHOD, Refusal, ToolCall},
        elicitation::without_settings,
        plain_result::PlainResult,
        resolve::ResolvedTool,
        trace::{self, CallSpan},
    },
};

const METHOD_HEADER: HeaderName = HeaderName::from_static("mcp-method");
const NAME_HEADER: HeaderName = HeaderName::from_static("mcp-name");
/// Room for most responses.
const RESPONSE_BYTES: usize = 1024;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A call whose client reads one result and no notifications.
struct Request<'a> {
    id: &'a RawValue,
    name: Cow<'a, str>,
    arguments: Bytes,
    capabilities: ClientCapabilities,
    traceparent: Option<Cow<'a, str>>,
    tracestate: Option<Cow<'a, str>>,
}

/// The members that the fast path knows. Others are left to rmcp.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: &'a RawValue,
    method: &'a str,
    params: Params<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(rename = "_meta")]
    meta: Meta<'a>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: &'a str,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: ClientCapabilities,
    /// Requests notifications.
    #[serde(rename = "io.modelcontextprotocol/logLevel")]
    log_level: Option<IgnoredAny>,
    /// Requests notifications.
    #[serde(rename = "progressToken")]
    progress_token: Option<IgnoredAny>,
    #[serde(default, borrow, deserialize_with = "text")]
    traceparent: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "text")]
    tracestate: Option<Cow<'a, str>>,
}

/// A string. Any other value is ignored.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Cow<'de, str>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Sent<'a> {
        Text(#[serde(borrow)] Cow<'a, str>),
        Other(IgnoredAny),
    }
    Ok(match Sent::deserialize(from)? {
        Sent::Text(text) => Some(text),
        Sent::Other(_) => None,
    })
}

/// A JSON-RPC response, with either a result or an error.
#[derive(Serialize)]
struct JsonRpcResponse<'a, R> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<R>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorData>,
}

/// What became of a request on the fast path.
pub(super) enum FastPath {
    /// The call was made, or refused.
    Answered(Response),
    /// The request is left to rmcp, which reports that its tool cannot be found.
    Unresolved(ErrorData),
    /// The request is left to rmcp; nothing has been done.
    NotTaken,
}

/// Makes the call and responds, or leaves the request to rmcp.
pub(super) async fn respond(
    gateway: &Gateway,
    client: &ClientContext,
    head: &Parts,
    body: &Bytes,
) -> FastPath {
    let Some(request) = Request::parse(&head.headers, body) else {
        return FastPath::NotTaken;
    };
    let target = match ResolvedTool::find(gateway, client, &request.name).await {
        Ok(target) => target,
        Err(error) => return FastPath::Unresolved(error),
    };
    if !target.tool.headers.is_empty() {
        return FastPath::NotTaken;
    }
    let call = ToolCall {
        client,
        name: &request.name,
        arguments: request.arguments.clone(),
        session: None,
        started: received_at(&head.extensions),
    };
    let (parent, state) = (
        request.traceparent.as_deref(),
        request.tracestate.as_deref(),
    );
    let span = trace::fast_path_span(&request.name, parent, state, &head.extensions);
    let performing = request.perform(gateway, target, &call);
    FastPath::Answered(performing.instrument(span).await)
}

impl<'a> Request<'a> {
    fn parse(headers: &HeaderMap, body: &'a Bytes) -> Option<Self> {
        let stateless = ProtocolVersion::V_2026_07_28;
        let known = single(headers, VERSION_HEADER)? == stateless.as_str()
            && single(headers, METHOD_HEADER)? == METHOD
            && single(headers, header::CONTENT_TYPE)? == JSON
            && accepts_both(single(headers, header::ACCEPT)?.to_str().ok()?);
        if !known {
            return None;
        }
        let Message {
            jsonrpc,
            id,
            method,
            params,
        } = serde_json::from_slice(body).ok()?;
        let Meta {
            version,
            capabilities,
            log_level,
            progress_token,
            traceparent,
            tracestate,
        } = params.meta;
        let arguments = match params.arguments {
            Some(arguments) if arguments.get().starts_with('{') => {
                body.slice_ref(arguments.get().as_bytes())
            }
            Some(_) => return None,
            None => Bytes::from_static(b"{}"),
        };
        let known = jsonrpc == "2.0"
            && method == METHOD
            && version == stateless.as_str()
            && log_level.is_none()
            && progress_token.is_none()
            && is_id(id.get())
            && single(headers, NAME_HEADER)? == &*params.name;
        known.then_some(Self {
            id,
            name: params.name,
            arguments,
            capabilities: without_settings(capabilities),
            traceparent,
            tracestate,
        })
    }

    /// Makes the call in the current span, which also records a refusal.
    async fn perform(
        &self,
        gateway: &Gateway,
        target: ResolvedTool,
        call: &ToolCall<'_>,
    ) -> Response {
        let span = CallSpan::new(&Span::current());
        let mut rate_limit = None;
        let concluded = match call::prepare(gateway, target, call, ElicitedInput::default()).await {
            Ok(prepared) => {
                let attempt = &prepared.attempt;
                let ended = attempt.perform(gateway, None).await;
                if let Some(plain) = PlainResult::new(attempt, &ended) {
                    span.succeed();
                    return self.response(StatusCode::OK, Ok(plain));
                }
                let capabilities = Some(&self.capabilities);
                call::conclude(gateway, attempt, &ended, (call, capabilities)).await
            }
            Err(Refusal::Result(result)) => Ok((*result).into()),
            Err(Refusal::RateLimited(refused)) => {
                rate_limit = Some(refused);
                Err(call::rate_limited(refused))
            }
            Err(Refusal::Error(error)) => Err(error),
        };
        span.end(&concluded);
        let response = match concluded {
            Ok(result) => self.succeeded(result),
            Err(error) => self.failed(error),
        };
        match rate_limit {
            Some(refused) => rate_limited(response, refused),
            None => response,
        }
    }

    fn succeeded(&self, result: CallToolResponse) -> Response {
        self.response(StatusCode::OK, Ok(ServerResult::from(result)))
    }

    fn failed(&self, error: ErrorData) -> Response {
        let status = match error.code {
            ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        };
        self.response(status, Err::<ServerResult, _>(error))
    }

    fn response<R: Serialize>(&self, status: StatusCode, result: Result<R, ErrorData>) -> Response {
        let (result, error) = match result {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        let message = JsonRpcResponse {
            jsonrpc: "2.0",
            id: self.id,
            result,
            error,
        };
        let mut json = Vec::with_capacity(RESPONSE_BYTES);
        match serde_json::to_writer(&mut json, &message) {
            Ok(()) => (status, [(header::CONTENT_TYPE, JSON)], json).into_response(),
            Err(error) => {
                tracing::error!(%error, "a response could not be serialised");
                internal().into_response()
            }
        }
    }
}

fn rate_limited(mut response: Response, refused: RateLimited) -> Response {
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let seconds = HeaderValue::from(refused.retry_after_s());
    response.headers_mut().insert(header::RETRY_AFTER, seconds);
    response
}

/// The value of a header that occurs exactly once.
fn single(headers: &HeaderMap, name: HeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// Whether the client accepts both media types, as the protocol demands. Weights are left to rmcp.
fn accepts_both(accept: &str) -> bool {
    let accepts = |kind: &str| accept.split(',').any(|one| one.trim() == kind);
    accepts("application/json") && accepts("text/event-stream")
}

/// Whether this JSON is a string, or an integer of at most 18 digits.
fn is_id(json: &str) -> bool {
    const MAX_DIGITS: usize = 18;
    let digits = json.strip_prefix('-').unwrap_or(json);
    let is_integer = digits.len() <= MAX_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    json.starts_with('"') || is_integer
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn headers() -> HeaderMap {
        let sent = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", METHOD),
            ("mcp-name", "wave"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        let sent = sent.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        HeaderMap::from_iter(sent)
    }

    fn body() -> Value {
        json!({"jsonrpc": "2.0", "id": 1, "method": METHOD, "params": {
            "name": "wave",
            "arguments": {"a": 1},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            },
        }})
    }

    #[test]
    fn only_known_and_valid_requests_are_parsed() {
        fn check(pointer: &str, value: Value, expected: bool) {
            let mut body = body();
            let (parent, member) = pointer.rsplit_once('/').unwrap();
            let member = member.replace("~1", "/");
            body.pointer_mut(parent).unwrap()[member] = value;
            let sent = Bytes::from(body.to_string());
            let parsed = Request::parse(&headers(), &sent).is_some();
            assert_eq!(parsed, expected, "{body}");
        }
        check("/id", json!(-1), true);
        check("/id", json!("a\"b"), true);
        check("/params/arguments", json!({}), true);
        check("/params/_meta/other", json!(1), true);
        check("/id", json!(1.5), false);
        check("/id", Value::Null, false);
        check("/id", json!(u64::MAX), false);
        check("/jsonrpc", json!("1.0"), false);
        check("/method", json!("tools/list"), false);
        check("/more", json!(1), false);
        check("/params/name", json!("other"), false);
        check("/params/arguments", json!([]), false);
        check("/params/requestState", json!("s"), false);
        check("/params/inputResponses", json!({}), false);
        check("/params/_meta/progressToken", json!(1), false);
        check(
            "/params/_meta/io.modelcontextprotocol~1logLevel",
            json!("info"),
            false,
        );
        check(
            "/params/_meta/io.modelcontextprotocol~1protocolVersion",
            json!("2025-11-25"),
            false,
        );
        check(
            "/params/_meta/io.modelcontextprotocol~1clientCapabilities",
            Value::Null,
            false,
        );
    }

    #[test]
    fn headers_agree_and_occur_once() {
        fn check(name: &'static str, value: Option<&'static str>, expected: bool) {
            let mut headers = headers();
            match value {
                Some(value) => headers.insert(name, HeaderValue::from_static(value)),
                None => headers.remove(name),
            };
            let sent = Bytes::from(body().to_string());
            let parses = |headers: &HeaderMap| Request::parse(headers, &sent).is_some();
            assert_eq!(parses(&headers), expected, "{name}: {value:?}");
            if expected && name != "x-other" {
                headers.append(name, HeaderValue::from_static("other"));
                assert!(!parses(&headers), "{name} twice");
            }
        }
        check("accept", Some("text/event-stream,application/json"), true);
        check(
            "accept",
            Some("application/json;q=0, text/event-stream"),
            false,
        );
        check("accept", Some("application/json"), false);
        for name in [
            "mcp-protocol-version",
            "mcp-method",
            "mcp-name",
            "content-type",
            "accept",
        ] {
            check(name, None, false);
            check(name, Some("other"), false);
        }
        check("x-other", Some("value"), true);
    }

    #[test]
    fn trace_context_is_ignored_unless_text() {
        fn check(sent: Value, expected: Option<&str>) {
            let mut body = body();
            body["params"]["_meta"]["traceparent"] = sent;
            let sent = Bytes::from(body.to_string());
            let call = Request::parse(&headers(), &sent).unwrap();
            assert_eq!(call.traceparent.as_deref(), expected, "{body}");
        }
        check(json!("00-a"), Some("00-a"));
        check(json!("a\"b"), Some("a\"b"));
        check(json!(7), None);
        check(json!({"a": []}), None);
        check(Value::Null, None);
    }

    #[test]
    fn arguments_are_not_copied() {
        let json = body().to_string().replace(r#"{"a":1}"#, "{ \"a\" : 1.00 }");
        let sent = Bytes::from(json);
        let call = Request::parse(&headers(), &sent).unwrap();
        assert_eq!(call.arguments, "{ \"a\" : 1.00 }");
        assert!(
            sent.as_ptr_range().contains(&call.arguments.as_ptr()),
            "copied"
        );
    }
}
