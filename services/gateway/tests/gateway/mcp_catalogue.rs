//! All devices of an organisation as one MCP server: their tools under one roof, by pages, and news of them.

use reqwest::Method;
use serde_json::json;

use crate::{
    mcp_client::{DEVICE, Stream, TOOLS, exchange, modern, names},
    stage::Stage,
};

#[tokio::test]
async fn all_devices_are_one_server() {
    let stage = Stage::set().await;
    stage.connect("toy-1").await;
    stage.connect("a.device:with-a-long-name").await;
    stage.remember("asleep").await;
    let listed = exchange(modern(&stage, "/mcp", "tools/list", json!({}))).await;
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
        let called = exchange(modern(&stage, "/mcp", "tools/call", params)).await;
        assert_eq!(
            called.result()["structuredContent"]["outcome"],
            outcome,
            "{tool}"
        );
    }
    for tool in ["echo", "toy-1__other", "nobody__echo"] {
        let params = json!({"name": tool, "arguments": {}});
        let called = exchange(modern(&stage, "/mcp", "tools/call", params)).await;
        assert_eq!(called.error_code(), -32602, "{tool}");
    }
}

#[tokio::test]
async fn a_device_may_be_called_like_the_made_name_of_another() {
    let stage = Stage::set().await;
    for id in ["a.b", "a_b-2e7336dc", "toy-12345678"] {
        stage.connect(id).await;
    }
    let listed = exchange(modern(&stage, "/mcp", "tools/list", json!({}))).await;
    let tools = listed.result()["tools"].as_array().unwrap();
    assert!(
        tools
            .iter()
            .any(|tool| tool["name"] == "a_b-2e7336dc__echo" && tool["title"] == "a.b: echo"),
        "{tools:?}"
    );
    let mut seen = Vec::new();
    // Twice: the second time the gateway knows whose name it is.
    for tool in tools.iter().chain(tools) {
        let params = json!({"name": tool["name"], "arguments": {}});
        let called = exchange(modern(&stage, "/mcp", "tools/call", params)).await;
        assert_eq!(called.result()["isError"], false, "{tool}");
        seen.push(tool["name"].as_str().unwrap());
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 3, "{seen:?}");
    let was_called = stage.edge.called.lock().clone();
    let titled: Vec<&str> = tools
        .iter()
        .map(|tool| tool["title"].as_str().unwrap().trim_end_matches(": echo"))
        .collect();
    assert_eq!(was_called, [titled.clone(), titled].concat());
}

#[tokio::test]
async fn without_the_record_no_tool_is_said_not_to_be() {
    let stage = Stage::set().await;
    stage.connect("live.one").await;
    stage.remember("asleep.one").await;
    let listed = exchange(modern(&stage, "/mcp", "tools/list", json!({}))).await;
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
    stage.database.set_away(true).await.unwrap();
    let listed = exchange(modern(&stage, "/mcp", "tools/list", json!({}))).await;
    let result = listed.result();
    assert_eq!(result["tools"].as_array().unwrap().len(), 1, "{result}");
    assert_eq!(result["_meta"]["switchboard/incomplete"], true);
    assert_eq!(result["ttlMs"], 0);
    let call = async |tool: &str| {
        let params = json!({"name": tool, "arguments": {}});
        exchange(modern(&stage, "/mcp", "tools/call", params)).await
    };
    assert_eq!(
        call(&names[1]).await.result()["structuredContent"]["outcome"],
        "succeeded"
    );
    assert_eq!(call(&names[0]).await.error_code(), -32603);
    assert_eq!(call("asleep__echo").await.error_code(), -32603);
    stage.database.set_away(false).await.unwrap();
    assert_eq!(
        call(&names[0]).await.result()["structuredContent"]["outcome"],
        "offline"
    );
}

#[tokio::test]
async fn many_devices_are_listed_by_pages() {
    let stage = Stage::set().await;
    for at in 0..30 {
        stage.connect(&format!("toy-{at:02}")).await;
    }
    let first = exchange(modern(&stage, "/mcp", "tools/list", json!({}))).await;
    let cursor = first.result()["nextCursor"].as_str().unwrap();
    let second = exchange(modern(
        &stage,
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
        &stage,
        "/mcp",
        "tools/list",
        json!({"cursor": "no/id"}),
    ))
    .await;
    assert_eq!(wrong.error_code(), -32602);
}

#[tokio::test]
async fn listeners_hear_that_a_device_registered_again() {
    let stage = Stage::set().await;
    let epoch = stage.connect_with("toy-1", TOOLS).await;
    stage.connect("toy-2").await;
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let mut modern = Stream::open(modern(&stage, DEVICE, "subscriptions/listen", wanted)).await;
    let begun = modern.next().await;
    assert_eq!(begun["method"], "notifications/subscriptions/acknowledged");
    let get = |path: &str| {
        stage
            .request(Method::GET, path)
            .header("accept", "text/event-stream")
            .header("mcp-protocol-version", "2025-11-25")
    };
    let mut legacy = Stream::open(get(DEVICE)).await;
    let mut all = Stream::open(get("/mcp")).await;

    // What stays the same is not told, nor what is another device's: the first word is about the change.
    stage.register("toy-1", epoch, TOOLS).await;
    stage.connect("toy-3").await;
    assert_eq!(
        all.next().await["method"],
        "notifications/tools/list_changed"
    );
    stage.register("toy-1", epoch, r#"{"new":{}}"#).await;
    let told = modern.next().await;
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(
        told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
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
