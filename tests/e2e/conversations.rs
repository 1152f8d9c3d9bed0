//! What people say to devices, answered by the embedded responder: the supplement's example and what may go wrong on the way.
//! Never: a language model.

use std::{sync::Arc, time::Duration};

use reqwest::Method;
use serde_json::{Value, json};
use switchboard_protocol::frame::{Kind, TaskId};
use tokio::{sync::Barrier, task::JoinSet};

use crate::{
    device::Device,
    eventually::eventually,
    plant::Plant,
    site::{Site, start_chat},
    turns::{task, time_service},
};

const TASK: TaskId = TaskId(*b"task1234");
const DESCRIPTIONS: [&str; 2] = ["Get current time", "获取当前时间"];
const CONVERSATIONS: usize = 200;
/// A lease of 10 s ends, and the turn is taken anew.
const TAKEOVER: Duration = Duration::from_secs(30);

/// The call that must be the very next frame.
async fn called(device: &mut Device) -> (String, Value) {
    let (id, service, params) = device.is_called().await;
    assert_eq!(service, "get_current_time");
    (id, params)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_supplements_example_goes_frame_for_frame_on_two_edges() {
    let plant = Plant::start(2).await;
    let chat = start_chat(&plant, &[]);
    let questions = ["What time is it?", "现在几点了?"];
    for (edge, (question, description)) in questions.into_iter().zip(DESCRIPTIONS).enumerate() {
        let mut toy = plant.device(edge, &format!("toy-{edge}")).await;
        toy.register(&time_service(description)).await;
        // Byte for byte what the supplement shows.
        let said = format!("##START\u{4}task12340000{question}##END##START\u{3}task12340001##END");
        toy.send_bytes(said.as_bytes()).await;
        let (id, params) = called(&mut toy).await;
        assert!(params.is_object(), "{params}");
        toy.answer(
            &id,
            &json!({"success": true, "data": "2025-01-22 14:30:25"}),
        )
        .await;
        let words = toy.hears(TASK).await;
        assert!(words.contains("2025-01-22 14:30:25"), "{words}");
        assert_eq!(words.contains("现在是"), edge == 1, "{words}");
        assert_eq!(words.starts_with("It is"), edge == 0, "{words}");
    }
    // Its calls count like anybody's.
    let site = Site::of(&plant, &chat);
    let used = async || {
        let (_, usage) = site.ask(Method::GET, "/v1/usage", &Value::Null).await;
        let total = &usage["total"];
        (total["turns"].clone(), total["by_outcome"].clone())
    };
    let expected = (json!(2), json!({"succeeded": 2}));
    eventually(TAKEOVER, used, |used| *used == expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_conversations_at_once_are_not_mixed_up() {
    let plant = Plant::start(2).await;
    // Each of them is under way at the same time.
    let turns = [("SWITCHBOARD_CHAT_TURNS", "100".to_owned())];
    let _chats = [start_chat(&plant, &turns), start_chat(&plant, &turns)];
    let mut toys = Vec::new();
    for n in 0..CONVERSATIONS {
        let mut toy = plant.device(n % 2, &format!("toy-{n}")).await;
        toy.register(&time_service(DESCRIPTIONS[n % 2])).await;
        toys.push(toy);
    }
    let all_called = Arc::new(Barrier::new(CONVERSATIONS));
    let mut conversations = JoinSet::new();
    for (n, mut toy) in toys.into_iter().enumerate() {
        let all_called = Arc::clone(&all_called);
        conversations.spawn(async move {
            let task = task(n);
            let canary = format!("canary-{n:03}-of-its-own");
            toy.says(task, "What time is it?").await;
            let (id, _) = called(&mut toy).await;
            all_called.wait().await;
            toy.answer(&id, &json!({"success": true, "data": canary}))
                .await;
            let words = toy.hears(task).await;
            assert_eq!(words.matches("canary-").count(), 1, "{words}");
            assert!(words.contains(&canary), "{words}");
        });
    }
    assert_eq!(conversations.join_all().await.len(), CONVERSATIONS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_killed_after_a_call_is_followed_by_an_apology_and_no_second_call() {
    let plant = Plant::start(1).await;
    let mut first = start_chat(&plant, &[]);
    let mut toy = plant.device(0, "toy-1").await;
    toy.register(&time_service(DESCRIPTIONS[0])).await;
    toy.says(TASK, "What time is it?").await;
    let (id, _) = called(&mut toy).await;
    first.kill();
    let _second = start_chat(&plant, &[]);
    toy.answer(&id, &json!({"success": true, "data": "too late"}))
        .await;
    let mut words = String::new();
    tokio::time::timeout(TAKEOVER, async {
        loop {
            let received = toy.hears_frame().await;
            match received.kind {
                Kind::Text => words.push_str(&String::from_utf8_lossy(&received.payload)),
                Kind::End => break,
                Kind::Control => assert_ne!(received.json()["type"], "call", "called twice"),
                _ => {}
            }
        }
    })
    .await
    .expect("an answer");
    assert!(
        words.starts_with("Sorry") && !words.contains("too late"),
        "{words}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_the_answer_and_the_call() {
    let plant = Plant::start(1).await;
    let chat = start_chat(&plant, &[]);
    let mut toy = plant.device(0, "toy-1").await;
    toy.register(&time_service(DESCRIPTIONS[0])).await;
    toy.says(TASK, "What time is it?").await;
    let (id, _) = called(&mut toy).await;
    toy.takes_back(TASK).await;
    loop {
        let received = toy.hears_frame().await;
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
        plant
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
    // The connection is as good as before.
    toy.says(TaskId(*b"task5678"), "现在几点了").await;
    loop {
        let received = toy.hears_frame().await;
        if received.kind == Kind::Control && received.json()["type"] == "call" {
            let id = received.json()["data"]["call_id"]
                .as_str()
                .unwrap()
                .to_owned();
            toy.answer(&id, &json!({"success": true, "data": "09:15"}))
                .await;
            break;
        }
    }
    assert!(toy.hears(TaskId(*b"task5678")).await.contains("09:15"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_say_of_themselves_is_remembered_once() {
    let plant = Plant::start(1).await;
    let rest = [("SWITCHBOARD_CHAT_CONVERSATION_REST_S", "1".to_owned())];
    let chats = [start_chat(&plant, &rest), start_chat(&plant, &rest)];
    let site = Site::of(&plant, &chats[0]);
    let bello = site
        .npc(&json!({"name": "Bello"}), &["toy-1", "toy-2"])
        .await;
    let forgetful = json!({"name": "Dory", "memory": {"from_conversations": false}});
    let dory = site.npc(&forgetful, &["toy-3"]).await;
    let told = [
        ("toy-3", "My name is Carl."),
        ("toy-1", "My name is Anna."),
        ("toy-2", "我叫小明。"),
    ];
    for (number, (id, words)) in told.into_iter().enumerate() {
        let mut toy = plant.device(0, id).await;
        toy.talks(task(number), words).await;
    }
    let memories = site.memories_when(&bello, 2).await;
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
    assert_eq!(site.memories(&dory).await, Vec::<Value>::new());
    let asked = [
        (
            "toy-1",
            "What is my name?",
            "As far as I know: The user said: “My name is Anna.”",
        ),
        ("toy-2", "我叫什么名字?", "据我所知：用户说：“我叫小明。”"),
    ];
    for (number, (id, question, expected)) in asked.into_iter().enumerate() {
        let mut toy = plant.device(0, id).await;
        assert_eq!(toy.talks(task(number), question).await, expected);
    }
    let mut toy = plant.device(0, "toy-3").await;
    let words = toy.talks(task(3), "What is my name?").await;
    assert!(
        !words.contains("Carl") && !words.contains("Anna"),
        "{words}"
    );
    assert_eq!(site.memories(&bello).await.len(), 2, "one was kept twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_for_what_is_missing_is_answered_by_the_rest() {
    let plant = Plant::start(1).await;
    let _chats = [start_chat(&plant, &[]), start_chat(&plant, &[])];
    let mut toy = plant.device(0, "toy-1").await;
    let parameters = json!({"type": "object", "required": ["minutes"], "properties": {"minutes": {"type": "integer", "minimum": 1, "maximum": 90}}});
    let timer = json!({"set_timer": {"description": "Set a timer", "parameters": parameters}});
    toy.register(&timer.to_string()).await;
    let words = toy.talks(task(1), "Set a timer").await;
    assert!(words.contains("minutes"), "{words}");
    toy.says(task(2), "Five minutes").await;
    let (id, service, params) = toy.is_called().await;
    assert_eq!(
        (service.as_str(), params),
        ("set_timer", json!({"minutes": 5}))
    );
    toy.gives(&id, json!("running")).await;
    assert!(toy.hears(task(2)).await.contains("running"));
}
