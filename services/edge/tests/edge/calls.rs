//! Calls to devices: each ends exactly once, with the true outcome.

use std::time::Duration;

use serde_json::json;
use switchboard_edge::Config;
use switchboard_protocol::{
    frame::{self, Kind, SeqFormat, TaskId},
    outcome::{Delivered, Outcome},
};
use switchboard_test_support::eventually::eventually_true;

use crate::node::{Node, TEST_TIMEOUT, check, json};

const ON: &str = r#"{"on":true}"#;

#[tokio::test]
async fn call_is_delivered_and_its_result_returned() {
    let node = Node::start(Config::default()).await;
    let mut lamp = node.lamp("lamp").await;
    let call = node.prepare("lamp", r#"{"on":true,"说明":"开灯 ##END"}"#);
    let id = call.id;
    let answer = node.call(call);
    let message = lamp.expect(Kind::Control).await.json();
    assert_eq!(message["type"], "call");
    assert_eq!(message["data"]["call_id"], id.to_string());
    assert_eq!(message["data"]["method"], "light");
    assert_eq!(
        message["data"]["params"],
        json!({"on": true, "说明": "开灯 ##END"})
    );
    let result = format!(
        r#"{{"type":"result","data":{{"call_id":"{id}","result":{{ "success" : true, "data":"好" }}}}}}"#
    );
    lamp.send(Kind::Control, TaskId::MCP, 0, result.as_bytes())
        .await;
    let answer = answer.await.unwrap();
    check(&answer, Outcome::Succeeded, Delivered::Yes);
    assert_eq!(
        answer.body,
        r#"{ "success" : true, "data":"好" }"#.as_bytes()
    );
}

#[tokio::test]
async fn failure_is_returned_as_the_device_sent_it() {
    let node = Node::start(Config::default()).await;
    let mut lamp = node.lamp("lamp").await;
    let answer = node.call(node.prepare("lamp", ON));
    let id = lamp.expect(Kind::Control).await.call_id();
    let result = json!({"success": false, "error": "bulb gone"});
    lamp.message(&json!({"type": "result", "data": {"call_id": id, "result": result}}))
        .await;
    let answer = answer.await.unwrap();
    check(&answer, Outcome::Failed, Delivered::Yes);
    assert_eq!(json(&answer.body), result);
}

#[tokio::test]
async fn frames_use_the_seq_format_and_task_of_the_device() {
    let node = Node::start(Config::default()).await;
    let mut lamp = node.device("lamp").await;
    let task = TaskId(*b"mine    ");
    let register = format!(
        r#"{{"type":"register","data":{{"services":{}}}}}"#,
        crate::device::LIGHT
    );
    let mut bytes = Vec::new();
    frame::encode(
        &mut bytes,
        Kind::Control,
        task,
        0,
        SeqFormat::Bracketed,
        register.as_bytes(),
    );
    lamp.send_raw(&bytes).await;
    let answer = lamp.expect(Kind::Control).await;
    assert_eq!(
        (answer.task, answer.seq_format),
        (task, SeqFormat::Bracketed)
    );
    let _answer = node.call(node.prepare("lamp", ON));
    let call = lamp.expect(Kind::Control).await;
    assert_eq!((call.task, call.seq_format), (task, SeqFormat::Bracketed));
}

#[tokio::test]
async fn invalid_call_never_reaches_the_device() {
    let config = Config {
        device_max_frame_bytes: 2_048,
        ..Config::default()
    };
    let node = Node::start(config).await;
    let mut lamp = node.lamp("lamp").await;
    let answer = node
        .call(node.prepare("lamp", r#"{"on":"yes"}"#))
        .await
        .unwrap();
    check(&answer, Outcome::Invalid, Delivered::No);
    assert_eq!(answer.refusal().unwrap().errors[0].pointer, "/on");
    let answer = node.call(node.prepare("lamp", "{}")).await.unwrap();
    check(&answer, Outcome::Invalid, Delivered::No);

    let mut call = node.prepare("lamp", ON);
    call.service = "dance".into();
    check(
        &node.call(call).await.unwrap(),
        Outcome::UnknownService,
        Delivered::No,
    );

    let large = format!(r#"{{"on":true,"note":"{}"}}"#, "x".repeat(2_048));
    let answer = node.call(node.prepare("lamp", &large)).await.unwrap();
    check(&answer, Outcome::Overloaded, Delivered::No);
    assert!(answer.refusal().unwrap().detail.contains("too large"));

    let answer = node.call(node.prepare("absent", ON)).await.unwrap();
    check(&answer, Outcome::Offline, Delivered::No);
    lamp.sync().await;
    node.metric_is("dispatched_total", None, 0.0).await;
}

#[tokio::test]
async fn unmatched_result_is_dropped() {
    let node = Node::start(Config::default()).await;
    let (mut lamp, mut other) = (node.lamp("lamp").await, node.lamp("other").await);
    let answer = node.call(node.prepare("lamp", ON));
    let id = lamp.expect(Kind::Control).await.call_id();

    other.result(&id, "stolen").await;
    other.result("call_001", "invented").await;
    other.sync().await;
    node.metric_is("stray_results_total", Some("foreign"), 2.0)
        .await;
    assert!(!answer.is_finished());

    lamp.result(&id, "mine").await;
    lamp.result(&id, "repeat_call").await;
    lamp.sync().await;
    node.metric_is("stray_results_total", Some("repeated"), 1.0)
        .await;
    let answer = answer.await.unwrap();
    check(&answer, Outcome::Succeeded, Delivered::Yes);
    assert_eq!(json(&answer.body)["data"], "mine");
}

#[tokio::test]
async fn timed_out_call_drops_the_late_result() {
    let node = Node::start(Config {
        device_write_stall_ms: 100,
        ..Config::default()
    })
    .await;
    let mut lamp = node.lamp("lamp").await;
    let mut call = node.prepare("lamp", ON);
    call.timeout = Duration::from_millis(200);
    let answer = node.call(call);
    let id = lamp.expect(Kind::Control).await.call_id();
    check(
        &answer.await.unwrap(),
        Outcome::TimedOut,
        Delivered::Unknown,
    );
    node.metric_is("calls_in_flight", None, 0.0).await;
    // The caller's bus cancels the call it stopped waiting for, and the device receives the cancel,
    // unless a sweep of the edge ended the call before.
    let ended = |how| node.metric("calls_total", Some(how)) > 0.5;
    eventually_true("the edge has ended the call", || {
        ended("cancelled") || ended("timed_out")
    })
    .await;
    if ended("cancelled") {
        let cancel = lamp.expect(Kind::Control).await.json();
        assert_eq!(cancel["type"], "cancel");
    }
    lamp.result(&id, "too late").await;
    node.metric_is("stray_results_total", Some("late"), 1.0)
        .await;
}

#[tokio::test]
async fn shorter_service_timeout_applies() {
    let node = Node::start(Config {
        device_write_stall_ms: 100,
        ..Config::default()
    })
    .await;
    let mut lamp = node.device("lamp").await;
    lamp.register(
        r#"{"light":{"description":"d","parameters":{"type":"object"},"timeout_ms":100}}"#,
    )
    .await;
    let answer = node.call(node.prepare("lamp", ON));
    lamp.expect(Kind::Control).await;
    check(
        &answer.await.unwrap(),
        Outcome::TimedOut,
        Delivered::Unknown,
    );
}

#[tokio::test]
async fn cancelled_call_notifies_the_device() {
    let node = Node::start(Config::default()).await;
    let mut lamp = node.lamp("lamp").await;
    let answer = node.call(node.prepare("lamp", ON));
    let id = lamp.expect(Kind::Control).await.call_id();
    answer.abort();
    let cancel = lamp.expect(Kind::Control).await.json();
    assert_eq!(cancel, json!({"type": "cancel", "data": {"call_id": id}}));
    lamp.result(&id, "too late").await;
    node.metric_is("stray_results_total", Some("late"), 1.0)
        .await;
}

#[tokio::test]
async fn i2_repeated_call_id_is_refused() {
    let node = Node::start(Config::default()).await;
    let mut lamp = node.lamp("lamp").await;
    let call = node.prepare("lamp", ON);
    let id = call.id.to_string();
    let repeat_call = async || {
        let answer = node.call(call.clone()).await.unwrap();
        check(&answer, Outcome::Invalid, Delivered::No);
    };
    let first = node.call(call.clone());
    assert_eq!(lamp.expect(Kind::Control).await.call_id(), id);
    repeat_call().await;
    // The call in flight is not affected: its result is its own, and so are later ones.
    lamp.result(&id, "first").await;
    let answer = first.await.unwrap();
    check(&answer, Outcome::Succeeded, Delivered::Yes);
    assert_eq!(json(&answer.body)["data"], "first");
    repeat_call().await;
    let other = node.call(node.prepare("lamp", ON));
    let next = lamp.expect(Kind::Control).await.call_id();
    assert_ne!(next, id, "the repeated calls must not reach the device");
    lamp.result(&next, "other").await;
    check(&other.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    node.metric_is("dispatched_total", None, 2.0).await;
}

#[tokio::test]
async fn call_beyond_the_in_flight_limit_is_overloaded() {
    let node = Node::start(Config {
        device_max_calls_in_flight: 2,
        ..Config::default()
    })
    .await;
    let mut lamp = node.lamp("lamp").await;
    let first = [
        node.call(node.prepare("lamp", ON)),
        node.call(node.prepare("lamp", ON)),
    ];
    let ids = [
        lamp.expect(Kind::Control).await.call_id(),
        lamp.expect(Kind::Control).await.call_id(),
    ];
    let answer = node.call(node.prepare("lamp", ON)).await.unwrap();
    check(&answer, Outcome::Overloaded, Delivered::No);
    for id in ids {
        lamp.result(&id, "done").await;
    }
    for answer in first {
        check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    }
}

#[tokio::test]
async fn lost_connection_ends_calls_in_flight() {
    let node = Node::start(Config::default()).await;
    let mut lamp = node.lamp("lamp").await;
    let answer = node.call(node.prepare("lamp", ON));
    lamp.expect(Kind::Control).await;
    drop(lamp);
    let answer = tokio::time::timeout(TEST_TIMEOUT / 5, answer)
        .await
        .unwrap()
        .unwrap();
    check(&answer, Outcome::Lost, Delivered::Unknown);
    node.metric_is("left_total", Some("closed"), 1.0).await;
    let answer = node.call(node.prepare("lamp", ON)).await.unwrap();
    check(&answer, Outcome::Offline, Delivered::No);
}

#[tokio::test]
async fn many_concurrent_calls_all_complete() {
    let node = Node::start(Config::default()).await;
    let mut lamp = node.lamp("lamp").await;
    for _ in 0..20 {
        let answers: Vec<_> = (0..50)
            .map(|_| node.call(node.prepare("lamp", ON)))
            .collect();
        for _ in 0..50 {
            let id = lamp.expect(Kind::Control).await.call_id();
            lamp.result(&id, "done").await;
        }
        for answer in answers {
            check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
        }
    }
    eventually_true("every call is counted", || {
        (node.metric("calls_total", Some("succeeded")) - 1_000.0).abs() < 0.5
    })
    .await;
}

#[tokio::test]
async fn call_beyond_the_queued_bytes_limit_is_overloaded() {
    let node = Node::start(Config {
        device_max_waiting_bytes: 1_000,
        ..Config::default()
    })
    .await;
    let _lamp = node.lamp("lamp").await;
    let large = format!(r#"{{"on":true,"note":"{}"}}"#, "x".repeat(1_000));
    let answer = node.call(node.prepare("lamp", &large)).await.unwrap();
    check(&answer, Outcome::Overloaded, Delivered::No);
}

#[tokio::test]
async fn stalled_socket_keeps_calls_queued() {
    let node = Node::start(Config {
        device_max_waiting_bytes: usize::MAX,
        ..Config::default()
    })
    .await;
    let lamp = node.lamp("lamp").await;
    let large = format!(r#"{{"on":true,"note":"{}"}}"#, "x".repeat(200_000));
    let calls: Vec<_> = (0..60)
        .map(|_| {
            let (caller, call) = (node.caller.clone(), node.prepare("lamp", &large));
            // The caller's bus may refuse some of so many bytes at once; this test ignores that.
            node.shutdown.spawn(async move { caller.call(call).await })
        })
        .collect();
    eventually_true("calls are queued", || {
        node.metric("calls_queued", None) > 0.5
    })
    .await;
    assert!(node.metric("calls_in_flight", None) > 0.5);
    drop(lamp);
    for call in calls {
        let _ended = tokio::time::timeout(TEST_TIMEOUT, call)
            .await
            .unwrap()
            .unwrap();
    }
    node.metric_is("calls_queued", None, 0.0).await;
    node.metric_is("calls_in_flight", None, 0.0).await;
}
