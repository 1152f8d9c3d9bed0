//! A device that opens a newer connection is callable all the time, and loses no call.

use std::time::Duration;

use serde_json::json;
use switchboard_bus::Answer;
use switchboard_edge::Config;
use switchboard_protocol::{
    frame::Kind,
    outcome::{Delivered, Outcome},
    token::Claims,
};
use switchboard_test_support::eventually::eventually_true;
use tokio::{task::JoinHandle, time::interval};

use crate::{
    device::{Device, LIGHT},
    node::{Node, TEST_TIMEOUT, check},
};

const ON: &str = r#"{"on":true}"#;

async fn two_edges() -> [Node; 2] {
    start_two(Config::default()).await
}

/// Two edges that know each other.
async fn start_two(config: Config) -> [Node; 2] {
    let nodes = Node::start_two(config, None).await;
    eventually_true("the edges know each other", || {
        nodes.iter().all(|node| node.bus.other_edges() == 1)
    })
    .await;
    nodes
}

/// Drains an edge with few devices, which need not wait for others before it connects elsewhere.
async fn drain(node: &Node, device: &mut Device) {
    node.shutdown.drain();
    let goaway = device.expect(Kind::Goaway).await.json();
    assert_eq!(goaway["reason"], "drain");
    assert!(goaway["retry_after_ms"].as_u64().unwrap() <= 4, "{goaway}");
}

/// Connects the lamp of one edge to another, with no services registered there.
async fn connect_elsewhere(edge: &Node, former: &Node) -> Device {
    let mut lamp = Device::connect(edge.addr).await;
    lamp.authenticate(&former.token("lamp")).await;
    lamp
}

/// Registers a device, which receives the call that has waited for that and answers it.
async fn register_and_answer(device: &mut Device, call: JoinHandle<Answer>) {
    device.register(LIGHT).await;
    let id = device.expect(Kind::Control).await.call_id();
    device.result(&id, "done").await;
    check(&call.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
}

#[tokio::test]
async fn call_waits_until_its_device_has_registered() {
    let node = Node::start(Config::default()).await;
    let mut lamp = node.device("lamp").await;
    let answer = node.call(node.prepare("lamp", ON));
    node.metric_is("calls_queued", None, 1.0).await;
    register_and_answer(&mut lamp, answer).await;
}

#[tokio::test]
async fn call_of_a_device_that_never_registers_times_out() {
    let node = Node::start(Config::default()).await;
    let mut lamp = node.device("lamp").await;
    let mut call = node.prepare("lamp", ON);
    call.timeout = Duration::from_millis(300);
    let answer = node.call(call).await.unwrap();
    assert_eq!(answer.outcome, Outcome::TimedOut);
    node.metric_is("calls_queued", None, 0.0).await;
    lamp.register(LIGHT).await;
    // The next frame is the answer to this one, not the call.
    lamp.sync().await;
}

#[tokio::test]
async fn i14_device_that_changes_edges_is_callable_all_the_time() {
    let [one, two] = two_edges().await;
    let mut old = one.lamp("lamp").await;
    let first = two.call(one.prepare("lamp", ON));
    let first_id = old.expect(Kind::Control).await.call_id();
    drain(&one, &mut old).await;

    let mut new = connect_elsewhere(&two, &one).await;
    let second = two.call(one.prepare("lamp", ON));
    let second_id = old.expect(Kind::Control).await.call_id();

    new.register(LIGHT).await;
    let third = two.call(one.prepare("lamp", ON));
    let third_id = new.expect(Kind::Control).await.call_id();
    new.result(&third_id, "done").await;
    // The old connection completes its calls, and is closed after the last one.
    old.result(&first_id, "done").await;
    old.result(&second_id, "done").await;
    for answer in [first, second, third] {
        check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    }
    old.expect_end().await;
}

#[tokio::test]
async fn idle_device_is_called_on_a_draining_edge_until_it_has_registered_elsewhere() {
    let [one, two] = two_edges().await;
    let mut old = one.lamp("lamp").await;
    drain(&one, &mut old).await;
    for _ in 0..3 {
        let answer = two.call(one.prepare("lamp", ON));
        let id = old.expect(Kind::Control).await.call_id();
        old.result(&id, "done").await;
        check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    }
    let mut new = connect_elsewhere(&two, &one).await;
    new.register(LIGHT).await;
    old.expect_end().await;
    assert!(one.edge.finished(TEST_TIMEOUT).await, "the edge must stop");
}

#[tokio::test]
async fn call_waits_for_a_device_that_closes_before_it_connects_elsewhere() {
    let [one, two] = two_edges().await;
    let mut old = one.lamp("lamp").await;
    drain(&one, &mut old).await;
    drop(old);
    one.metric_is("left_total", Some("drain"), 1.0).await;
    let answer = two.call(one.prepare("lamp", ON));
    let mut new = connect_elsewhere(&two, &one).await;
    register_and_answer(&mut new, answer).await;
}

#[tokio::test]
async fn device_that_ignores_goaway_is_closed_when_the_time_is_over() {
    let config = Config {
        device_drain_timeout_ms: 300,
        ..Config::default()
    };
    let [one, _two] = start_two(config).await;
    let mut lamp = one.lamp("lamp").await;
    drain(&one, &mut lamp).await;
    lamp.expect_end().await;
    assert!(one.edge.finished(TEST_TIMEOUT).await, "the edge must stop");
}

#[tokio::test]
async fn call_that_waits_on_a_draining_connection_follows_its_device() {
    let [one, two] = two_edges().await;
    let mut old = one.device("lamp").await;
    let answer = two.call(one.prepare("lamp", ON));
    one.metric_is("calls_queued", None, 1.0).await;
    drain(&one, &mut old).await;
    let mut new = connect_elsewhere(&two, &one).await;
    register_and_answer(&mut new, answer).await;
    old.expect_end().await;
}

#[tokio::test]
async fn i14_call_in_the_last_third_of_a_drain_waits_for_its_device() {
    let config = Config {
        device_drain_timeout_ms: 3_000,
        ..Config::default()
    };
    let [one, two] = start_two(config).await;
    let mut old = one.lamp("lamp").await;
    drain(&one, &mut old).await;
    // The device has calls in flight until it receives no further one.
    let (mut delivered, mut ids) = (Vec::new(), Vec::new());
    let mut ticks = interval(Duration::from_millis(200));
    let waiting = loop {
        ticks.tick().await;
        let call = two.call(one.prepare("lamp", ON));
        match old.next_within(Duration::from_millis(500)).await {
            Some(frame) => ids.push(frame.call_id()),
            None => break call,
        }
        delivered.push(call);
    };
    assert!(!waiting.is_finished(), "{:?}", waiting.await);
    for id in ids {
        old.result(&id, "done").await;
    }
    old.expect_end().await;
    for answer in delivered {
        check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    }
    let mut new = connect_elsewhere(&two, &one).await;
    register_and_answer(&mut new, waiting).await;
}

/// A connection that completes its calls after a newer one on the same edge has replaced it, and the
/// claims of its token.
async fn replaced_during_a_drain(one: &Node) -> (Device, Claims, Device) {
    let claims = one.claims("lamp");
    let mut older = Device::connect(one.addr).await;
    older.authenticate(&one.sign(&claims)).await;
    older.register(LIGHT).await;
    let mut newer = one.device("lamp").await;
    one.metric_is("connections", None, 2.0).await;
    drain(one, &mut newer).await;
    older.expect(Kind::Goaway).await;
    (older, claims, newer)
}

#[tokio::test]
async fn i11_revoked_token_closes_a_replaced_connection_that_completes_its_calls() {
    let [one, two] = two_edges().await;
    let (mut older, claims, mut newer) = replaced_during_a_drain(&one).await;
    let answer = two.call(one.prepare("lamp", ON));
    older.expect(Kind::Control).await;
    newer.register(LIGHT).await;
    let caller = &one.caller;
    caller.revoke(claims.id, claims.expires_at).await.unwrap();
    older.expect_error("token_revoked").await;
    check(&answer.await.unwrap(), Outcome::Lost, Delivered::Unknown);
    newer.sync().await;
}

#[tokio::test]
async fn call_of_a_replaced_connection_ends_when_its_caller_or_its_deadline_ends_it() {
    let [one, two] = two_edges().await;
    let (mut older, _, mut newer) = replaced_during_a_drain(&one).await;
    let cancelled = two.call(one.prepare("lamp", ON));
    let id = older.expect(Kind::Control).await.call_id();
    let mut short = one.prepare("lamp", ON);
    short.timeout = Duration::from_secs(1);
    let timed_out = two.call(short);
    older.expect(Kind::Control).await;
    newer.register(LIGHT).await;
    cancelled.abort();
    let cancel = older.expect(Kind::Control).await.json();
    assert_eq!(cancel, json!({"type": "cancel", "data": {"call_id": id}}));
    let answer = timed_out.await.unwrap();
    check(&answer, Outcome::TimedOut, Delivered::Unknown);
    // Without calls it closes, however the last one ended.
    while let Some(frame) = older.next().await {
        assert_eq!(frame.json()["type"], "cancel");
    }
    newer.sync().await;
}

#[tokio::test]
async fn connection_that_does_not_register_replaces_the_older_one_later() {
    let node = Node::start(Config::default()).await;
    let mut older = node.lamp("lamp").await;
    let mut newer = node.device("lamp").await;
    let epoch = async || {
        let presence = node.caller.find(&node.device_key("lamp")).await.unwrap();
        presence.unwrap().epoch
    };
    let registered = epoch().await;
    older.expect_goaway("takeover").await;
    assert!(epoch().await > registered);
    newer.register(LIGHT).await;
    let answer = node.call(node.prepare("lamp", ON));
    let id = newer.expect(Kind::Control).await.call_id();
    newer.result(&id, "done").await;
    check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    node.metric_is("connections", None, 1.0).await;
}

#[tokio::test]
async fn newer_connection_that_closes_leaves_the_registered_one() {
    let node = Node::start(Config::default()).await;
    let mut older = node.lamp("lamp").await;
    for _ in 0..3 {
        let newer = node.device("lamp").await;
        node.metric_is("connections", None, 2.0).await;
        drop(newer);
        node.metric_is("connections", None, 1.0).await;
    }
    let answer = node.call(node.prepare("lamp", ON));
    let id = older.expect(Kind::Control).await.call_id();
    older.result(&id, "done").await;
    check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    eventually_true("one connection has a slot", || {
        node.budget_used("device_connections") == 1
    })
    .await;
}
