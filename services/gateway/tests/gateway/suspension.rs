//! A suspended organisation: its queued calls wait.

use reqwest::Method;
use serde_json::json;
use switchboard_store::CallState;
use switchboard_test_support::eventually::{eventually, eventually_true};

use crate::{
    shares::OtherOrg,
    test_gateway::{TEST_TIMEOUT, TestGateway, send},
};

#[tokio::test]
async fn queued_call_of_a_suspended_organisation_waits() {
    let gateway = TestGateway::with_flags(&["--queue-sweep-ms", "50"]).await;
    let other = OtherOrg::new(&gateway).await;
    let queued = r#"{"service":"echo","mode":"queued"}"#;
    let call = gateway.call("toy-1", queued).await.json["call_id"].clone();
    let bus = &gateway.edge.bus;
    bus.publish_suspended_orgs(&[gateway.org], 1).await.unwrap();
    eventually_true("the gateway knows the suspension", || {
        gateway.bus.is_suspended(gateway.org)
    })
    .await;
    let due = async || gateway.store.call_queues(None, true, 1).await.unwrap();
    eventually(TEST_TIMEOUT, due, Vec::is_empty).await;
    // The sweep has postponed the queue: the device is absent.
    gateway.connect("toy-1").await;
    // Each of these is delivered by a wake-up after the one of the suspended organisation's device.
    for toy in ["toy-2", "toy-3"] {
        let path = format!("/v1/devices/{toy}/calls");
        let request = gateway.request_as(&other.key, Method::POST, &path);
        let accepted = send(request.json(&json!({"service": "echo", "mode": "queued"}))).await;
        let id = accepted.json["call_id"].clone();
        other.connect(&gateway, toy).await;
        eventually_true("the call of the other organisation is delivered", || {
            json!(*gateway.edge.received.lock())
                .as_array()
                .unwrap()
                .contains(&id)
        })
        .await;
    }
    assert_eq!(*gateway.edge.called.lock(), ["toy-2", "toy-3"]);
    let id = call.as_str().unwrap().parse().unwrap();
    let stored = gateway.store.stored_call(gateway.org, id).await.unwrap();
    assert_eq!(stored.unwrap().state, CallState::Queued);

    bus.publish_suspended_orgs(&[], 2).await.unwrap();
    let state = async || {
        let stored = gateway.store.stored_call(gateway.org, id).await.unwrap();
        stored.unwrap().state
    };
    eventually(TEST_TIMEOUT, state, |state| *state == CallState::Ended).await;
    let ended = gateway.wait_for_end(&call).await;
    assert_eq!(ended.json["outcome"], "succeeded", "{}", ended.text);
    assert_eq!(gateway.edge.called.lock().last().unwrap(), "toy-1");
}
