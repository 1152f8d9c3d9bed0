//! Conversations over several turns, and the memories extracted when they end.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_test_support::eventually::eventually;

use super::quotas::{npc_of, send};
use crate::{
    provider::{Provider, ProviderRequest},
    system::ChatFixture,
    turns::{task, time_service},
};

/// A conversation ends one second after its last turn.
const SHORT_REST: (&str, &str) = ("SWITCHBOARD_CHAT_CONVERSATION_REST_S", "1");

/// Whether the request extracts memories and does not answer a user.
fn is_about_keeping(request: &ProviderRequest) -> bool {
    request.system().starts_with("Below is a conversation")
}

fn roles(request: &ProviderRequest) -> Vec<&str> {
    let messages = request.messages().iter();
    messages
        .map(|message| message["role"].as_str().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn next_turn_at_another_replica_contains_previous_turn() {
    let mut fixture = ChatFixture::start(2, &[]).await;
    let mut device = fixture.system.device(0, "toy-1").await;
    device.register(&time_service("Get current time")).await;
    device
        .send_text(task(1), "I am Anna. What time is it?")
        .await;
    let call = ("call_1", "get_current_time", r#"{"format": "simple"}"#);
    fixture.provider.next_request().await.calls(&[call]).await;
    let (id, ..) = device.receive_call().await;
    device.send_result(&id, json!("14:30")).await;
    let request = fixture.provider.next_request().await;
    request.reply("It is 14:30, Anna.").await;
    assert_eq!(device.receive_answer(task(1)).await, "It is 14:30, Anna.");

    fixture.chat.kill();
    let _other = fixture.another_chat();
    // On another connection, at another edge.
    drop(device);
    let mut device = fixture.system.device(1, "toy-1").await;
    device.register(&time_service("Get current time")).await;
    device.send_text(task(2), "And who am I?").await;
    let request = fixture.provider.next_request().await;
    let expected = ["system", "user", "assistant", "tool", "assistant", "user"];
    assert_eq!(roles(&request), expected);
    let [_, said, calling, result, answered, question] = request.messages() else {
        panic!("{}", request.body);
    };
    assert_eq!(said["content"], "I am Anna. What time is it?");
    let call = &calling["tool_calls"][0];
    assert_eq!(call["function"]["name"], "get_current_time");
    assert_eq!(call["function"]["arguments"], r#"{"format":"simple"}"#);
    assert_eq!(call["id"], result["tool_call_id"]);
    assert!(result["content"].as_str().unwrap().contains("14:30"));
    assert_eq!(answered["content"], "It is 14:30, Anna.");
    assert_eq!(question["content"], "And who am I?");
    request.reply("Anna.").await;
    assert_eq!(device.receive_answer(task(2)).await, "Anna.");
    // Another device has its own conversation.
    let mut other = fixture.system.device(1, "toy-2").await;
    other.send_text(task(3), "Who am I?").await;
    let request = fixture.provider.next_request().await;
    assert_eq!(roles(&request), ["system", "user"]);
    request.reply("Nobody I know.").await;
    other.receive_answer(task(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memories_are_extracted_once() {
    let mut fixture = ChatFixture::start(1, &[SHORT_REST]).await;
    let _other = fixture.another_chat();
    let npc = fixture
        .system
        .npc(&json!({"name": "Bello"}), &["toy-1", "toy-2"])
        .await;
    let notes = [("toy-1", "Anna likes tea."), ("toy-2", "Ben likes cake.")];
    for (number, (device, note)) in notes.into_iter().enumerate() {
        let mut lamp = fixture.system.device(0, device).await;
        lamp.send_text(task(number), "You know what I like.").await;
        fixture.provider.next_request().await.reply("I do.").await;
        assert_eq!(lamp.receive_answer(task(number)).await, "I do.");
        // The conversation has ended.
        let request = fixture.provider.next_request().await;
        assert!(is_about_keeping(&request), "{}", request.body);
        assert!(
            request
                .user_message()
                .contains("User: You know what I like.\nCharacter: I do.")
        );
        assert_eq!(request.body.get("tools"), None);
        let kept = json!([{"text": note, "importance": 0.8}]);
        request.reply(&format!("```json\n{kept}\n```")).await;
        let memories = fixture.system.memories_when(&npc, number + 1).await;
        let subject = json!(format!("device:{device}"));
        let about = memories
            .iter()
            .filter(|memory| memory["subject"] == subject);
        let about: Vec<_> = about.collect();
        assert_eq!(about.len(), 1, "{memories:?}");
        assert_eq!(
            (
                &about[0]["text"],
                &about[0]["kind"],
                &about[0]["importance"]
            ),
            (&json!(note), &json!("conversation"), &json!(0.8))
        );
    }
    // Both replicas polled for work while memories of the second conversation were extracted.
    assert_eq!(fixture.system.memories(&npc).await.len(), 2);
    assert!(fixture.provider.is_idle());
    // The next conversation starts with the memory and without the earlier turns.
    let mut lamp = fixture.system.device(0, "toy-1").await;
    lamp.send_text(task(9), "Do you know whether Anna likes tea?")
        .await;
    let request = fixture.provider.next_request().await;
    assert_eq!(roles(&request), ["system", "user"]);
    let known = super::marked_off(request.system(), "memories");
    assert!(
        known.contains("Anna likes tea.") && !known.contains("Ben"),
        "{known}"
    );
    request.reply("She does.").await;
    lamp.receive_answer(task(9)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn npc_without_memories_stores_none() {
    let mut fixture = ChatFixture::start(1, &[SHORT_REST]).await;
    let system = &fixture.system;
    let forgetful = json!({"name": "Dory", "memory": {"from_conversations": false}});
    let forgetful = system.npc(&forgetful, &["toy-1"]).await;
    let other = system
        .npc(&json!({"name": "Bello"}), &["toy-2", "toy-3"])
        .await;
    let mut devices = Vec::new();
    for number in 1..=3 {
        devices.push(system.device(0, &format!("toy-{number}")).await);
    }
    let provider = &mut fixture.provider;
    for (number, device) in devices.iter_mut().enumerate() {
        device.send_text(task(number), "I like tea.").await;
        provider.next_request().await.reply("I see.").await;
        device.receive_answer(task(number)).await;
        // Memories are extracted from the other conversations only. The first one was claimed before
        // the second one: it is done when the third one is processed.
        if number > 0 {
            let request = provider.next_request().await;
            assert!(is_about_keeping(&request), "{}", request.body);
            request.reply(r#"["The user likes tea."]"#).await;
            let kept = system.memories_when(&other, number).await;
            assert_eq!(kept.len(), number, "{kept:?}");
        }
    }
    let kept = system.memories(&other).await;
    let subjects: Vec<_> = kept.iter().map(|memory| &memory["subject"]).collect();
    assert!(!subjects.contains(&&json!("device:toy-1")), "{kept:?}");
    assert_eq!(
        fixture.system.memories(&forgetful).await,
        Vec::<Value>::new()
    );
    devices[0].send_text(task(9), "Hello").await;
    let request = fixture.provider.next_request().await;
    assert_eq!(
        roles(&request),
        ["system", "user"],
        "it has ended all the same"
    );
    request.reply("Hello!").await;
    devices[0].receive_answer(task(9)).await;
}

/// Answers users. Does not answer requests to extract memories from the words of this organisation.
async fn answer_but_greedy(received: ProviderRequest) {
    if is_about_keeping(&received) && received.user_message().contains("greedy") {
        std::future::pending::<()>().await;
    }
    received.reply("[]").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn organisation_with_many_ended_conversations_does_not_delay_others() {
    let rates = [
        ("SWITCHBOARD_CHAT_CALLER_RATE_PER_S", "100000"),
        ("SWITCHBOARD_CHAT_CALLER_BURST", "100000"),
        SHORT_REST,
    ];
    let provider = Provider::scripted(answer_but_greedy).await;
    let fixture = ChatFixture::start_with(provider, 1, &rates).await;
    let (greedy, modest) = (
        &fixture.cluster.org,
        &fixture.cluster.another_org("Modest").await,
    );
    let extracted = async |word: &str| {
        let seen = fixture.provider.seen();
        let texts = seen.iter().map(Value::to_string);
        let about = texts.filter(|text| text.contains("Below is a conversation"));
        about.filter(|text| text.contains(word)).count()
    };
    let extracts = async |word: &str, count: usize| {
        let timeout = Duration::from_secs(20);
        let seen = eventually(
            timeout,
            async || extracted(word).await,
            |seen| *seen >= count,
        );
        assert!(seen.await >= count, "{word}");
    };
    let say = async |org, npc: &str, text: &str, subject: String| {
        let message = json!({"text": text, "subject": subject});
        let (status, _, answer) = send(&fixture, org, npc, message).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    };
    let npc = npc_of(&fixture, greedy).await;
    for number in 0..40 {
        say(greedy, &npc, "I am greedy.", format!("user-{number}")).await;
    }
    extracts("greedy", 8).await;
    let npc = npc_of(&fixture, modest).await;
    say(modest, &npc, "I am modest.", "user-1".to_owned()).await;
    extracts("modest", 1).await;
    assert_eq!(extracted("greedy").await, 8, "the share");
}
