//! Answers that are not wanted any more: taken back, or overtaken by what their device says next.
//! Never: a model that goes on for nobody.

use serde_json::json;
use switchboard_protocol::frame::Kind;

use crate::{
    provider::Provider,
    site::{Site, Stage, UpStage},
    turns::{task, time_service},
};

async fn a_story_is_taken_back(site: &Site, provider: &mut Provider) {
    let mut toy = site.device(0, "toy-1").await;
    toy.says(task(1), "Tell me a story").await;
    let mut asked = provider.asked().await;
    asked.says("Once upon a time").await;
    assert_eq!(toy.hears_piece(task(1), 0).await, "Once upon a time");
    toy.takes_back(task(1)).await;
    toy.hears_end(task(1)).await;
    asked.hung_up().await;
    site.turns_ended("stopped", 1).await;
    // Said to nobody.
    asked.says(" there was a clock").await;
    toy.says(task(2), "Hello").await;
    let asked = provider.asked().await;
    let before = &asked.messages()[2];
    let heard = before["content"].as_str().unwrap();
    assert!(
        heard.starts_with("Once upon a time") && heard.contains("did not listen to the rest"),
        "{before}"
    );
    asked.replies("Hello!").await;
    assert_eq!(toy.hears(task(2)).await, "Hello!");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_closes_the_connection_to_the_provider() {
    let mut stage = Stage::set(1, &[]).await;
    a_story_is_taken_back(&stage.site, &mut stage.provider).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_closes_the_connection_to_the_provider_under_up() {
    let mut stage = UpStage::set().await;
    a_story_is_taken_back(&stage.site, &mut stage.provider).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_before_the_first_word_ends_the_request_too() {
    let mut stage = Stage::set(1, &[]).await;
    let mut toy = stage.site.device(0, "toy-1").await;
    toy.says(task(1), "Tell me a story").await;
    let mut asked = stage.provider.asked().await;
    toy.takes_back(task(1)).await;
    toy.hears_end(task(1)).await;
    asked.hung_up().await;
    stage.site.turns_ended("stopped", 1).await;
}

async fn calls_are_taken_back(site: &Site, provider: &mut Provider) {
    let mut toy = site.device(0, "toy-1").await;
    toy.register(&time_service("Get current time")).await;
    toy.says(task(1), "What time is it, twice?").await;
    let calls = [
        ("call_1", "get_current_time", r#"{"format": "simple"}"#),
        ("call_2", "get_current_time", r#"{"format": "detailed"}"#),
    ];
    provider.asked().await.calls(&calls).await;
    let (first, ..) = toy.is_called().await;
    let (second, ..) = toy.is_called().await;
    toy.takes_back(task(1)).await;
    let mut cancelled = Vec::new();
    let mut ends = 0;
    while cancelled.len() < 2 || ends < 1 {
        let received = toy.hears_frame().await;
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
    site.turns_ended("stopped", 1).await;
    // The model is not asked for the rest, and the device is as good as before.
    toy.says(task(2), "Hello").await;
    let asked = provider.asked().await;
    assert_eq!(asked.question(), "Hello");
    // It knows of them, and that they may have been done.
    let (calls, results) = asked.last_round();
    assert_eq!(calls.len(), 2, "{}", asked.body);
    for result in &results[..2] {
        let told = result["content"].as_str().unwrap();
        assert!(told.contains(r#""may_have_been_done":true"#), "{told}");
    }
    asked.replies("Hello!").await;
    assert_eq!(toy.hears(task(2)).await, "Hello!");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_cancels_the_calls_under_way() {
    let mut stage = Stage::set(1, &[]).await;
    calls_are_taken_back(&stage.site, &mut stage.provider).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_cancels_the_calls_under_way_under_up() {
    let mut stage = UpStage::set().await;
    calls_are_taken_back(&stage.site, &mut stage.provider).await;
}

async fn a_story_is_overtaken(site: &Site, provider: &mut Provider) {
    let mut toy = site.device(0, "toy-1").await;
    toy.says(task(1), "Tell me a story").await;
    let mut story = provider.asked().await;
    story.says("Once upon a time").await;
    assert_eq!(toy.hears_piece(task(1), 0).await, "Once upon a time");
    toy.says(task(2), "No, a song").await;
    // The end of the story, and nothing of the song before its model speaks.
    toy.hears_end(task(1)).await;
    story.hung_up().await;
    let mut song = provider.asked().await;
    song.must_be_heard();
    // It knows what it interrupts, and how much of that was heard.
    let [_, asked, told, question] = song.messages() else {
        panic!("{}", song.body);
    };
    assert_eq!(asked["content"], "Tell me a story");
    let told = told["content"].as_str().unwrap();
    assert!(
        told.starts_with("Once upon a time") && told.contains("did not listen to the rest"),
        "{told}"
    );
    assert_eq!(question["content"], "No, a song");
    song.says("La").await;
    assert_eq!(toy.hears_piece(task(2), 0).await, "La");
    song.says(" la").await;
    assert_eq!(toy.hears_piece(task(2), 1).await, " la");
    song.ends("stop").await;
    toy.hears_end(task(2)).await;
    site.turns_ended("superseded", 1).await;
    site.turns_ended("answered", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_next_ends_the_answer_under_way() {
    let mut stage = Stage::set(1, &[]).await;
    a_story_is_overtaken(&stage.site, &mut stage.provider).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_next_ends_the_answer_under_way_under_up() {
    let mut stage = UpStage::set().await;
    a_story_is_overtaken(&stage.site, &mut stage.provider).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_npc_that_nobody_interrupts_answers_both() {
    let mut stage = Stage::set(1, &[]).await;
    let patient = json!({"name": "Bello", "conversation": {"barge_in": false}});
    stage.site.npc(&patient, &["toy-1"]).await;
    let mut toy = stage.site.device(0, "toy-1").await;
    toy.says(task(1), "Tell me a story").await;
    let mut story = stage.provider.asked().await;
    story.says("Once").await;
    assert_eq!(toy.hears_piece(task(1), 0).await, "Once");
    toy.says(task(2), "And a song").await;
    let song = stage.provider.asked().await;
    let story_so_far = song.messages()[2]["content"].as_str().unwrap();
    assert!(
        story_so_far.contains("still being answered"),
        "{}",
        song.body
    );
    song.replies("La").await;
    assert_eq!(toy.hears(task(2)).await, "La");
    story.must_be_heard();
    story.says(" upon a time").await;
    assert_eq!(toy.hears_piece(task(1), 1).await, " upon a time");
    story.ends("stop").await;
    toy.hears_end(task(1)).await;
    stage.site.turns_ended("answered", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_leaves_takes_its_question_along() {
    let mut stage = Stage::set(1, &[]).await;
    let mut toy = stage.site.device(0, "toy-1").await;
    toy.says(task(1), "Tell me a story").await;
    let mut asked = stage.provider.asked().await;
    asked.says("Once upon a time").await;
    assert_eq!(toy.hears_piece(task(1), 0).await, "Once upon a time");
    drop(toy);
    asked.hung_up().await;
    stage.site.turns_ended("stopped", 1).await;
}
