//! A process that answers dies in the middle of a turn.
//! Never: a service called twice for one question.

use serde_json::json;

use crate::{
    site::Stage,
    turns::{task, time_service},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_killed_before_a_call_is_followed_by_another_that_answers() {
    let mut stage = Stage::set(1, &[]).await;
    let mut toy = stage.site.device(0, "toy-1").await;
    toy.register(&time_service("Get current time")).await;
    toy.says(task(1), "What time is it?").await;
    let mut lost = stage.provider.asked().await;
    stage.chat.kill();
    lost.hung_up().await;
    let _other = stage.another_chat();
    let asked = stage.provider.asked().await;
    assert_eq!(asked.question(), "What time is it?");
    asked.calls(&[("call_1", "get_current_time", "{}")]).await;
    let (id, ..) = toy.is_called().await;
    toy.gives(&id, json!("14:30")).await;
    stage.provider.asked().await.replies("It is 14:30.").await;
    assert_eq!(toy.hears(task(1)).await, "It is 14:30.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_killed_after_a_call_is_followed_by_an_apology() {
    let mut stage = Stage::set(1, &[]).await;
    let mut toy = stage.site.device(0, "toy-1").await;
    toy.register(&time_service("Get current time")).await;
    toy.says(task(1), "What time is it?").await;
    let asked = stage.provider.asked().await;
    asked.calls(&[("call_1", "get_current_time", "{}")]).await;
    let (id, ..) = toy.is_called().await;
    stage.chat.kill();
    toy.gives(&id, json!("too late")).await;
    let _other = stage.another_chat();
    // The very next frames: no second call, no word of the result.
    let words = toy.hears(task(1)).await;
    assert!(words.starts_with("Sorry, I was interrupted."), "{words}");
    assert_eq!(stage.provider.seen().len(), 1);
}
