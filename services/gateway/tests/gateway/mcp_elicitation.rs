//! Devices that require input from the client.

use reqwest::Method;
use serde_json::{Value, json};
use switchboard_protocol::token::Scope;

use crate::{
    mcp_client::{DEVICE, Exchange, exchange, legacy, modern, modern_with},
    test_gateway::TestGateway,
};

/// Calls a tool that requires input, from a client with these capabilities.
async fn call_ask_tool(gateway: &TestGateway, capabilities: Value, more: Value) -> Exchange {
    let mut params = json!({"name": "ask", "arguments": {}});
    let members = params.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    let meta = json!({"io.modelcontextprotocol/clientCapabilities": capabilities});
    exchange(modern_with(gateway, DEVICE, "tools/call", params, meta)).await
}

#[tokio::test]
async fn input_without_state_has_null_state() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", r#"{"ask":{}}"#).await;
    // The device was called before the missing capability was known.
    let refused = call_ask_tool(&gateway, json!({}), json!({})).await;
    assert_eq!(refused.error_code(), -32021);
    let data = &refused.last()["error"]["data"];
    let ended = (&data["outcome"], &data["delivered"]);
    assert_eq!(ended, (&json!("failed"), &json!("yes")));
    let call = gateway.edge.received.lock()[0].to_string();
    assert_eq!(data["call_id"], call);
    assert!(data["requiredCapabilities"]["elicitation"].is_object());

    // Responses without a state are not verified; the device receives a null state with them.
    let answer = json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    let unasked = json!({"inputResponses": answer});
    let done = call_ask_tool(&gateway, json!({}), unasked).await;
    let data = &done.result()["structuredContent"]["data"];
    assert_eq!(*data, json!({"responses": answer, "state": null}));
}

#[tokio::test]
async fn device_can_request_input() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", r#"{"ask":{}}"#).await;
    let call = |capabilities: Value, more: Value| call_ask_tool(&gateway, capabilities, more);
    let asked = call(json!({"elicitation": {}}), json!({})).await;
    let result = asked.result();
    assert_eq!(result["resultType"], "input_required");
    let requests = result["inputRequests"].as_object().unwrap();
    assert_eq!(
        requests.keys().collect::<Vec<_>>(),
        ["name"],
        "no roots for a client without any"
    );
    assert_eq!(requests["name"]["params"]["message"], "Who?");

    let answer = json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    let state = result["requestState"].as_str().unwrap();
    let again = json!({"inputResponses": answer, "requestState": state});
    let done = call(json!({"elicitation": {}}), again.clone()).await;
    let data = &done.result()["structuredContent"]["data"];
    assert_eq!(*data, json!({"responses": answer, "state": {"step": 1}}));

    let refuse = async |capabilities: Value, more: Value, code: i64| {
        let refused = call(capabilities, more).await;
        assert_eq!(refused.error_code(), code, "{refused:?}");
    };
    let forged = json!({"inputResponses": answer, "requestState": format!("{state}x")});
    refuse(json!({"elicitation": {}}), forged, -32602).await;
    let elsewhere = json!({"inputResponses": answer, "requestState": state, "arguments": {"a": 1}});
    refuse(json!({"elicitation": {}}), elsewhere, -32602).await;
    refuse(
        json!({"elicitation": {}}),
        json!({"inputResponses": {"name": 7}}),
        -32602,
    )
    .await;
    refuse(json!({}), json!({}), -32021).await;

    // The state is bound to the API key.
    let other = gateway.add_key(&[Scope::Call]).await;
    let params =
        json!({"name": "ask", "arguments": {}, "inputResponses": answer, "requestState": state});
    let own = gateway
        .request_as(&other, Method::POST, DEVICE)
        .build()
        .unwrap();
    let stolen = modern(&gateway, DEVICE, "tools/call", params).headers(own.headers().clone());
    assert_eq!(exchange(stolen).await.error_code(), -32602);

    // In earlier revisions the call fails with the reason.
    let legacy = exchange(legacy(
        &gateway,
        DEVICE,
        "tools/call",
        json!({"name": "ask", "arguments": {}}),
    ))
    .await;
    assert_eq!(legacy.result()["isError"], true);
    let rest = gateway.call("toy-1", r#"{"service":"ask"}"#).await;
    assert_eq!(rest.json["outcome"], "failed");
    let rest = gateway
        .call("toy-1", r#"{"service":"ask","input":{"responses":{}}}"#)
        .await;
    assert_eq!(rest.json["result"]["data"], json!({"responses": {}}));
}
