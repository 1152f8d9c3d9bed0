//! Calls as they come over the wire; the tables of fragments stand beside their assembly.
//! Never: a call lost.

use serde_json::{Value, json};
use switchboard_completions::{Finish, Reply};

use crate::{
    provider::{event, head, says, stops, stream},
    stage::answered,
};

fn calling(calls: &Value) -> String {
    json!({"choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": null}]})
        .to_string()
}

async fn reply(events: &[String]) -> Reply {
    let events: Vec<_> = events.iter().map(String::as_str).collect();
    answered(stream(&events)).await.reply()
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
async fn calls_come_in_fragments_beside_words() {
    let reply = reply(&[
        says("I see to it."),
        calling(&json!([{"index": 0, "id": "x", "type": "function", "function": {"name": "lamp_on", "arguments": ""}}])),
        calling(&json!([{"index": 0, "function": {"arguments": "{\"level\""}}])),
        calling(&json!([{"index": 0, "function": {"arguments": ":3}"}}])),
        calling(&json!([{"index": 1, "id": "y", "function": {"name": "door_shut", "arguments": null}}])),
        stops("tool_calls"),
    ])
    .await;
    assert_eq!(reply.text, "I see to it.");
    assert_eq!(reply.finish, Finish::ToolCalls);
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
async fn calls_count_also_when_the_reply_just_stops() {
    let call = json!([{"index": 0, "id": "x", "function": {"name": "f", "arguments": {"a": 1}}}]);
    let reply = reply(&[calling(&call), stops("stop")]).await;
    assert_eq!(reply.finish, Finish::ToolCalls);
    assert_eq!(found(&reply), json!([["f", {"a": 1}]]));
}

#[tokio::test]
async fn ids_are_made_up_where_they_are_missing_or_the_same() {
    let reply = reply(&[
        calling(&json!([{"index": 0, "id": "x", "function": {"name": "f", "arguments": "{\"a\":1}{\"a\":2}"}}])),
        calling(&json!([{"index": 1, "id": "x", "function": {"name": "g", "arguments": "{}"}}])),
        calling(&json!([{"index": 2, "id": null, "function": {"name": "h", "arguments": "so"}}])),
        stops("tool_calls"),
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
async fn a_call_may_come_as_before_there_were_tools() {
    let part = |function: Value| {
        json!({"choices": [{"index": 0, "delta": {"content": null, "function_call": function}}]})
            .to_string()
    };
    let reply = reply(&[
        part(json!({"name": "f", "arguments": ""})),
        part(json!({"arguments": "{\"a\":"})),
        part(json!({"arguments": "1}"})),
        stops("function_call"),
    ])
    .await;
    assert_eq!(found(&reply), json!([["f", {"a": 1}]]));
    assert_eq!(
        (reply.finish, reply.calls[0].id.is_empty()),
        (Finish::ToolCalls, false)
    );
}

#[tokio::test]
async fn a_call_that_is_cut_off_is_never_a_call() {
    let call =
        json!([{"index": 0, "id": "x", "function": {"name": "f", "arguments": "{\"a\":1}"}}]);
    let cut = vec![head(), event(&calling(&call)), crate::provider::end()];
    let outcome = answered(cut).await;
    assert_eq!(outcome.reply.unwrap_err().kind(), "unavailable");
}
