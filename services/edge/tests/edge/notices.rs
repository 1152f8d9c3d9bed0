//! What a device says of a call while it is at it.

use switchboard_bus::{Call, Notice, NoticeKind};
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

/// A call whose caller listens.
fn listening(node: &Node, device: &str) -> (Call, mpsc::Receiver<Notice>) {
    let (notices, heard) = mpsc::channel(16);
    let mut call = node.prepare(device, ON);
    call.notices = Some(notices);
    (call, heard)
}

fn data_of(id: CallId, rest: &str) -> String {
    format!(r#"{{ "call_id" : "{id}", {rest} }}"#)
}

async fn say(device: &mut Device, kind: &str, data: &str) {
    let message = format!(r#"{{"type":"{kind}","data":{data}}}"#);
    device
        .send(Kind::Control, TaskId::MCP, 0, message.as_bytes())
        .await;
}

fn notice(kind: NoticeKind, data: String) -> Notice {
    Notice {
        kind,
        data: data.into(),
    }
}

#[tokio::test]
async fn what_a_device_says_of_its_call_reaches_the_caller_before_the_answer() {
    let node = Node::start(Config::default()).await;
    let mut lamp = node.lamp("lamp").await;
    let (call, mut heard) = listening(&node, "lamp");
    let id = call.id;
    let answer = node.call(call);
    lamp.expect(Kind::Control).await;
    let half = data_of(id, r#""progress": 1, "total": 2, "message": "一半""#);
    let note = data_of(id, r#""level":"info","message":"warm""#);
    say(&mut lamp, "progress", &half).await;
    say(&mut lamp, "log", &note).await;
    lamp.result(&id.to_string(), "done").await;
    check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    assert_eq!(
        heard.try_recv(),
        Ok(notice(NoticeKind::Progress, half)),
        "as sent, and there when the answer is"
    );
    assert_eq!(heard.try_recv(), Ok(notice(NoticeKind::Log, note)));
    assert_eq!(heard.recv().await, None);
}

#[tokio::test]
async fn i5_what_a_device_says_of_calls_that_it_does_not_have_reaches_nobody() {
    let node = Node::start(Config::default()).await;
    let (mut lamp, mut other) = (node.lamp("lamp").await, node.lamp("other").await);
    let (call, mut heard) = listening(&node, "lamp");
    let id = call.id;
    let answer = node.call(call);
    lamp.expect(Kind::Control).await;
    let forged = data_of(id, r#""progress":1"#);
    say(&mut other, "progress", &forged).await;
    say(&mut other, "log", &forged).await;
    other.settled().await;
    say(
        &mut lamp,
        "log",
        r#"{"level":"info","message":"of no call"}"#,
    )
    .await;
    say(
        &mut lamp,
        "progress",
        r#"{"call_id":"nonsense","progress":1}"#,
    )
    .await;
    let own = data_of(id, r#""progress":2"#);
    say(&mut lamp, "progress", &own).await;
    lamp.result(&id.to_string(), "done").await;
    answer.await.unwrap();
    let late = data_of(id, r#""progress":3"#);
    say(&mut lamp, "progress", &late).await;
    lamp.settled().await;
    assert_eq!(heard.recv().await, Some(notice(NoticeKind::Progress, own)));
    assert_eq!(
        heard.recv().await,
        None,
        "only its own, and none after the answer"
    );
    // All were read as messages, and only counted.
    node.metric_is("notes_total", Some("progress"), 4.0).await;
    node.metric_is("notes_total", Some("log"), 2.0).await;
}

#[tokio::test]
async fn a_caller_that_does_not_listen_gets_its_answer_as_ever() {
    let node = Node::start(Config::default()).await;
    let mut lamp = node.lamp("lamp").await;
    let call = node.prepare("lamp", ON);
    let id = call.id;
    let answer = node.call(call);
    lamp.expect(Kind::Control).await;
    say(&mut lamp, "progress", &data_of(id, r#""progress":1"#)).await;
    lamp.result(&id.to_string(), "done").await;
    check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
}

#[tokio::test]
async fn a_device_says_no_more_than_it_may() {
    let node = Node::start(Config {
        device_notice_burst: 3,
        // A bucket that does not fill while the test runs.
        device_notice_every_ms: 3_600_000,
        device_max_notice_bytes: 1_024,
        ..Config::default()
    })
    .await;
    let mut lamp = node.lamp("lamp").await;
    // Each call has a bucket of its own.
    for round in 1..=2 {
        let (call, mut heard) = listening(&node, "lamp");
        let id = call.id;
        let answer = node.call(call);
        lamp.expect(Kind::Control).await;
        let large = format!(r#""message":"{}""#, "x".repeat(1_024));
        say(&mut lamp, "log", &data_of(id, &large)).await;
        for at in 1..=5 {
            let said = data_of(id, &format!(r#""progress":{at}"#));
            say(&mut lamp, "progress", &said).await;
        }
        lamp.result(&id.to_string(), "done").await;
        check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
        for at in 1..=2 {
            let said = data_of(id, &format!(r#""progress":{at}"#));
            assert_eq!(heard.recv().await, Some(notice(NoticeKind::Progress, said)));
        }
        assert_eq!(heard.recv().await, None);
        let dropped = async |limit, times: f64| {
            let times = times * f64::from(round);
            node.metric_is("notices_dropped_total", Some(limit), times)
                .await;
        };
        dropped("bytes", 1.0).await;
        dropped("rate", 3.0).await;
    }
}
