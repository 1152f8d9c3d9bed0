//! A result that does not match the schema that its service declares, at each door of the system: it
//! is delivered and marked.

use std::process::Output;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use switchboard_mcp_flatbuffers as flat;
use tokio::process::Command;

use crate::{
    cluster::TestCluster,
    device::Device,
    system::ChatFixture,
    turns::task,
    webhooks::{Endpoint, LOOPBACK},
};

const MISMATCH: &str = "does not match the output schema";

fn services() -> String {
    let output = json!({"type": "object", "properties": {"degrees": {"type": "number"}}, "required": ["degrees"]});
    json!({"measure": {"description": "Measure the temperature", "output": output}}).to_string()
}

/// A device that measures; the test answers its calls.
async fn thermometer(cluster: &TestCluster) -> Device {
    let mut device = cluster.device(0, "toy-1").await;
    device.register(&services()).await;
    device
}

/// Answers the next call with this data while the request runs.
async fn answered<T>(device: &mut Device, data: &Value, request: impl Future<Output = T>) -> T {
    let answering = async {
        let (id, ..) = device.next_call().await;
        let result = json!({"success": true, "data": data});
        device.answer(&id, &result).await;
    };
    tokio::join!(request, answering).0
}

/// Data that does not match, and data that does.
fn cases() -> [(Value, bool); 2] {
    [
        (json!({"degrees": "warm"}), false),
        (json!({"degrees": 21.5}), true),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn mismatch_is_marked_over_rest_and_on_the_command_line() {
    let cluster = TestCluster::start(1).await;
    let mut device = thermometer(&cluster).await;
    for (data, is_valid) in cases() {
        let mark = if is_valid { Value::Null } else { json!(false) };
        let body = json!({"service": "measure"});
        let called = cluster.call("toy-1", &body);
        let (status, called) = answered(&mut device, &data, called).await;
        assert_eq!(status, 200, "{called}");
        assert_eq!(called["outcome"], "succeeded", "{called}");
        assert_eq!(called["result"]["data"], data, "{called}");
        assert_eq!(called["result_valid"], mark, "{called}");

        let mut command = Command::new(env!("CARGO_BIN_EXE_switchboard"));
        command
            .args(["call", "toy-1", "measure"])
            .env("SWITCHBOARD_URL", cluster.gateway.address("http_url"))
            .env("SWITCHBOARD_API_KEY", &cluster.org.key);
        let Output {
            status,
            stdout,
            stderr,
        } = answered(&mut device, &data, command.output())
            .await
            .unwrap();
        let printed: Value = serde_json::from_slice(&stdout).unwrap();
        let note = String::from_utf8(stderr).unwrap();
        assert!(status.success(), "{note}");
        assert_eq!(printed, data);
        assert_eq!(note.contains(MISMATCH), !is_valid, "{note}");
    }
    let url = format!("{}/metrics", cluster.edges[0].address("admin_url"));
    let metrics = cluster.http.get(url).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let line = r#"switchboard_edge_invalid_results_total{reason="mismatch"} 2"#;
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mismatch_is_marked_in_stored_calls_and_webhooks() {
    let cluster = TestCluster::start_with(1, &[LOOPBACK]).await;
    let endpoint = Endpoint::start(false).await;
    cluster.listen(&endpoint, &["call.finished"]).await;
    let mut device = thermometer(&cluster).await;
    for (data, is_valid) in cases() {
        let mark = if is_valid { Value::Null } else { json!(false) };
        for mode in ["async", "queued"] {
            let body = json!({"service": "measure", "mode": mode});
            let called = cluster.call("toy-1", &body);
            let (status, called) = answered(&mut device, &data, called).await;
            assert_eq!(status, 202, "{called}");
            let id = called["call_id"].as_str().unwrap();
            let path = format!("/v1/calls/{id}?wait_ms=10000");
            let (_, ended) = cluster.get(&path).await;
            assert_eq!(ended["outcome"], "succeeded", "{ended}");
            assert_eq!(ended["result"]["data"], data, "{ended}");
            assert_eq!(ended["result_valid"], mark, "{ended}");
            let is_event = |event: &Value| {
                let sent = &event["data"];
                sent["call_id"] == id
                    && sent["result"]["data"] == data
                    && sent["result_valid"] == mark
            };
            endpoint.receives(is_event).await;
        }
    }
}

/// Calls of the tool over MCP: in each revision, in JSON and in FlatBuffers.
fn tool_call(cluster: &TestCluster, revision: &str, in_flatbuffers: bool) -> RequestBuilder {
    const STATELESS: &str = "2026-07-28";
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mut params = json!({"name": "measure", "arguments": {}});
    if revision == STATELESS {
        params["_meta"] = meta;
    }
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let request = cluster
        .http
        .request(Method::POST, cluster.url("/mcp/devices/toy-1"))
        .bearer_auth(&cluster.org.key)
        .header("mcp-protocol-version", revision)
        .header("mcp-method", "tools/call")
        .header("mcp-name", "measure");
    let body = message.to_string().into_bytes();
    if in_flatbuffers {
        return request
            .header("content-type", flat::CONTENT_TYPE)
            .header("accept", flat::CONTENT_TYPE)
            .body(flat::encode(&body).unwrap());
    }
    request
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(body)
}

#[tokio::test(flavor = "multi_thread")]
async fn mismatch_is_no_structured_content_over_mcp() {
    let cluster = TestCluster::start(1).await;
    let mut device = thermometer(&cluster).await;
    for (revision, in_flatbuffers) in [
        ("2026-07-28", false),
        ("2025-11-25", false),
        ("2025-11-25", true),
    ] {
        for (data, is_valid) in cases() {
            let sent = tool_call(&cluster, revision, in_flatbuffers).send();
            let answer = answered(&mut device, &data, sent).await.unwrap();
            let answer = answer.bytes().await.unwrap();
            let answer: Value = if in_flatbuffers {
                flat::decode(&answer).unwrap()
            } else {
                serde_json::from_slice(&answer).unwrap()
            };
            check_tool_result(&answer["result"], &data, is_valid);
        }
    }
}

/// Checks the result of a tool call whose device returned this data.
pub fn check_tool_result(result: &Value, data: &Value, is_valid: bool) {
    assert_eq!(result["isError"], false, "{result}");
    let text = result["content"][0]["text"].as_str().unwrap();
    let shown: Value = serde_json::from_str(text).unwrap();
    assert_eq!(&shown, data, "{result}");
    let structured = &result["structuredContent"];
    assert_eq!(structured["outcome"], "succeeded", "{result}");
    let note = result["content"][1]["text"].as_str().unwrap_or_default();
    assert_eq!(note.contains(MISMATCH), !is_valid, "{result}");
    if is_valid {
        assert_eq!(&structured["data"], data, "{result}");
        assert!(structured.get("result_valid").is_none(), "{result}");
    } else {
        assert!(structured.get("data").is_none(), "{result}");
        assert_eq!(structured["result_valid"], false, "{result}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn model_learns_that_a_result_does_not_match() {
    let mut fixture = ChatFixture::start(1, &[]).await;
    let mut device = fixture.system.device(0, "toy-1").await;
    device.register(&services()).await;
    for (number, (data, is_valid)) in cases().into_iter().enumerate() {
        device.send_text(task(number), "How warm is it?").await;
        let request = fixture.provider.next_request().await;
        request.calls(&[("call_1", "measure", "{}")]).await;
        let (id, ..) = device.receive_call().await;
        device.send_result(&id, data.clone()).await;
        let request = fixture.provider.next_request().await;
        let (_, results) = request.last_round();
        let result = results[0]["content"].as_str().unwrap();
        assert!(result.contains(&data.to_string()), "{result}");
        assert_eq!(result.contains(MISMATCH), !is_valid, "{result}");
        request.reply("Warm.").await;
        assert_eq!(device.receive_answer(task(number)).await, "Warm.");
    }
}
