//! Progress and log messages about calls.

use switchboard_bus::{Call, Notification, NotificationKind};
use switchboard_edge::Config;
use switchboard_protocol::{
    frame::{Kind, TaskId},
    id::CallId,
    outcome::{Delivered, Outcome},
};
use tokio::sync::mpsc;

use crate::{
    device::Device,
    node::{Node, check},
};

const ON: &str = r#"{"on":true}"#;

/// A call whose caller receives notifications.
fn call_with_notifications(node: &Node, device: &str) -> (Call, mpsc::Receiver<Notification>) {
    let (sender, notifications) = mpsc::channel(16);
    let mut call = node.prepare(device, ON);
    call.notifications = Some(sender);
    (call, notifications)
}

fn notification_data(id: CallId, rest: &str) -> String {
    format!(r#"{{ "call_id" : "{id}", {rest} }}"#)
}

async fn send_notification(device: &mut Device, kind: &str, data: &str) {
    let message = format!(r#"{{"type":"{kind}","data":{data}}}"#);
    device
        .send(Kind::Control, TaskId::MCP, 0, message.as_bytes())
        .await;
}

fn notification(kind: NotificationKind, data: String) -> Notification {
    Notification {
        kind,
        data: data.into(),
    }
}

#[tokio::test]
async fn notifications_reach_the_caller_before_the_answer() {
    let node = Node::start(Config::default()).await;
    let mut lamp = node.lamp("lamp").await;
    let (call, mut notifications) = call_with_notifications(&node, "lamp");
    let id = call.id;
    let answer = node.call(call);
    lamp.expect(Kind::Control).await;
    let half = notification_data(id, r#""progress": 1, "total": 2, "message": "一半""#);
    let note = notification_data(id, r#""level":"info","message":"warm""#);
    send_notification(&mut lamp, "progress", &half).await;
    send_notification(&mut lamp, "log", &note).await;
    lamp.result(&id.to_string(), "done").await;
    check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    assert_eq!(
        notifications.try_recv(),
        Ok(notification(NotificationKind::Progress, half)),
        "the notification must be unchanged and arrive before the answer"
    );
    assert_eq!(
        notifications.try_recv(),
        Ok(notification(NotificationKind::Log, note))
    );
    assert_eq!(notifications.recv().await, None);
}

#[tokio::test]
async fn i5_notifications_for_other_calls_are_dropped() {
    let node = Node::start(Config::default()).await;
    let (mut lamp, mut other) = (node.lamp("lamp").await, node.lamp("other").await);
    let (call, mut notifications) = call_with_notifications(&node, "lamp");
    let id = call.id;
    let answer = node.call(call);
    lamp.expect(Kind::Control).await;
    let forged = notification_data(id, r#""progress":1"#);
    send_notification(&mut other, "progress", &forged).await;
    send_notification(&mut other, "log", &forged).await;
    other.sync().await;
    send_notification(
        &mut lamp,
        "log",
        r#"{"level":"info","message":"of no call"}"#,
    )
    .await;
    send_notification(
        &mut lamp,
        "progress",
        r#"{"call_id":"nonsense","progress":1}"#,
    )
    .await;
    let own = notification_data(id, r#""progress":2"#);
    send_notification(&mut lamp, "progress", &own).await;
    lamp.result(&id.to_string(), "done").await;
    answer.await.unwrap();
    let late = notification_data(id, r#""progress":3"#);
    send_notification(&mut lamp, "progress", &late).await;
    lamp.sync().await;
    assert_eq!(
        notifications.recv().await,
        Some(notification(NotificationKind::Progress, own))
    );
    assert_eq!(
        notifications.recv().await,
        None,
        "only notifications of the call, and none after its answer"
    );
    // All were parsed as messages and counted.
    node.metric_is("notes_total", Some("progress"), 4.0).await;
    node.metric_is("notes_total", Some("log"), 2.0).await;
}

#[tokio::test]
async fn caller_without_notifications_receives_its_answer() {
    let node = Node::start(Config::default()).await;
    let mut lamp = node.lamp("lamp").await;
    let call = node.prepare("lamp", ON);
    let id = call.id;
    let answer = node.call(call);
    lamp.expect(Kind::Control).await;
    send_notification(
        &mut lamp,
        "progress",
        &notification_data(id, r#""progress":1"#),
    )
    .await;
    lamp.result(&id.to_string(), "done").await;
    check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
}

#[tokio::test]
async fn notifications_beyond_the_limits_are_dropped() {
    let node = Node::start(Config {
        device_notice_burst: 3,
        // The bucket does not refill during the test.
        device_notice_every_ms: 3_600_000,
        device_max_notice_bytes: 1_024,
        ..Config::default()
    })
    .await;
    let mut lamp = node.lamp("lamp").await;
    // Each call has its own bucket.
    for round in 1..=2 {
        let (call, mut notifications) = call_with_notifications(&node, "lamp");
        let id = call.id;
        let answer = node.call(call);
        lamp.expect(Kind::Control).await;
        let large = format!(r#""message":"{}""#, "x".repeat(1_024));
        send_notification(&mut lamp, "log", &notification_data(id, &large)).await;
        for at in 1..=5 {
            let data = notification_data(id, &format!(r#""progress":{at}"#));
            send_notification(&mut lamp, "progress", &data).await;
        }
        lamp.result(&id.to_string(), "done").await;
        check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
        for at in 1..=2 {
            let data = notification_data(id, &format!(r#""progress":{at}"#));
            assert_eq!(
                notifications.recv().await,
                Some(notification(NotificationKind::Progress, data))
            );
        }
        assert_eq!(notifications.recv().await, None);
        let dropped = async |limit, times: f64| {
            let times = times * f64::from(round);
            node.metric_is("notices_dropped_total", Some(limit), times)
                .await;
        };
        dropped("bytes", 1.0).await;
        dropped("rate", 3.0).await;
    }
}
