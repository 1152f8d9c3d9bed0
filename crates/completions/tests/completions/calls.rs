//! Tool calls over HTTP. Tables of fragments are in the unit tests of the assembler.

use serde_json::{Value, json};
use switchboard_completions::{FinishReason, Reply};

use crate::{
    fake_provider::{event, finish_chunk, head, stream, text_chunk},
    fixture::request_from,
};

fn calling(calls: &Value) -> String {
    json!({"choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": null}]})
        .to_string()
}

async fn reply(events: &[String]) -> Reply {
    let events: Vec<_> = events.iter().map(String::as_str).collect();
    request_from(stream(&events)).await.reply()
}

fn found(reply: &Reply) -> Value {
    let calls = reply.calls.iter().map(|call| {
        let arguments = match &call.arguments {
            Ok(arguments) => json!(arguments),
            Err(raw) => json!(raw),
        };
        json!([call.name, arguments])
    });
    calls.collect()
}

#[tokio::test]
async fn calls_arrive_in_fragments_with_text() {
    let reply = reply(&[
        text_chunk("I see to it."),
        calling(&json!([{"index": 0, "id": "x", "type": "function", "function": {"name": "lamp_on", "arguments": ""}}])),
        calling(&json!([{"index": 0, "function": {"arguments": "{\"level\""}}])),
        calling(&json!([{"index": 0, "function": {"arguments": ":3}"}}])),
        calling(&json!([{"index": 1, "id": "y", "function": {"name": "door_shut", "arguments": null}}])),
        finish_chunk("tool_calls"),
    ])
    .await;
    assert_eq!(reply.text, "I see to it.");
    assert_eq!(reply.finish_reason, FinishReason::ToolCalls);
    assert_eq!(
        found(&reply),
        json!([["lamp_on", {"level": 3}], ["door_shut", {}]])
    );
    assert_eq!(
        (reply.calls[0].id.as_str(), reply.calls[1].id.as_str()),
        ("x", "y")
    );
}

#[tokio::test]
async fn calls_override_the_finish_reason() {
    let call = json!([{"index": 0, "id": "x", "function": {"name": "f", "arguments": {"a": 1}}}]);
    let reply = reply(&[calling(&call), finish_chunk("stop")]).await;
    assert_eq!(reply.finish_reason, FinishReason::ToolCalls);
    assert_eq!(found(&reply), json!([["f", {"a": 1}]]));
}

#[tokio::test]
async fn missing_and_duplicate_ids_are_generated() {
    let reply = reply(&[
        calling(&json!([{"index": 0, "id": "x", "function": {"name": "f", "arguments": "{\"a\":1}{\"a\":2}"}}])),
        calling(&json!([{"index": 1, "id": "x", "function": {"name": "g", "arguments": "{}"}}])),
        calling(&json!([{"index": 2, "id": null, "function": {"name": "h", "arguments": "so"}}])),
        finish_chunk("tool_calls"),
    ])
    .await;
    assert_eq!(
        found(&reply),
        json!([["f", {"a": 1}], ["f", {"a": 2}], ["g", {}], ["h", "so"]])
    );
    let mut ids: Vec<_> = reply.calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids[0], "x");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    assert!(!ids.contains(&""));
}

#[tokio::test]
async fn deprecated_function_call_is_accepted() {
    let part = |function: Value| {
        json!({"choices": [{"index": 0, "delta": {"content": null, "function_call": function}}]})
            .to_string()
    };
    let reply = reply(&[
        part(json!({"name": "f", "arguments": ""})),
        part(json!({"arguments": "{\"a\":"})),
        part(json!({"arguments": "1}"})),
        finish_chunk("function_call"),
    ])
    .await;
    assert_eq!(found(&reply), json!([["f", {"a": 1}]]));
    assert_eq!(
        (reply.finish_reason, reply.calls[0].id.is_empty()),
        (FinishReason::ToolCalls, false)
    );
}

#[tokio::test]
async fn interrupted_call_is_no_call() {
    let call =
        json!([{"index": 0, "id": "x", "function": {"name": "f", "arguments": "{\"a\":1}"}}]);
    let cut = vec![head(), event(&calling(&call)), crate::fake_provider::end()];
    let outcome = request_from(cut).await;
    assert_eq!(outcome.reply.unwrap_err().kind(), "unavailable");
}
