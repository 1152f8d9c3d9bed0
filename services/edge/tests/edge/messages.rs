//! What waits for devices, or as messages for the bus: what one organisation may hold of it.

use bytes::Bytes;
use switchboard_bus::BusError;
use switchboard_edge::Config;
use switchboard_protocol::{
    frame::{Kind, TaskId},
    outcome::Outcome,
};
use switchboard_test_support::eventually::eventually_true;

use crate::{
    device::LIGHT,
    node::{Node, TEST_TIMEOUT},
};

const KIB: usize = 1_024;
const BUDGET: &str = "device_messages";
const TASK: TaskId = TaskId(*b"task0001");

impl Node {
    async fn nothing_waits(&self) {
        eventually_true("nothing waits", || self.budget_used(BUDGET) == 0).await;
    }
}

#[tokio::test]
async fn unfinished_messages_of_one_organisation_leave_room_for_others() {
    // A share of 16 KiB.
    let node = Node::start(Config {
        device_messages_bytes: 64 * KIB,
        device_max_waiting_bytes: 16 * KIB,
        ..Config::default()
    })
    .await;
    let text = "x".repeat(12 * KIB);
    let mut first = node.device("toy-1").await;
    first.send(Kind::Text, TASK, 0, text.as_bytes()).await;
    let held = || node.budget_used(BUDGET);
    eventually_true("a message waits", || held() == 12 * KIB).await;

    let mut second = node.device("toy-2").await;
    second.send(Kind::Text, TASK, 0, text.as_bytes()).await;
    second.send(Kind::End, TASK, 1, b"").await;
    let notice = second.expect(Kind::Text).await;
    let notice = String::from_utf8(notice.payload).unwrap();
    assert!(notice.contains("already"), "{notice}");
    // Short messages are not charged.
    second.send(Kind::Text, TASK, 0, b"short").await;
    second.send(Kind::End, TASK, 1, b"").await;
    assert_eq!(take_text(&node).await, "short");

    let (_, mut other) = node.foreign_device("toy-2").await;
    other.send(Kind::Text, TASK, 0, text.as_bytes()).await;
    other.send(Kind::End, TASK, 1, b"").await;
    assert_eq!(take_text(&node).await, text);

    first.send(Kind::End, TASK, 1, b"").await;
    assert_eq!(take_text(&node).await, text);
    node.nothing_waits().await;
}

async fn take_text(node: &Node) -> String {
    let mut turns = node.caller.claim_turns(1, TEST_TIMEOUT).await.unwrap();
    assert_eq!(turns.len(), 1, "no turn in time");
    turns.remove(0).text.to_string()
}

#[tokio::test]
async fn unread_calls_of_one_organisation_leave_room_for_others() {
    // A share of 1 MiB.
    let node = Node::start(Config {
        device_messages_bytes: 4 * KIB * KIB,
        ..Config::default()
    })
    .await;
    // They do not read. Each of their sockets takes a few megabytes at first.
    let mut silent = Vec::new();
    for number in 0..4 {
        silent.push(node.lamp(&format!("lamp-{number}")).await);
    }
    let large = format!(r#"{{"on":true,"note":"{}"}}"#, "x".repeat(200_000));
    let mut calls = Vec::new();
    let refused = loop {
        let device = format!("lamp-{}", calls.len() % silent.len());
        let (caller, call) = (node.caller.clone(), node.prepare(&device, &large));
        let mut ended = node.shutdown.spawn(async move { caller.call(call).await });
        tokio::select! {
            ended = &mut ended => match ended.unwrap() {
                Ok(answer) => break answer,
                Err(BusError::Overloaded) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            },
            () = tokio::time::sleep(std::time::Duration::from_millis(5)) => calls.push(ended),
        }
        assert!(node.budget_used(BUDGET) <= KIB * KIB);
    };
    assert_eq!(refused.outcome, Outcome::Overloaded);
    let detail = String::from_utf8(refused.body.to_vec()).unwrap();
    assert!(detail.contains(BUDGET), "{detail}");

    let (org, mut other) = node.foreign_device("lamp-0").await;
    other.register(LIGHT).await;
    let mut call = node.prepare("lamp-0", "");
    call.device.org = org;
    call.params = Bytes::from(large);
    let answer = node.call(call);
    let id = other.expect(Kind::Control).await.call_id();
    other.result(&id, "done").await;
    assert_eq!(answer.await.unwrap().outcome, Outcome::Succeeded);

    drop(silent);
    for call in calls {
        let _ended = call.await.unwrap();
    }
    node.nothing_waits().await;
}
