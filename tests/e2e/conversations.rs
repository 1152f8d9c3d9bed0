//! Conversations on devices, answered by the rule responder: the protocol's example and its
//! failures.

use std::{sync::Arc, time::Duration};

use reqwest::Method;
use serde_json::{Value, json};
use switchboard_protocol::frame::{Kind, TaskId};
use switchboard_test_support::eventually::eventually;
use tokio::{sync::Barrier, task::JoinSet};

use crate::{
    cluster::TestCluster,
    device::Device,
    system::{TestSystem, start_chat},
    turns::{task, time_service},
};

const TASK: TaskId = TaskId(*b"task1234");
const DESCRIPTIONS: [&str; 2] = ["Get current time", "获取当前时间"];
const CONVERSATIONS: usize = 200;
/// Covers a lease of 10 s and the new claim of the turn.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(30);

/// The call that must be the next frame.
async fn called(device: &mut Device) -> (String, Value) {
    let (id, service, params) = device.receive_call().await;
    assert_eq!(service, "get_current_time");
    (id, params)
}

#[tokio::test(flavor = "multi_thread")]
async fn protocol_example_matches_frame_by_frame_on_two_edges() {
    let cluster = TestCluster::start(2).await;
    let chat = start_chat(&cluster, &[]);
    let questions = ["What time is it?", "现在几点了?"];
    for (edge, (question, description)) in questions.into_iter().zip(DESCRIPTIONS).enumerate() {
        let mut device = cluster.device(edge, &format!("toy-{edge}")).await;
        device.register(&time_service(description)).await;
        // Byte for byte as in the protocol supplement.
        let sent = format!("##START\u{4}task12340000{question}##END##START\u{3}task12340001##END");
        device.send_bytes(sent.as_bytes()).await;
        let (id, params) = called(&mut device).await;
        assert!(params.is_object(), "{params}");
        device
            .answer(
                &id,
                &json!({"success": true, "data": "2025-01-22 14:30:25"}),
            )
            .await;
        let text = device.receive_answer(TASK).await;
        assert!(text.contains("2025-01-22 14:30:25"), "{text}");
        assert_eq!(text.contains("现在是"), edge == 1, "{text}");
        assert_eq!(text.starts_with("It is"), edge == 0, "{text}");
    }
    // Calls of a conversation count in the metrics as other calls do.
    let system = TestSystem::new(&cluster, &chat);
    let used = async || {
        let (_, usage) = system.ask(Method::GET, "/v1/usage", &Value::Null).await;
        let total = &usage["total"];
        (total["turns"].clone(), total["by_outcome"].clone())
    };
    let expected = (json!(2), json!({"succeeded": 2}));
    eventually(TAKEOVER_TIMEOUT, used, |used| *used == expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_concurrent_conversations_get_own_answers() {
    let cluster = TestCluster::start(2).await;
    // All conversations are in flight at the same time; an organisation has a quarter of the turns.
    let turns = [("SWITCHBOARD_CHAT_TURNS", "400".to_owned())];
    let _chats = [start_chat(&cluster, &turns), start_chat(&cluster, &turns)];
    let mut toys = Vec::new();
    for n in 0..CONVERSATIONS {
        let mut device = cluster.device(n % 2, &format!("toy-{n}")).await;
        device.register(&time_service(DESCRIPTIONS[n % 2])).await;
        toys.push(device);
    }
    let all_called = Arc::new(Barrier::new(CONVERSATIONS));
    let mut conversations = JoinSet::new();
    for (n, mut device) in toys.into_iter().enumerate() {
        let all_called = Arc::clone(&all_called);
        conversations.spawn(async move {
            let task = task(n);
            let canary = format!("canary-{n:03}-of-its-own");
            device.send_text(task, "What time is it?").await;
            let (id, _) = called(&mut device).await;
            all_called.wait().await;
            device
                .answer(&id, &json!({"success": true, "data": canary}))
                .await;
            let text = device.receive_answer(task).await;
            assert_eq!(text.matches("canary-").count(), 1, "{text}");
            assert!(text.contains(&canary), "{text}");
        });
    }
    assert_eq!(conversations.join_all().await.len(), CONVERSATIONS);
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_killed_after_call_causes_apology_and_no_second_call() {
    let cluster = TestCluster::start(1).await;
    let mut first = start_chat(&cluster, &[]);
    let mut device = cluster.device(0, "toy-1").await;
    device.register(&time_service(DESCRIPTIONS[0])).await;
    device.send_text(TASK, "What time is it?").await;
    let (id, _) = called(&mut device).await;
    first.kill();
    let _second = start_chat(&cluster, &[]);
    device
        .answer(&id, &json!({"success": true, "data": "too late"}))
        .await;
    let mut text = String::new();
    tokio::time::timeout(TAKEOVER_TIMEOUT, async {
        loop {
            let received = device.receive_frame().await;
            match received.kind {
                Kind::Text => text.push_str(&String::from_utf8_lossy(&received.payload)),
                Kind::End => break,
                Kind::Control => assert_ne!(received.json()["type"], "call", "called twice"),
                _ => {}
            }
        }
    })
    .await
    .expect("an answer");
    assert!(
        text.starts_with("Sorry") && !text.contains("too late"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_turn_ends_answer_and_call() {
    let cluster = TestCluster::start(1).await;
    let chat = start_chat(&cluster, &[]);
    let mut device = cluster.device(0, "toy-1").await;
    device.register(&time_service(DESCRIPTIONS[0])).await;
    device.send_text(TASK, "What time is it?").await;
    let (id, _) = called(&mut device).await;
    device.cancel_turn(TASK).await;
    loop {
        let received = device.receive_frame().await;
        assert_ne!(received.kind, Kind::Text, "{received:?}");
        if received.kind == Kind::Control {
            let message = received.json();
            assert_eq!(
                (&message["type"], &message["data"]["call_id"]),
                (&json!("cancel"), &json!(id))
            );
            break;
        }
    }
    let metrics = async || {
        let url = format!("{}/metrics", chat.address("admin_url"));
        cluster
            .http
            .get(url)
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap()
    };
    let stopped = "switchboard_chat_turns_total{end=\"stopped\"} 1";
    eventually(Duration::from_secs(10), metrics, |text: &String| {
        text.contains(stopped)
    })
    .await;
    // The connection stays usable.
    device.send_text(TaskId(*b"task5678"), "现在几点了").await;
    loop {
        let received = device.receive_frame().await;
        if received.kind == Kind::Control && received.json()["type"] == "call" {
            let id = received.json()["data"]["call_id"]
                .as_str()
                .unwrap()
                .to_owned();
            device
                .answer(&id, &json!({"success": true, "data": "09:15"}))
                .await;
            break;
        }
    }
    assert!(
        device
            .receive_answer(TaskId(*b"task5678"))
            .await
            .contains("09:15")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn user_facts_are_stored_once_as_memories() {
    let cluster = TestCluster::start(1).await;
    let rest = [("SWITCHBOARD_CHAT_CONVERSATION_REST_S", "1".to_owned())];
    let chats = [start_chat(&cluster, &rest), start_chat(&cluster, &rest)];
    let system = TestSystem::new(&cluster, &chats[0]);
    let bello = system
        .npc(&json!({"name": "Bello"}), &["toy-1", "toy-2"])
        .await;
    let forgetful = json!({"name": "Dory", "memory": {"from_conversations": false}});
    let dory = system.npc(&forgetful, &["toy-3"]).await;
    let told = [
        ("toy-3", "My name is Carl."),
        ("toy-1", "My name is Anna."),
        ("toy-2", "我叫小明。"),
    ];
    for (number, (id, text)) in told.into_iter().enumerate() {
        let mut lamp = cluster.device(0, id).await;
        lamp.ask(task(number), text).await;
    }
    let memories = system.memories_when(&bello, 2).await;
    let of = |device: &str| {
        let about = memories
            .iter()
            .filter(|memory| memory["subject"] == format!("device:{device}"));
        about
            .map(|memory| memory["text"].as_str().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("toy-1"), ["The user said: “My name is Anna.”"]);
    assert_eq!(of("toy-2"), ["用户说：“我叫小明。”"]);
    assert_eq!(system.memories(&dory).await, Vec::<Value>::new());
    let asked = [
        (
            "toy-1",
            "What is my name?",
            "As far as I know: The user said: “My name is Anna.”",
        ),
        ("toy-2", "我叫什么名字?", "据我所知：用户说：“我叫小明。”"),
    ];
    for (number, (id, question, expected)) in asked.into_iter().enumerate() {
        let mut lamp = cluster.device(0, id).await;
        assert_eq!(lamp.ask(task(number), question).await, expected);
    }
    let mut lamp = cluster.device(0, "toy-3").await;
    let text = lamp.ask(task(3), "What is my name?").await;
    assert!(!text.contains("Carl") && !text.contains("Anna"), "{text}");
    assert_eq!(system.memories(&bello).await.len(), 2, "one was kept twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_turns_of_one_org_leave_others_answered() {
    const ENDLESS: usize = 70;
    let cluster = TestCluster::start(1).await;
    let chat = start_chat(&cluster, &[]);
    let other_org = cluster.another_org("other").await;
    let mut other = cluster.device_of(&other_org, "toy-1").await;
    other.register(&time_service(DESCRIPTIONS[0])).await;
    let wave = json!({"wave": {"description": "Waves", "parameters": {"type": "object"}, "timeout_ms": 89_000}});
    let mut devices = Vec::new();
    for n in 0..ENDLESS {
        let mut device = cluster.device(0, &format!("toy-{n}")).await;
        device.register(&wave.to_string()).await;
        device.send_text(TASK, "Please wave").await;
        devices.push(device);
    }
    // The organisation holds its share of 256 turns.
    let system = TestSystem::new(&cluster, &chat);
    system.metric("switchboard_chat_turns_under_way 64\n").await;
    for number in 0..3 {
        other.send_text(task(number), "What time is it?").await;
        let answered = async {
            let (id, _) = called(&mut other).await;
            other.send_result(&id, json!("14:30")).await;
            other.receive_answer(task(number)).await
        };
        let answered = tokio::time::timeout(Duration::from_secs(10), answered).await;
        assert!(answered.expect("an answer in time").contains("14:30"));
    }
    // A turn that ends makes room for the next one of the organisation.
    for device in &mut devices {
        device.cancel_turn(TASK).await;
    }
    let mut device = cluster.device(0, "toy-next").await;
    device.register(&time_service(DESCRIPTIONS[0])).await;
    device.send_text(TASK, "What time is it?").await;
    let (id, _) = called(&mut device).await;
    device.send_result(&id, json!("15:30")).await;
    assert!(device.receive_answer(TASK).await.contains("15:30"));
}

#[tokio::test(flavor = "multi_thread")]
async fn call_ends_after_the_timeout_of_the_operator() {
    let cluster = TestCluster::start(1).await;
    let timeout = [("SWITCHBOARD_CHAT_CALL_TIMEOUT_MS", "500".to_owned())];
    let _chat = start_chat(&cluster, &timeout);
    let mut device = cluster.device(0, "toy-1").await;
    let wave = json!({"wave": {"description": "Waves", "parameters": {"type": "object"}, "timeout_ms": 89_000}});
    device.register(&wave.to_string()).await;
    device.send_text(TASK, "Please wave").await;
    device.receive_call().await;
    // The device does not answer: the call is cancelled, and the turn ends.
    let ended = async {
        loop {
            if device.receive_frame().await.kind == Kind::End {
                return;
            }
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(10), ended).await;
    ended.expect("the end of the turn in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_with_a_value_is_executed() {
    let cluster = TestCluster::start(1).await;
    let _chats = [start_chat(&cluster, &[]), start_chat(&cluster, &[])];
    let mut device = cluster.device(0, "toy-1").await;
    let parameters = json!({"type": "object", "required": ["minutes"], "properties": {"minutes": {"type": "integer", "minimum": 1, "maximum": 90}}});
    let timer = json!({"set_timer": {"description": "Set a timer", "parameters": parameters}});
    device.register(&timer.to_string()).await;
    let text = device.ask(task(1), "Set a timer").await;
    assert!(text.contains("minutes"), "{text}");
    let never = [
        "Don't set a timer for 5 minutes",
        "Set a timer for 5 minutes tomorrow",
        "五分钟后设置",
    ];
    for (number, text) in (2..).zip(never) {
        device.ask(task(number), text).await;
    }
    device.send_text(task(9), "Set a timer for 5 minutes").await;
    let (id, service, params) = device.receive_call().await;
    assert_eq!(
        (service.as_str(), params),
        ("set_timer", json!({"minutes": 5}))
    );
    device.send_result(&id, json!("running")).await;
    assert!(device.receive_answer(task(9)).await.contains("running"));
}
