//! Results are checked against the schema that the service declares, and delivered with a mark when
//! they do not match.

use serde_json::{Value, json};
use switchboard_bus::{Answer, Call};
use switchboard_edge::Config;
use switchboard_protocol::{
    frame::Kind,
    outcome::{Delivered, Outcome},
};
use switchboard_test_support::eventually::eventually_true;
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    device::Device,
    node::{Node, TEST_TIMEOUT, check, json},
};

/// A service that returns values of this schema.
fn returning(output: &Value) -> String {
    json!({"measure": {"output": output}}).to_string()
}

fn degrees() -> Value {
    json!({"type": "object", "properties": {"degrees": {"type": "number"}}, "required": ["degrees"]})
}

fn measure(node: &Node, device: &str) -> JoinHandle<Answer> {
    node.call(Call {
        service: "measure".into(),
        timeout: TEST_TIMEOUT,
        ..node.prepare(device, "{}")
    })
}

/// Answers a call that the device receives next.
async fn answer(device: &mut Device, result: &Value) {
    let id = device.expect(Kind::Control).await.call_id();
    send_result(device, &id, result).await;
}

async fn send_result(device: &mut Device, id: &str, result: &Value) {
    device
        .message(&json!({"type": "result", "data": {"call_id": id, "result": result}}))
        .await;
}

#[tokio::test]
async fn result_that_does_not_match_is_delivered_with_a_mark() {
    let node = Node::start(Config::default()).await;
    let mut device = node.device("toy").await;
    device.register(&returning(&degrees())).await;
    let large = "x".repeat(40_000);
    for (result, is_valid) in [
        (json!({"success": true, "data": {"degrees": 21.5}}), true),
        (json!({"success": true, "data": {"degrees": "warm"}}), false),
        (json!({"success": true}), false),
        // Checked off the worker.
        (
            json!({"success": true, "data": {"degrees": 1, "note": large}}),
            true,
        ),
        (
            json!({"success": true, "data": {"degrees": "1", "note": large}}),
            false,
        ),
    ] {
        let called = measure(&node, "toy");
        answer(&mut device, &result).await;
        let called = called.await.unwrap();
        check(&called, Outcome::Succeeded, Delivered::Yes);
        assert_eq!(json(&called.body), result);
        assert_eq!(called.result_valid, is_valid, "{result}");
    }
    // The schema describes what the service returns, not how it fails.
    let called = measure(&node, "toy");
    answer(&mut device, &json!({"success": false, "data": 1})).await;
    let called = called.await.unwrap();
    check(&called, Outcome::Failed, Delivered::Yes);
    assert!(called.result_valid);
    node.metric_is("invalid_results_total", Some("mismatch"), 3.0)
        .await;
    node.metric_is("invalid_results_total", Some("unchecked"), 0.0)
        .await;
}

#[tokio::test]
async fn result_is_checked_against_the_services_of_its_call() {
    let node = Node::start(Config::default()).await;
    let mut device = node.device("toy").await;
    device.register(&returning(&degrees())).await;
    let called = measure(&node, "toy");
    let id = device.expect(Kind::Control).await.call_id();
    device
        .register(&returning(&json!({"type": "string"})))
        .await;
    device.result(&id, "warm").await;
    assert!(!called.await.unwrap().result_valid);
    let called = measure(&node, "toy");
    answer(&mut device, &json!({"success": true, "data": "warm"})).await;
    assert!(called.await.unwrap().result_valid);
    // Nothing is expected of a service without such a schema.
    device.register(r#"{"measure":{}}"#).await;
    let called = measure(&node, "toy");
    answer(&mut device, &json!({"success": true, "data": 7})).await;
    assert!(called.await.unwrap().result_valid);
}

#[tokio::test]
async fn large_result_without_room_is_sent_unchecked() {
    let result = json!({"success": true, "data": {"degrees": 1, "note": "x".repeat(40_000)}});
    for (device_messages_bytes, is_checked) in [(64 * 1024, true), (32 * 1024, false)] {
        let node = Node::start(Config {
            device_messages_bytes,
            ..Config::default()
        })
        .await;
        let mut device = node.device("toy").await;
        device.register(&returning(&degrees())).await;
        let called = measure(&node, "toy");
        answer(&mut device, &result).await;
        let called = called.await.unwrap();
        check(&called, Outcome::Succeeded, Delivered::Yes);
        assert_eq!(json(&called.body), result);
        assert_eq!(called.result_valid, is_checked);
        let unchecked = if is_checked { 0.0 } else { 1.0 };
        node.metric_is("invalid_results_total", Some("unchecked"), unchecked)
            .await;
        eventually_true("all is returned", || {
            node.budget_used("device_messages") == 0
        })
        .await;
    }
}

/// A check that ran on the worker would not wait for the pool.
#[test]
fn results_that_are_checked_in_the_pool_do_not_delay_other_devices() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(check_while_the_pool_is_full());
}

async fn check_while_the_pool_is_full() {
    let node = Node::start(Config::default()).await;
    let (mut toy, mut lamp) = (node.device("toy").await, node.lamp("lamp").await);
    // As costly as a pattern may be.
    let costly = json!({"type": "string", "pattern": "(?:a?){900}a{900}c", "maxLength": 700});
    let costly = json!({"type": "array", "items": costly});
    toy.register(&returning(&costly)).await;
    let data: Vec<_> = (0..8).map(|_| "a".repeat(700)).collect();
    // The only thread of the pool.
    let (release, released) = oneshot::channel::<()>();
    let occupied = tokio::task::spawn_blocking(move || released.blocking_recv());
    let called: Vec<_> = (0..8).map(|_| measure(&node, "toy")).collect();
    let mut ids = Vec::new();
    for _ in &called {
        ids.push(toy.expect(Kind::Control).await.call_id());
    }
    for id in ids {
        send_result(&mut toy, &id, &json!({"success": true, "data": data})).await;
    }
    // The first one waits for the pool, and the others for the first.
    let waits = || node.budget_used("device_messages") > 0;
    eventually_true("a result waits for its check", waits).await;
    let light = node.call(node.prepare("lamp", r#"{"on":true}"#));
    let id = lamp.expect(Kind::Control).await.call_id();
    lamp.result(&id, "lit").await;
    check(&light.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    assert!(called.iter().all(|called| !called.is_finished()));
    assert!(node.metric("invalid_results_total", Some("mismatch")) < 0.5);
    release.send(()).unwrap();
    occupied.await.unwrap().unwrap();
    for called in called {
        let called = called.await.unwrap();
        check(&called, Outcome::Succeeded, Delivered::Yes);
        assert!(!called.result_valid);
    }
}
