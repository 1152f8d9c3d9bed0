//! Cancelled turns, and turns that end because the device starts another one. The model request is
//! closed.

use serde_json::json;
use switchboard_bus::{NewMessage, Played};
use switchboard_protocol::frame::Kind;

use super::suspension::toy_of;
use crate::{
    provider::Provider,
    system::{ChatFixture, TestSystem, UpFixture},
    turns::{task, time_service},
};

async fn check_cancelled_story(system: &TestSystem, provider: &mut Provider) {
    let mut device = system.device(0, "toy-1").await;
    device.send_text(task(1), "Tell me a story").await;
    let mut request = provider.next_request().await;
    request.send_text("Once upon a time").await;
    assert_eq!(device.receive_chunk(task(1), 0).await, "Once upon a time");
    device.cancel_turn(task(1)).await;
    device.receive_end(task(1)).await;
    request.wait_closed().await;
    system.turns_ended("stopped", 1).await;
    // Not delivered.
    request.send_text(" there was a clock").await;
    device.send_text(task(2), "Hello").await;
    let request = provider.next_request().await;
    let before = &request.messages()[2];
    let delivered = before["content"].as_str().unwrap();
    assert!(
        delivered.starts_with("Once upon a time")
            && delivered.contains("did not listen to the rest"),
        "{before}"
    );
    request.reply("Hello!").await;
    assert_eq!(device.receive_answer(task(2)).await, "Hello!");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_closes_provider_connection() {
    let mut fixture = ChatFixture::start(1, &[]).await;
    check_cancelled_story(&fixture.system, &mut fixture.provider).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_closes_provider_connection_with_up() {
    let mut fixture = UpFixture::start().await;
    check_cancelled_story(&fixture.system, &mut fixture.provider).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_before_first_text_closes_provider_connection() {
    let mut fixture = ChatFixture::start(1, &[]).await;
    let mut device = fixture.system.device(0, "toy-1").await;
    device.send_text(task(1), "Tell me a story").await;
    let mut request = fixture.provider.next_request().await;
    device.cancel_turn(task(1)).await;
    device.receive_end(task(1)).await;
    request.wait_closed().await;
    fixture.system.turns_ended("stopped", 1).await;
}

async fn check_cancelled_calls(system: &TestSystem, provider: &mut Provider) {
    let mut device = system.device(0, "toy-1").await;
    device.register(&time_service("Get current time")).await;
    device.send_text(task(1), "What time is it, twice?").await;
    let calls = [
        ("call_1", "get_current_time", r#"{"format": "simple"}"#),
        ("call_2", "get_current_time", r#"{"format": "detailed"}"#),
    ];
    provider.next_request().await.calls(&calls).await;
    let (first, ..) = device.receive_call().await;
    let (second, ..) = device.receive_call().await;
    device.cancel_turn(task(1)).await;
    let mut cancelled = Vec::new();
    let mut ends = 0;
    while cancelled.len() < 2 || ends < 1 {
        let received = device.receive_frame().await;
        match received.kind {
            Kind::End => {
                assert_eq!(received.task, task(1));
                ends += 1;
            }
            Kind::Control => {
                let message = received.json();
                assert_eq!(message["type"], "cancel", "{message}");
                cancelled.push(message["data"]["call_id"].clone());
            }
            other => panic!("{other:?} after a cancel"),
        }
    }
    let mut expected = [json!(first), json!(second)];
    expected.sort_by_key(ToString::to_string);
    cancelled.sort_by_key(ToString::to_string);
    assert_eq!((cancelled, ends), (expected.to_vec(), 1));
    system.turns_ended("stopped", 1).await;
    // No request for the rest is made, and the device stays usable.
    device.send_text(task(2), "Hello").await;
    let request = provider.next_request().await;
    assert_eq!(request.user_message(), "Hello");
    // The next prompt contains the calls, marked as possibly executed.
    let (calls, results) = request.last_round();
    assert_eq!(calls.len(), 2, "{}", request.body);
    for result in &results[..2] {
        let told = result["content"].as_str().unwrap();
        assert!(told.contains(r#""may_have_been_done":true"#), "{told}");
    }
    request.reply("Hello!").await;
    assert_eq!(device.receive_answer(task(2)).await, "Hello!");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_cancels_calls_in_flight() {
    let mut fixture = ChatFixture::start(1, &[]).await;
    check_cancelled_calls(&fixture.system, &mut fixture.provider).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_cancels_calls_in_flight_with_up() {
    let mut fixture = UpFixture::start().await;
    check_cancelled_calls(&fixture.system, &mut fixture.provider).await;
}

async fn check_interrupted_story(system: &TestSystem, provider: &mut Provider) {
    let mut device = system.device(0, "toy-1").await;
    device.send_text(task(1), "Tell me a story").await;
    let mut story = provider.next_request().await;
    story.send_text("Once upon a time").await;
    assert_eq!(device.receive_chunk(task(1), 0).await, "Once upon a time");
    device.send_text(task(2), "No, a song").await;
    // The end of the first answer, and nothing of the second before its model replies.
    device.receive_end(task(1)).await;
    story.wait_closed().await;
    let mut song = provider.next_request().await;
    song.assert_open();
    // The prompt contains the interrupted answer as far as it was delivered.
    let [_, request, told, question] = song.messages() else {
        panic!("{}", song.body);
    };
    assert_eq!(request["content"], "Tell me a story");
    let told = told["content"].as_str().unwrap();
    assert!(
        told.starts_with("Once upon a time") && told.contains("did not listen to the rest"),
        "{told}"
    );
    assert_eq!(question["content"], "No, a song");
    song.send_text("La").await;
    assert_eq!(device.receive_chunk(task(2), 0).await, "La");
    song.send_text(" la").await;
    assert_eq!(device.receive_chunk(task(2), 1).await, " la");
    song.finish("stop").await;
    device.receive_end(task(2)).await;
    system.turns_ended("superseded", 1).await;
    system.turns_ended("answered", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn next_message_interrupts_answer() {
    let mut fixture = ChatFixture::start(1, &[]).await;
    check_interrupted_story(&fixture.system, &mut fixture.provider).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn next_message_interrupts_answer_with_up() {
    let mut fixture = UpFixture::start().await;
    check_interrupted_story(&fixture.system, &mut fixture.provider).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn npc_without_interruption_answers_both_messages() {
    let mut fixture = ChatFixture::start(1, &[]).await;
    let patient = json!({"name": "Bello", "conversation": {"barge_in": false}});
    fixture.system.npc(&patient, &["toy-1"]).await;
    let mut device = fixture.system.device(0, "toy-1").await;
    device.send_text(task(1), "Tell me a story").await;
    let mut story = fixture.provider.next_request().await;
    story.send_text("Once").await;
    assert_eq!(device.receive_chunk(task(1), 0).await, "Once");
    device.send_text(task(2), "And a song").await;
    let song = fixture.provider.next_request().await;
    let story_so_far = song.messages()[2]["content"].as_str().unwrap();
    assert!(
        story_so_far.contains("still being answered"),
        "{}",
        song.body
    );
    song.reply("La").await;
    assert_eq!(device.receive_answer(task(2)).await, "La");
    story.assert_open();
    story.send_text(" upon a time").await;
    assert_eq!(device.receive_chunk(task(1), 1).await, " upon a time");
    story.finish("stop").await;
    device.receive_end(task(1)).await;
    fixture.system.turns_ended("answered", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnected_device_cancels_its_turn() {
    let mut fixture = ChatFixture::start(1, &[]).await;
    let mut device = fixture.system.device(0, "toy-1").await;
    device.send_text(task(1), "Tell me a story").await;
    let mut request = fixture.provider.next_request().await;
    request.send_text("Once upon a time").await;
    assert_eq!(device.receive_chunk(task(1), 0).await, "Once upon a time");
    drop(device);
    request.wait_closed().await;
    fixture.system.turns_ended("stopped", 1).await;
}

/// The model had sent the whole reply before the user interrupted its speech.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_speech_is_recorded_as_far_as_it_was_played() {
    let mut fixture = ChatFixture::start(0, &[]).await;
    let (edge, shutdown) = fixture.edge_bus().await;
    let toy = toy_of(&fixture.cluster.org);
    let epoch = edge.claim(&toy).await.unwrap().epoch;
    let say = async |text: &str, played: Option<(&str, &str)>| {
        let message = NewMessage {
            text: text.to_owned(),
            is_spoken: true,
            played: played.map(|(message, words)| Played {
                message: message.to_owned(),
                words: words.to_owned(),
            }),
            ..NewMessage::default()
        };
        edge.enqueue_turn(&toy, epoch, *b"task1234", message)
            .await
            .unwrap();
    };
    say("Tell me a story", None).await;
    let story = fixture.provider.next_request().await;
    story.reply("Once upon a time there was a clock.").await;
    fixture.system.turns_ended("answered", 1).await;
    say("No, a song", Some(("Tell me a story", "Once upon"))).await;
    let song = fixture.provider.next_request().await;
    let reply = song.messages()[2]["content"].as_str().unwrap();
    assert!(
        reply.starts_with("Once upon") && reply.contains("did not listen to the rest"),
        "{reply}"
    );
    assert!(!reply.contains("clock"), "{reply}");
    song.reply("La.").await;
    fixture.system.turns_ended("answered", 2).await;
    // A reply that was not interrupted is whole, also when a message had no answer.
    say("Again", Some(("And then", ""))).await;
    let again = fixture.provider.next_request().await;
    assert_eq!(again.messages()[4]["content"], "La.");
    again.reply("La, la.").await;
    shutdown.stop();
}
