//! All devices of an organisation as one MCP server: prefixed tools, pages and notifications.

use reqwest::Method;
use serde_json::json;

use crate::{
    mcp_client::{DEVICE, Stream, TOOLS, exchange, modern, names},
    test_gateway::TestGateway,
};

#[tokio::test]
async fn org_endpoint_lists_all_devices() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    gateway.connect("a.device:with-a-long-name").await;
    gateway.store_device("asleep").await;
    let listed = exchange(modern(&gateway, "/mcp", "tools/list", json!({}))).await;
    let tools = names(listed.result());
    assert_eq!(tools.len(), 3);
    assert!(
        tools[0].starts_with("a_devic-") && tools[0].ends_with("__echo"),
        "{tools:?}"
    );
    assert_eq!(tools[1..], ["asleep__echo", "toy-1__echo"]);
    assert_eq!(
        listed.result()["tools"][0]["title"],
        "a.device:with-a-long-name: echo"
    );
    for (tool, outcome) in [
        (tools[0], "succeeded"),
        (tools[1], "offline"),
        (tools[2], "succeeded"),
    ] {
        let params = json!({"name": tool, "arguments": {}});
        let called = exchange(modern(&gateway, "/mcp", "tools/call", params)).await;
        assert_eq!(
            called.result()["structuredContent"]["outcome"],
            outcome,
            "{tool}"
        );
    }
    for tool in ["echo", "toy-1__other", "nobody__echo"] {
        let params = json!({"name": tool, "arguments": {}});
        let called = exchange(modern(&gateway, "/mcp", "tools/call", params)).await;
        assert_eq!(called.error_code(), -32602, "{tool}");
    }
}

#[tokio::test]
async fn encoded_device_name_does_not_collide() {
    let gateway = TestGateway::start().await;
    for id in ["a.b", "a_b-2e7336dc", "toy-12345678"] {
        gateway.connect(id).await;
    }
    let listed = exchange(modern(&gateway, "/mcp", "tools/list", json!({}))).await;
    let tools = listed.result()["tools"].as_array().unwrap();
    assert!(
        tools
            .iter()
            .any(|tool| tool["name"] == "a_b-2e7336dc__echo" && tool["title"] == "a.b: echo"),
        "{tools:?}"
    );
    let mut seen = Vec::new();
    // The second round uses the cache of encoded names.
    for tool in tools.iter().chain(tools) {
        let params = json!({"name": tool["name"], "arguments": {}});
        let called = exchange(modern(&gateway, "/mcp", "tools/call", params)).await;
        assert_eq!(called.result()["isError"], false, "{tool}");
        seen.push(tool["name"].as_str().unwrap());
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 3, "{seen:?}");
    let was_called = gateway.edge.called.lock().clone();
    let titled: Vec<&str> = tools
        .iter()
        .map(|tool| tool["title"].as_str().unwrap().trim_end_matches(": echo"))
        .collect();
    assert_eq!(was_called, [titled.clone(), titled].concat());
}

#[tokio::test]
async fn missing_tool_is_not_reported_without_the_database() {
    let gateway = TestGateway::start().await;
    gateway.connect("live.one").await;
    gateway.store_device("asleep.one").await;
    let listed = exchange(modern(&gateway, "/mcp", "tools/list", json!({}))).await;
    let names: Vec<String> = names(listed.result())
        .into_iter()
        .map(str::to_owned)
        .collect();
    assert!(
        listed
            .result()
            .get("_meta")
            .is_none_or(|meta| meta.get("switchboard/incomplete").is_none())
    );
    gateway.database.set_unavailable(true).await.unwrap();
    let listed = exchange(modern(&gateway, "/mcp", "tools/list", json!({}))).await;
    let result = listed.result();
    assert_eq!(result["tools"].as_array().unwrap().len(), 1, "{result}");
    assert_eq!(result["_meta"]["switchboard/incomplete"], true);
    assert_eq!(result["ttlMs"], 0);
    let call = async |tool: &str| {
        let params = json!({"name": tool, "arguments": {}});
        exchange(modern(&gateway, "/mcp", "tools/call", params)).await
    };
    assert_eq!(
        call(&names[1]).await.result()["structuredContent"]["outcome"],
        "succeeded"
    );
    assert_eq!(call(&names[0]).await.error_code(), -32603);
    assert_eq!(call("asleep__echo").await.error_code(), -32603);
    gateway.database.set_unavailable(false).await.unwrap();
    assert_eq!(
        call(&names[0]).await.result()["structuredContent"]["outcome"],
        "offline"
    );
}

#[tokio::test]
async fn tools_of_many_devices_are_paginated() {
    let gateway = TestGateway::start().await;
    for at in 0..30 {
        gateway.connect(&format!("toy-{at:02}")).await;
    }
    let first = exchange(modern(&gateway, "/mcp", "tools/list", json!({}))).await;
    let cursor = first.result()["nextCursor"].as_str().unwrap();
    let second = exchange(modern(
        &gateway,
        "/mcp",
        "tools/list",
        json!({"cursor": cursor}),
    ))
    .await;
    assert!(second.result().get("nextCursor").is_none());
    let mut all = names(first.result());
    all.extend(names(second.result()));
    let expected: Vec<String> = (0..30).map(|at| format!("toy-{at:02}__echo")).collect();
    assert_eq!(all, expected);
    let wrong = exchange(modern(
        &gateway,
        "/mcp",
        "tools/list",
        json!({"cursor": "no/id"}),
    ))
    .await;
    assert_eq!(wrong.error_code(), -32602);
}

#[tokio::test]
async fn listeners_are_notified_of_a_registration() {
    let gateway = TestGateway::start().await;
    let epoch = gateway.connect_with("toy-1", TOOLS).await;
    gateway.connect("toy-2").await;
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let mut modern = Stream::open(modern(&gateway, DEVICE, "subscriptions/listen", wanted)).await;
    let begun = modern.next().await;
    assert_eq!(begun["method"], "notifications/subscriptions/acknowledged");
    let get = |path: &str| {
        gateway
            .request(Method::GET, path)
            .header("accept", "text/event-stream")
            .header("mcp-protocol-version", "2025-11-25")
    };
    let mut legacy = Stream::open(get(DEVICE)).await;
    let mut all = Stream::open(get("/mcp")).await;

    // Unchanged registrations and other devices cause no notification, so the first one is about
    // the change.
    gateway.register("toy-1", epoch, TOOLS).await;
    gateway.connect("toy-3").await;
    assert_eq!(
        all.next().await["method"],
        "notifications/tools/list_changed"
    );
    gateway.register("toy-1", epoch, r#"{"new":{}}"#).await;
    let message = modern.next().await;
    assert_eq!(message["method"], "notifications/tools/list_changed");
    assert_eq!(
        message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        7
    );
    assert_eq!(
        legacy.next().await["method"],
        "notifications/tools/list_changed"
    );
    assert_eq!(
        all.next().await["method"],
        "notifications/tools/list_changed"
    );
}
