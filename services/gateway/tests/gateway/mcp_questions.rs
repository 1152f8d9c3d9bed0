//! A device that asks its client before it goes on.

use reqwest::Method;
use serde_json::{Value, json};
use switchboard_protocol::access::Scope;

use crate::{
    mcp_client::{DEVICE, Exchange, exchange, legacy, modern, modern_with},
    stage::Stage,
};

/// Calls a tool that asks, for a client that can do this much.
async fn call_ask(stage: &Stage, able: Value, more: Value) -> Exchange {
    let mut params = json!({"name": "ask", "arguments": {}});
    let members = params.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    let meta = json!({"io.modelcontextprotocol/clientCapabilities": able});
    exchange(modern_with(stage, DEVICE, "tools/call", params, meta)).await
}

#[tokio::test]
async fn only_a_state_shows_that_a_device_asked() {
    let stage = Stage::set().await;
    stage.connect_with("toy-1", r#"{"ask":{}}"#).await;
    // The device was asked before it was known that the client cannot answer.
    let refused = call_ask(&stage, json!({}), json!({})).await;
    assert_eq!(refused.error_code(), -32021);
    let data = &refused.last()["error"]["data"];
    let ended = (&data["outcome"], &data["delivered"]);
    assert_eq!(ended, (&json!("failed"), &json!("yes")));
    let call = stage.edge.seen.lock()[0].to_string();
    assert_eq!(data["call_id"], call);
    assert!(data["requiredCapabilities"]["elicitation"].is_object());

    // Answers to no question are the client's word and no more, and the device sees that.
    let answer = json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    let unasked = json!({"inputResponses": answer});
    let done = call_ask(&stage, json!({}), unasked).await;
    let data = &done.result()["structuredContent"]["data"];
    assert_eq!(*data, json!({"responses": answer, "state": null}));
}

#[tokio::test]
async fn a_device_may_ask_before_it_goes_on() {
    let stage = Stage::set().await;
    stage.connect_with("toy-1", r#"{"ask":{}}"#).await;
    let call = |able: Value, more: Value| call_ask(&stage, able, more);
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

    let refuse = async |able: Value, more: Value, code: i64| {
        let refused = call(able, more).await;
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

    // Another key of the same organisation has not been asked anything.
    let other = stage.add_key(&[Scope::Call]).await;
    let params =
        json!({"name": "ask", "arguments": {}, "inputResponses": answer, "requestState": state});
    let own = stage
        .request_as(&other, Method::POST, DEVICE)
        .build()
        .unwrap();
    let stolen = modern(&stage, DEVICE, "tools/call", params).headers(own.headers().clone());
    assert_eq!(exchange(stolen).await.error_code(), -32602);

    // The revision before knows no questions: the call has failed, and says why.
    let legacy = exchange(legacy(
        &stage,
        DEVICE,
        "tools/call",
        json!({"name": "ask", "arguments": {}}),
    ))
    .await;
    assert_eq!(legacy.result()["isError"], true);
    let rest = stage.call("toy-1", r#"{"service":"ask"}"#).await;
    assert_eq!(rest.json["outcome"], "failed");
    let rest = stage
        .call("toy-1", r#"{"service":"ask","input":{"responses":{}}}"#)
        .await;
    assert_eq!(rest.json["result"]["data"], json!({"responses": {}}));
}
