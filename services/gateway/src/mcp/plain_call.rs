//! `tools/call` of the newest revision as most clients send it, read once and answered at once.
//! Never: a refusal of its own. What is not plain, or not right, goes to the protocol's implementation, which says so.

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
use switchboard_runtime::{problem::internal, rates::TooOften};
use tracing::{Instrument as _, Span};

use super::{
    access::Visit, binding::Binding, era::VERSION_HEADER, target::Target, tool_call, trace,
};
use crate::{
    Gateway,
    calls::{Attempt, CallRequest},
};

const METHOD: &str = "tools/call";
const METHOD_HEADER: HeaderName = HeaderName::from_static("mcp-method");
const NAME_HEADER: HeaderName = HeaderName::from_static("mcp-name");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A request that wants one call and its result, and nothing meanwhile.
struct PlainCall<'a> {
    id: &'a RawValue,
    name: Cow<'a, str>,
    arguments: Bytes,
    able: ClientCapabilities,
    traceparent: Option<Cow<'a, str>>,
    tracestate: Option<Cow<'a, str>>,
}

/// Every member that such a request has; another one makes it no plain one.
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
    able: ClientCapabilities,
    /// Asks for notifications.
    #[serde(rename = "io.modelcontextprotocol/logLevel")]
    log_level: Option<IgnoredAny>,
    /// Asks for notifications.
    #[serde(rename = "progressToken")]
    progress_token: Option<IgnoredAny>,
    #[serde(default, borrow, deserialize_with = "text")]
    traceparent: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "text")]
    tracestate: Option<Cow<'a, str>>,
}

/// A text; whatever else stands there is as if nothing did.
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

/// An answer as JSON-RPC has it: with a result, or with an error.
#[derive(Serialize)]
struct Answered<'a> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<ServerResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorData>,
}

/// The answer to a plain call; `None` when it is none, and nothing was done.
pub(super) async fn answer(
    gateway: &Gateway,
    visit: &Visit,
    head: &Parts,
    body: &Bytes,
) -> Option<Response> {
    let call = PlainCall::read(&head.headers, body)?;
    let target = Target::find(gateway, visit, &call.name).await.ok()?;
    let tool = target.tool(&call.name).ok()?;
    if !tool.headers.is_empty() {
        return None;
    }
    if let Err(refused) = gateway.rates.admit_call(&target.device) {
        return Some(call.too_often(refused));
    }
    let request = CallRequest {
        service: tool.service.clone(),
        params: call.arguments.clone(),
        input: Bytes::new(),
        timeout: tool.timeout,
    };
    let attempt = Attempt::begin(target.device, request);
    let (parent, state) = (call.traceparent.as_deref(), call.tracestate.as_deref());
    let span = trace::of_plain_call(&call.name, parent, state, &head.extensions);
    let answered = call.perform(gateway, visit, &attempt).instrument(span);
    Some(answered.await)
}

impl<'a> PlainCall<'a> {
    fn read(headers: &HeaderMap, body: &'a Bytes) -> Option<Self> {
        let newest = ProtocolVersion::V_2026_07_28;
        let plain = only(headers, VERSION_HEADER)? == newest.as_str()
            && only(headers, METHOD_HEADER)? == METHOD
            && only(headers, header::CONTENT_TYPE)? == JSON
            && accepts_both(only(headers, header::ACCEPT)?.to_str().ok()?);
        if !plain {
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
            able,
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
        let plain = jsonrpc == "2.0"
            && method == METHOD
            && version == newest.as_str()
            && log_level.is_none()
            && progress_token.is_none()
            && is_id(id.get())
            && only(headers, NAME_HEADER)? == &*params.name;
        plain.then_some(Self {
            id,
            name: params.name,
            arguments,
            able,
            traceparent,
            tracestate,
        })
    }

    async fn perform(&self, gateway: &Gateway, visit: &Visit, attempt: &Attempt) -> Response {
        if let Some(refused) = tool_call::too_large(gateway, attempt) {
            return self.succeeded(refused.into());
        }
        let performing = trace::Performing::begin(&Span::current());
        let ended = attempt.perform(gateway, None).await;
        let binding = Binding::new(visit, METHOD, &self.name, &self.arguments);
        let able = Some(&self.able);
        let concluded = tool_call::conclude(gateway, attempt, &ended, &binding, able).await;
        performing.end(&concluded);
        match concluded {
            Ok(response) => self.succeeded(response),
            Err(error) => self.failed(error),
        }
    }

    fn too_often(&self, refused: TooOften) -> Response {
        let mut response = self.failed(tool_call::too_often(refused));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let seconds = HeaderValue::from(refused.retry_after_s());
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
        response
    }

    fn succeeded(&self, result: CallToolResponse) -> Response {
        written(
            StatusCode::OK,
            &Answered {
                jsonrpc: "2.0",
                id: self.id,
                result: Some(result.into()),
                error: None,
            },
        )
    }

    fn failed(&self, error: ErrorData) -> Response {
        let status = match error.code {
            ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        };
        written(
            status,
            &Answered {
                jsonrpc: "2.0",
                id: self.id,
                result: None,
                error: Some(error),
            },
        )
    }
}

fn written(status: StatusCode, answer: &Answered<'_>) -> Response {
    match serde_json::to_vec(answer) {
        Ok(json) => (status, [(header::CONTENT_TYPE, JSON)], json).into_response(),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written");
            internal().into_response()
        }
    }
}

/// The one value of a header that stands there once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// Whether both kinds of answers are taken, as every client is told to say. Weights are not plain.
fn accepts_both(accepted: &str) -> bool {
    let accepts = |kind: &str| accepted.split(',').any(|one| one.trim() == kind);
    accepts("application/json") && accepts("text/event-stream")
}

/// Whether this JSON is a string, or an integer of ordinary size.
fn is_id(json: &str) -> bool {
    const DIGITS: usize = 18;
    let digits = json.strip_prefix('-').unwrap_or(json);
    let is_integer = digits.len() <= DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
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
    fn only_what_is_plain_and_right_is_read() {
        fn check(place: &str, value: Value, plain: bool) {
            let mut body = body();
            let (parent, member) = place.rsplit_once('/').unwrap();
            let member = member.replace("~1", "/");
            body.pointer_mut(parent).unwrap()[member] = value;
            let sent = Bytes::from(body.to_string());
            let read = PlainCall::read(&headers(), &sent).is_some();
            assert_eq!(read, plain, "{body}");
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
    fn headers_say_the_same_once() {
        fn check(name: &'static str, value: Option<&'static str>, plain: bool) {
            let mut headers = headers();
            match value {
                Some(value) => headers.insert(name, HeaderValue::from_static(value)),
                None => headers.remove(name),
            };
            let sent = Bytes::from(body().to_string());
            let read = |headers: &HeaderMap| PlainCall::read(headers, &sent).is_some();
            assert_eq!(read(&headers), plain, "{name}: {value:?}");
            if plain && name != "x-other" {
                headers.append(name, HeaderValue::from_static("other"));
                assert!(!read(&headers), "{name} twice");
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
    fn a_context_is_read_where_it_is_a_text() {
        fn check(sent: Value, expected: Option<&str>) {
            let mut body = body();
            body["params"]["_meta"]["traceparent"] = sent;
            let sent = Bytes::from(body.to_string());
            let call = PlainCall::read(&headers(), &sent).unwrap();
            assert_eq!(call.traceparent.as_deref(), expected, "{body}");
        }
        check(json!("00-a"), Some("00-a"));
        check(json!("a\"b"), Some("a\"b"));
        check(json!(7), None);
        check(json!({"a": []}), None);
        check(Value::Null, None);
    }

    #[test]
    fn arguments_stay_as_they_were_sent() {
        let spelt = body().to_string().replace(r#"{"a":1}"#, "{ \"a\" : 1.00 }");
        let sent = Bytes::from(spelt);
        let call = PlainCall::read(&headers(), &sent).unwrap();
        assert_eq!(call.arguments, "{ \"a\" : 1.00 }");
        assert!(
            sent.as_ptr_range().contains(&call.arguments.as_ptr()),
            "copied"
        );
    }
}
