//! A device as an MCP server in both revisions: its tools and the results of calls.

use reqwest::Method;
use serde_json::{Value, json};
use switchboard_mcp_flatbuffers as flat;

use crate::{
    mcp_client::{DEVICE, Exchange, TOOLS, exchange, legacy, modern, modern_with, names},
    test_gateway::TestGateway,
};

#[tokio::test]
async fn stateless_revision_needs_no_handshake() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    let found = exchange(modern(&gateway, DEVICE, "server/discover", json!({}))).await;
    let versions = found.result()["supportedVersions"].to_string();
    assert!(
        versions.contains("2026-07-28") && versions.contains("2025-11-25"),
        "{versions}"
    );
    assert_eq!(found.result()["capabilities"]["tools"]["listChanged"], true);

    let listed = exchange(modern(&gateway, DEVICE, "tools/list", json!({}))).await;
    let result = listed.result();
    assert_eq!(
        names(result),
        [
            "_ea99d70f",
            "echo",
            "fail",
            "invalid",
            "lost",
            "picture",
            "silent",
            "talk"
        ]
    );
    assert_eq!(
        (&result["cacheScope"], &result["resultType"]),
        (&json!("private"), &json!("complete"))
    );
    assert!(result["ttlMs"].is_u64());
    assert_eq!(result["tools"][0]["title"], "现在几点");
    assert_eq!(
        result["tools"][0]["outputSchema"]["properties"]["data"]["type"],
        "string"
    );
    assert_eq!(
        result["tools"][1]["inputSchema"]["properties"]["a"]["type"],
        "string"
    );

    let params = json!({"name": "echo", "arguments": {"a": "你好"}});
    let called = exchange(modern(&gateway, DEVICE, "tools/call", params)).await;
    let result = called.result();
    assert_eq!(called.headers["content-type"], "application/json");
    assert_eq!(
        result["content"],
        json!([{"type": "text", "text": "{\"a\":\"你好\"}"}])
    );
    assert_eq!(result["isError"], false);
    let structured = &result["structuredContent"];
    assert_eq!(
        (&structured["outcome"], &structured["delivered"]),
        (&json!("succeeded"), &json!("yes"))
    );
    assert_eq!(structured["data"], json!({"a": "你好"}));
}

#[tokio::test]
async fn legacy_handshake_stores_no_session() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let begun = exchange(legacy(&gateway, DEVICE, "initialize", hello)).await;
    assert_eq!(begun.result()["protocolVersion"], "2025-11-25");
    assert_eq!(begun.result()["serverInfo"]["name"], "switchboard");
    // The session ID serves to cancel requests. It is optional.
    assert!(begun.headers.contains_key("mcp-session-id"));
    for method in ["ping", "tools/list"] {
        assert_eq!(
            exchange(legacy(&gateway, DEVICE, method, json!({})))
                .await
                .status,
            200
        );
    }
    let params = json!({"name": "_ea99d70f", "arguments": {}});
    let called = exchange(legacy(&gateway, DEVICE, "tools/call", params)).await;
    assert_eq!(called.result()["isError"], false);
    assert!(called.result().get("resultType").is_none());
}

#[tokio::test]
async fn tool_result_reports_outcome_and_delivery() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    gateway.store_device("asleep").await;
    let check = async |device: &str, tool: &str, outcome: &str, delivered: &str| {
        let path = format!("/mcp/devices/{device}");
        let params = json!({"name": tool, "arguments": {}});
        let called = exchange(modern(&gateway, &path, "tools/call", params)).await;
        let result = called.result();
        assert_eq!(result["isError"], outcome != "succeeded", "{result}");
        assert_eq!(result["structuredContent"]["outcome"], outcome, "{result}");
        assert_eq!(
            result["structuredContent"]["delivered"], delivered,
            "{result}"
        );
        assert!(!result["content"][0]["text"].as_str().unwrap().is_empty());
    };
    check("toy-1", "echo", "succeeded", "yes").await;
    check("toy-1", "fail", "failed", "yes").await;
    check("toy-1", "invalid", "invalid", "no").await;
    check("toy-1", "lost", "lost", "unknown").await;
    check("asleep", "echo", "offline", "no").await;

    let refuse = async |path: &str, tool: &str| {
        let params = json!({"name": tool, "arguments": {}});
        let called = exchange(modern(&gateway, path, "tools/call", params)).await;
        assert_eq!(called.error_code(), -32602, "{called:?}");
    };
    refuse(DEVICE, "no_such_tool").await;
    refuse("/mcp/devices/nobody", "echo").await;
    let listed = exchange(modern(
        &gateway,
        "/mcp/devices/nobody",
        "tools/list",
        json!({}),
    ))
    .await;
    assert_eq!(listed.error_code(), -32602);
}

#[tokio::test]
async fn fast_path_and_rmcp_respond_alike() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    for (tool, arguments) in [
        ("echo", json!({"a": "你好 \"\\\u{1F600}"})),
        ("echo", json!({})),
        ("fail", json!({})),
        ("invalid", json!({})),
        ("lost", json!({})),
        ("picture", json!({})),
        ("nothing", json!({})),
    ] {
        let params = json!({"name": tool, "arguments": arguments});
        let request = modern(&gateway, DEVICE, "tools/call", params.clone());
        let plain = exchange(request).await;
        // A client that requests log messages is served by rmcp. This device sends none.
        let listening = json!({"io.modelcontextprotocol/logLevel": "emergency"});
        let request = modern_with(&gateway, DEVICE, "tools/call", params, listening);
        let other = exchange(request).await;
        let head =
            |exchange: &Exchange| (exchange.status, exchange.headers["content-type"].clone());
        assert_eq!(head(&plain), head(&other), "{tool}");
        assert_eq!(repeatable(plain.last()), repeatable(other.last()), "{tool}");
    }
}

/// A response without the members that differ between two calls.
fn repeatable(answer: &Value) -> Value {
    let mut answer = answer.clone();
    let structured = answer["result"]["structuredContent"].as_object_mut();
    if let Some(structured) = structured {
        structured.remove("call_id").unwrap();
        structured.remove("elapsed_ms").unwrap();
    }
    answer
}

#[tokio::test]
async fn disconnected_device_lists_its_tools() {
    let gateway = TestGateway::start().await;
    gateway.store_device("toy-1").await;
    let listed = exchange(modern(&gateway, DEVICE, "tools/list", json!({}))).await;
    assert_eq!(names(listed.result()), ["echo"]);
    assert!(listed.result()["tools"][0]["description"] == "回声");
}

#[tokio::test]
async fn content_blocks_are_passed_through() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    let called = exchange(modern(
        &gateway,
        DEVICE,
        "tools/call",
        json!({"name": "picture", "arguments": {}}),
    ))
    .await;
    assert_eq!(
        called.result()["content"],
        json!([{"type": "text", "text": "看"}, {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}])
    );
}

#[tokio::test]
async fn flatbuffers_are_used_if_the_client_selects_them() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    let send = async |message: Vec<u8>, accept: &str| {
        let request = gateway
            .request(Method::POST, DEVICE)
            .header("mcp-protocol-version", "2025-11-25")
            .header("content-type", flat::CONTENT_TYPE)
            .header("accept", accept)
            .body(message);
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let kind = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        (status, kind, response.bytes().await.unwrap())
    };
    let call = |tool: &str| {
        let params =
            json!({"name": tool, "arguments": {"a": "你好"}, "_meta": {"progressToken": 1}});
        let message = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params});
        flat::encode(message.to_string().as_bytes()).unwrap()
    };
    for tool in ["echo", "talk"] {
        let (status, kind, answer) = send(call(tool), flat::CONTENT_TYPE).await;
        assert_eq!((status, kind.as_str()), (200, flat::CONTENT_TYPE));
        let answer = flat::decode(&answer).unwrap();
        assert_eq!(
            (&answer["id"], &answer["result"]["isError"]),
            (&json!(3), &json!(false))
        );
    }
    let both = "application/json, text/event-stream";
    let (status, kind, answer) = send(call("echo"), both).await;
    assert_eq!((status, kind.as_str()), (200, "application/json"));
    assert!(std::str::from_utf8(&answer).unwrap().contains("你好"));

    let (status, kind, answer) = send(b"no buffer".to_vec(), flat::CONTENT_TYPE).await;
    assert_eq!((status, kind.as_str()), (400, flat::CONTENT_TYPE));
    assert_eq!(flat::decode(&answer).unwrap()["error"]["code"], -32700);
}

#[tokio::test]
async fn subscription_requires_a_stream() {
    let gateway = TestGateway::start().await;
    let listen = |path: &str, accept: &'static str| {
        let wanted = json!({"notifications": {"toolsListChanged": true}});
        let request = modern(&gateway, path, "subscriptions/listen", wanted).build();
        let mut request = request.unwrap();
        let accept = reqwest::header::HeaderValue::from_static(accept);
        request.headers_mut().insert("accept", accept);
        request
    };
    let client = reqwest::Client::new();
    for path in [DEVICE, "/mcp"] {
        let refused = client.execute(listen(path, flat::CONTENT_TYPE)).await;
        let refused = refused.unwrap();
        assert_eq!(
            (
                refused.status().as_u16(),
                &refused.headers()["content-type"]
            ),
            (406, &"application/problem+json".parse().unwrap()),
            "{path}"
        );
        let both = "application/vnd.mcp+flatbuffers, text/event-stream";
        let taken = client.execute(listen(path, both)).await.unwrap();
        assert_eq!(taken.headers()["content-type"], "text/event-stream");
    }
}
