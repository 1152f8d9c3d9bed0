//! Authentication and rate limits of the MCP endpoints, and responses to invalid requests.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use switchboard_protocol::token::Scope;

use crate::{
    mcp_client::{LEGACY, STATELESS, exchange, legacy, modern, post},
    test_gateway::TestGateway,
};

const DEVICE: &str = "/mcp/devices/toy-1";

fn ping(gateway: &TestGateway) -> RequestBuilder {
    legacy(gateway, DEVICE, "ping", json!({}))
}

#[tokio::test]
async fn missing_credential_refers_to_the_metadata() {
    let gateway = TestGateway::with_flags(&[
        "--public-url=https://devices.example.com/",
        "--mcp-authorization-servers=https://login.example.com",
    ])
    .await;
    let refused = exchange(gateway.anonymous(Method::POST, DEVICE)).await;
    assert_eq!(refused.status, 401);
    let document =
        "https://devices.example.com/.well-known/oauth-protected-resource/mcp/devices/toy-1";
    assert_eq!(
        refused.headers["www-authenticate"],
        format!("Bearer resource_metadata=\"{document}\"")
    );
    let path = document.trim_start_matches("https://devices.example.com");
    let published = exchange(gateway.anonymous(Method::GET, path)).await;
    assert_eq!(
        published.last(),
        &json!({
            "resource": "https://devices.example.com/mcp/devices/toy-1",
            "authorization_servers": ["https://login.example.com"],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["call", "read"],
            "resource_name": "Switchboard",
        })
    );
}

#[tokio::test]
async fn key_without_the_scope_is_refused() {
    let gateway = TestGateway::start().await;
    let key = gateway.add_key(&[Scope::Read]).await;
    let request = gateway.request_as(&key, Method::POST, DEVICE);
    let refused = exchange(request.header("accept", "application/json, text/event-stream")).await;
    assert_eq!(refused.status, 403);
    let challenge = refused.headers["www-authenticate"].to_str().unwrap();
    assert!(challenge.contains("insufficient_scope") && challenge.contains("scope=\"call\""));
    assert!(challenge.contains("resource_metadata="), "{challenge}");
}

#[tokio::test]
async fn rate_limited_call_reports_retry_after() {
    let gateway =
        TestGateway::with_flags(&["--called-device-rate-per-s=1", "--called-device-burst=2"]).await;
    gateway.connect("toy-1").await;
    let call = || {
        modern(
            &gateway,
            DEVICE,
            "tools/call",
            json!({"name": "echo", "arguments": {}}),
        )
    };
    for _ in 0..2 {
        assert_eq!(exchange(call()).await.status, 200);
    }
    let refused = exchange(call()).await;
    assert_eq!((refused.status, refused.error_code()), (429, -32000));
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(refused.last()["error"]["data"]["delivered"], "no");
    let rest = gateway.call("toy-1", r#"{"service":"echo"}"#).await;
    assert_eq!(
        (rest.status, &rest.json["type"]),
        (429, &json!("/problems/rate_limited"))
    );
    assert_eq!(gateway.edge.received.lock().len(), 2);
    gateway.assert_metric("switchboard_gateway_shed_total{reason=\"device_rate\"} 2");
    gateway.assert_metric("switchboard_gateway_shed_total{reason=\"caller_rate\"} 0");

    let gateway = TestGateway::with_flags(&["--caller-rate-per-s=1", "--caller-burst=1"]).await;
    assert_eq!(exchange(ping(&gateway)).await.status, 200);
    let refused = exchange(ping(&gateway)).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.headers["retry-after"], "1");
}

#[tokio::test]
async fn invalid_request_names_its_fault() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let check = async |request: RequestBuilder, status: u16, code: i64| {
        let refused = exchange(request).await;
        assert_eq!(
            (refused.status, refused.error_code()),
            (status, code),
            "{refused:?}"
        );
    };
    check(modern(&gateway, DEVICE, "no/such", json!({})), 404, -32601).await;
    check(modern(&gateway, DEVICE, "ping", json!({})), 404, -32601).await;
    check(
        modern(
            &gateway,
            DEVICE,
            "logging/setLevel",
            json!({"level": "info"}),
        ),
        404,
        -32601,
    )
    .await;
    for gone in [
        "initialize",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    ] {
        check(modern(&gateway, DEVICE, gone, json!({})), 404, -32601).await;
    }
    check(
        modern(&gateway, DEVICE, "tools/list", json!({})).header("mcp-method", "tools/call"),
        400,
        -32020,
    )
    .await;
    let without = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {}});
    check(
        post(&gateway, DEVICE, STATELESS, &without).header("mcp-method", "server/discover"),
        400,
        -32602,
    )
    .await;
    check(
        legacy(&gateway, DEVICE, "tools/call", json!({"arguments": {}})),
        200,
        -32602,
    )
    .await;
}

#[tokio::test]
async fn invalid_message_has_a_json_rpc_error() {
    let gateway = TestGateway::start().await;
    let send = async |body: &'static str| {
        let request = post(&gateway, DEVICE, LEGACY, &Value::Null).body(body);
        exchange(request).await
    };
    for (body, code) in [
        ("{", -32700),
        ("nonsense", -32700),
        ("7", -32600),
        ("{}", -32600),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
    ] {
        let refused = send(body).await;
        assert_eq!(
            (refused.status, refused.error_code()),
            (400, code),
            "{body}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn unsupported_content_type_is_refused() {
    let gateway = TestGateway::start().await;
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let send = async |kind: Option<&str>, body: &str| {
        let request = gateway.request(Method::POST, DEVICE).body(body.to_owned());
        let request = request.header("accept", "application/json, text/event-stream");
        exchange(match kind {
            Some(kind) => request.header("content-type", kind),
            None => request,
        })
        .await
    };
    for kind in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
    ] {
        for body in [message.as_str(), "{"] {
            let refused = send(kind, body).await;
            assert_eq!(refused.status, 415, "{kind:?} {body}");
            let detail = refused.last()["detail"].as_str().unwrap();
            assert!(detail.contains("application/json"), "{detail}");
        }
    }
    let taken = send(Some("Application/JSON;charset=utf-8"), &message).await;
    assert_eq!(taken.status, 200);
    assert_eq!(
        send(Some("application/json"), "{").await.error_code(),
        -32700
    );
}

#[tokio::test]
async fn argument_headers_must_match_the_arguments() {
    let gateway = TestGateway::start().await;
    let marked = r#"{"echo": {"parameters": {"properties": {"a": {"type": "string", "x-mcp-header": "Part"}}}}}"#;
    gateway.connect_with("toy-1", marked).await;
    let call = || {
        let params = json!({"name": "echo", "arguments": {"a": "eu"}});
        modern(&gateway, DEVICE, "tools/call", params)
    };
    for wrong in [call(), call().header("mcp-param-part", "us")] {
        let refused = exchange(wrong).await;
        assert_eq!((refused.status, refused.error_code()), (400, -32020));
    }
    assert_eq!(gateway.edge.received.lock().len(), 0);
    let taken = exchange(call().header("mcp-param-part", "eu")).await;
    assert_eq!(taken.result()["isError"], false);
    // Earlier revisions do not define these headers.
    let params = json!({"name": "echo", "arguments": {"a": "eu"}});
    let taken = exchange(legacy(&gateway, DEVICE, "tools/call", params)).await;
    assert_eq!(taken.result()["isError"], false);
}
