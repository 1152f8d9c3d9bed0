//! What requests over MCP hold in memory for as long as they take: little more than their text.

use std::time::Duration;

use serde_json::{Map, Value, json};
use switchboard_test_support::eventually::eventually_true;
use tokio::task::JoinSet;

use crate::{
    mcp_client::{DEVICE, Stream, exchange, modern_with},
    mcp_npcs::{npc, npc_path},
    test_gateway::TestGateway,
};

const MIB: usize = 1024 * 1024;

/// The resident memory of this process, which runs the gateway.
fn resident_bytes() -> usize {
    const PAGE: usize = 4_096;
    let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
    sizes.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE
}

/// JSON whose parsed form takes many times its text: objects with one member.
fn sparse(count: usize) -> Value {
    Value::Array(vec![json!({"a": 0}); count])
}

#[tokio::test]
async fn calls_in_flight_hold_the_text_of_their_requests() {
    const CALLS: usize = 12;
    let gateway = TestGateway::start().await;
    gateway
        .connect_with("toy-1", r#"{"silent":{"timeout_ms":60000}}"#)
        .await;
    // Each of the three takes about 20 MiB when it is parsed.
    let call = |meta: Value| {
        let params = json!({"name": "silent", "arguments": {"a": sparse(30_000)}});
        let request = modern_with(&gateway, DEVICE, "tools/call", params, meta);
        request.timeout(Duration::from_mins(1))
    };
    let capabilities = json!({"elicitation": {}, "experimental": {"a": {"b": sparse(30_000)}}});
    let fast = json!({"io.modelcontextprotocol/clientCapabilities": capabilities});
    let mut slow = Map::from_iter([("progressToken".to_owned(), json!("p"))]);
    slow.insert("unknown".to_owned(), sparse(30_000));
    let mut calls = JoinSet::new();
    let mut before = 0;
    for number in 0..CALLS {
        let meta = [fast.clone(), Value::Object(slow.clone())][number % 2].clone();
        calls.spawn(exchange(call(meta)));
        eventually_true("the device has the call", || {
            if let Some(ended) = calls.try_join_next() {
                panic!("{:?}", ended.unwrap().last());
            }
            gateway.edge.unanswered.lock().len() == number + 1
        })
        .await;
        // The first ones fill the allocator.
        if number < 4 {
            before = resident_bytes();
        }
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 * MIB, "{} MiB for {CALLS} calls", grown / MIB);
    assert!(calls.try_join_next().is_none(), "the calls are in flight");
}

#[tokio::test]
async fn npc_listeners_hold_no_prompt() {
    const LISTENERS: usize = 15;
    let gateway = TestGateway::start().await;
    let text = |at: usize| format!("{at} {}", "x".repeat(30_000));
    let message = |at| json!({"role": "user", "content": {"type": "text", "text": text(at)}});
    let messages: Vec<Value> = (0..30).map(message).collect();
    let settings = json!({"name": "Rex", "prompt": {"messages": messages}});
    let rex = npc(&gateway, None, settings, &[]).await;
    let path = npc_path(&rex);
    let all = json!({"promptsListChanged": true});
    let mut streams = Vec::new();
    let mut before = 0;
    for number in 0..LISTENERS {
        streams.push(Stream::listen(&gateway, &path, all.clone()).await);
        streams.push(Stream::get(&gateway, &path).await);
        if number < 4 {
            before = resident_bytes();
        }
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 12 * MIB, "{} MiB", grown / MIB);
}
