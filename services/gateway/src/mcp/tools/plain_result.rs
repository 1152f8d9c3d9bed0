//! The most common result of a call, serialised without a tree of values in between.
//!
//! Invariant: its JSON is that of the [`CallToolResult`](rmcp::model::CallToolResult) of the same answer.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Value, value::RawValue};
use switchboard_bus::{Answer, BusError};
use switchboard_protocol::{
    id::CallId,
    outcome::{Delivered, Outcome},
};

use super::result::{DeviceResult, parse_data};
use crate::calls::{Attempt, milliseconds};

/// The result of a device that succeeded and sent data and nothing else.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::mcp) struct PlainResult<'a> {
    result_type: &'static str,
    content: [Text<'a>; 1],
    structured_content: Structured<'a>,
    is_error: bool,
}

#[derive(Serialize)]
struct Text<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: Cow<'a, str>,
}

#[derive(Serialize)]
struct Structured<'a> {
    call_id: CallId,
    data: Data<'a>,
    delivered: Delivered,
    elapsed_ms: f64,
    outcome: Outcome,
    success: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Data<'a> {
    Text(&'a str),
    Value(Value),
}

impl<'a> PlainResult<'a> {
    /// `None` if the call has another result.
    pub(in crate::mcp) fn new(
        attempt: &Attempt,
        ended: &'a Result<Answer, BusError>,
    ) -> Option<Self> {
        let answer = ended.as_ref().ok()?;
        let data = DeviceResult::parse(answer)?.only_data(answer)?;
        let (text, data) = match plain_text(data) {
            Some(text) => (Cow::Borrowed(text), Data::Text(text)),
            None => match parse_data(data, true, true) {
                (Some(text), Some(Ok(value))) => (Cow::Owned(text), Data::Value(value)),
                _ => return None,
            },
        };
        Some(Self {
            result_type: "complete",
            content: [Text { kind: "text", text }],
            structured_content: Structured {
                call_id: attempt.id,
                data,
                delivered: answer.delivered,
                elapsed_ms: milliseconds(attempt.started.elapsed()),
                outcome: answer.outcome,
                success: true,
            },
            is_error: false,
        })
    }
}

/// The characters of a JSON string that has no escapes, and none that is hidden from models.
fn plain_text(data: &RawValue) -> Option<&str> {
    let text = data.get().strip_prefix('"')?.strip_suffix('"')?;
    let is_plain = |byte| matches!(byte, b' '..=b'~') && byte != b'\\';
    text.bytes().all(is_plain).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use bytes::Bytes;
    use switchboard_protocol::id::{DeviceKey, OrgId};
    use uuid::Uuid;

    use super::*;
    use crate::calls::CallRequest;

    fn attempt() -> Attempt {
        Attempt {
            id: CallId::from_uuid(Uuid::from_u128(7)),
            device: DeviceKey {
                org: OrgId::from_uuid(Uuid::from_u128(1)),
                device: "toy-1".parse().unwrap(),
            },
            request: CallRequest {
                service: "wave".into(),
                params: Bytes::from_static(b"{}"),
                input: Bytes::new(),
                timeout: Duration::from_secs(1),
            },
            started: Instant::now(),
            cancel_key: None,
            origin: None,
            registration: None,
        }
    }

    #[test]
    fn plain_result_equals_the_full_result() {
        fn check(body: &'static str, is_plain: bool) {
            let answer = Answer::result(body.contains("\"success\":true"), body.into());
            let attempt = attempt();
            let full = DeviceResult::parse(&answer).unwrap();
            let full = serde_json::to_value(full.into_tool_result(&attempt, &answer)).unwrap();
            let ended = Ok(answer);
            let plain = PlainResult::new(&attempt, &ended);
            assert_eq!(plain.is_some(), is_plain, "{body}");
            let Some(plain) = plain else { return };
            let elapsed = |mut result: Value| {
                result["structuredContent"]["elapsed_ms"] = Value::Null;
                result
            };
            let plain = serde_json::to_value(plain).unwrap();
            assert_eq!(elapsed(plain), elapsed(full), "{body}");
        }
        check(r#"{"success":true,"data":"half past two"}"#, true);
        check(r#"{"success":true,"data":""}"#, true);
        check(r#"{"success":true,"data":"a\"b\u202ec"}"#, true);
        check("{\"success\":true,\"data\":\"现\u{202e}在\"}", true);
        check(
            r#"{"success":true,"data":{"b":[1.50,true],"a":"\u200b"}}"#,
            true,
        );
        check(
            r#"{"success":true,"data":{"a":1,"a":2},"data":[1,2]}"#,
            true,
        );
        check(r#"{"success":true,"data":false,"other":1}"#, true);
        check(r#"{"success":true}"#, false);
        check(r#"{"success":true,"data":null}"#, false);
        check(r#"{"success":true,"data":1e999}"#, false);
        check(r#"{"success":true,"data":1,"error":"why"}"#, false);
        check(r#"{"success":true,"data":1,"content":[]}"#, false);
        check(r#"{"success":true,"data":1,"input_required":{}}"#, false);
        check(r#"{"success":false,"data":1}"#, false);
        check(r#"{"success":true,"data":"#, false);
    }
}
