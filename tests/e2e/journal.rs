//! The journal of synchronous calls, over processes of their own: REST, MCP and conversations.

use std::time::Duration;

use serde_json::{Value, json};
use switchboard_protocol::frame::Kind;
use switchboard_test_support::eventually::eventually;

use crate::{
    cluster::{Org, TestCluster},
    system::{TestSystem, start_chat},
    turns::{task, time_service},
};

const REVISION: &str = "2026-07-28";
/// Covers the publication of a setting, and the interval of writes.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Calls the device as a tool over MCP.
async fn call_tool(cluster: &TestCluster, arguments: &Value) -> Value {
    let params = json!({"name": "get_current_time", "arguments": arguments, "_meta": {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }});
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let request = cluster.http.post(cluster.url("/mcp/devices/toy-1"));
    let request = request
        .bearer_auth(&cluster.org.key)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", REVISION)
        .header("mcp-method", "tools/call")
        .header("mcp-name", "get_current_time");
    let answer = request.json(&message).send().await.unwrap();
    answer.json().await.unwrap()
}

async fn journal_of(cluster: &TestCluster, org: &Org) -> Value {
    let request = cluster.http.get(cluster.url("/v1/calls/recent"));
    let answer = request.bearer_auth(&org.key).send().await.unwrap();
    answer.json().await.unwrap()
}

/// The journal when it has this many calls.
async fn journal(cluster: &TestCluster, count: usize) -> Value {
    let read = async || journal_of(cluster, &cluster.org).await;
    let has_all = |page: &Value| page["items"].as_array().unwrap().len() == count;
    eventually(TIMEOUT, read, has_all).await
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_rest_mcp_and_conversations_are_in_the_journal() {
    let cluster = TestCluster::start(1).await;
    let chat = start_chat(&cluster, &[]);
    let system = TestSystem::new(&cluster, &chat);
    let other = cluster.another_org("second").await;
    let mut device = cluster.device(0, "toy-1").await;
    device.register(&time_service("Get current time")).await;
    let body = json!({"service": "get_current_time", "params": {"format": "simple"}});
    let result = json!({"success": true, "data": "2025-01-22 14:30:25"});
    let answering = async {
        for _ in 0..2 {
            let (id, _, _) = device.next_call().await;
            device.answer(&id, &result).await;
        }
        device.send_text(task(1), "What time is it?").await;
        let (id, _, _) = device.next_call().await;
        device.answer(&id, &result).await;
        device.next(Kind::End).await;
    };
    let calling = async {
        assert_eq!(cluster.call("toy-1", &body).await.1["outcome"], "succeeded");
        let called = call_tool(&cluster, &json!({"format": "simple"})).await;
        assert!(called["result"].is_object(), "{called}");
    };
    tokio::join!(answering, calling);
    let page = journal(&cluster, 3).await;
    let items = page["items"].as_array().unwrap();
    let mut seen: Vec<_> = items
        .iter()
        .map(|item| {
            assert_eq!(item["device_id"], "toy-1", "{item}");
            assert_eq!(item["service"], "get_current_time");
            assert_eq!(item["outcome"], "succeeded");
            assert_eq!(item["delivered"], "yes");
            assert!(item.get("params").is_none() && item.get("result").is_none());
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&item["via"]), text(&item["caller"]["kind"]))
        })
        .collect();
    seen.sort();
    let expected = [("chat", "assistant"), ("mcp", "key"), ("rest", "key")];
    assert_eq!(
        seen,
        expected.map(|(via, kind)| (via.to_owned(), kind.to_owned()))
    );
    let nothing = json!({"items": [], "next_cursor": null, "left_out": 0});
    assert_eq!(journal_of(&cluster, &other).await, nothing);
    // Params only where the organisation wants them. The gateway learns it over the bus.
    system.change_org(&json!({"journal_params": true})).await;
    let _device = device.serve();
    let newest = async || {
        cluster.call("toy-1", &body).await;
        journal_of(&cluster, &cluster.org).await["items"][0].clone()
    };
    let has_params = |item: &Value| item["params"] == r#"{"format":"simple"}"#;
    let item = eventually(TIMEOUT, newest, has_params).await;
    assert_eq!(item["params_cut"], false, "{item}");
    system.change_org(&json!({"journal_params": false})).await;
    let page = journal_of(&cluster, &cluster.org).await.to_string();
    assert!(!page.contains("simple"), "{page}");
    // Neither logs nor metrics have them.
    for program in cluster.programs().chain([&chat]) {
        assert!(!program.logged().contains(r#""format":"simple""#));
    }
}
