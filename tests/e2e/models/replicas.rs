//! A chat process dies in the middle of a turn. No service is called twice for one turn.

use serde_json::json;

use crate::{
    system::ChatFixture,
    turns::{task, time_service},
};

#[tokio::test(flavor = "multi_thread")]
async fn replica_killed_before_call_is_replaced() {
    let mut fixture = ChatFixture::start(1, &[]).await;
    let mut device = fixture.system.device(0, "toy-1").await;
    device.register(&time_service("Get current time")).await;
    device.send_text(task(1), "What time is it?").await;
    let mut lost = fixture.provider.next_request().await;
    fixture.chat.kill();
    lost.wait_closed().await;
    let _other = fixture.another_chat();
    let request = fixture.provider.next_request().await;
    assert_eq!(request.user_message(), "What time is it?");
    request.calls(&[("call_1", "get_current_time", "{}")]).await;
    let (id, ..) = device.receive_call().await;
    device.send_result(&id, json!("14:30")).await;
    fixture
        .provider
        .next_request()
        .await
        .reply("It is 14:30.")
        .await;
    assert_eq!(device.receive_answer(task(1)).await, "It is 14:30.");
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_killed_after_call_causes_apology() {
    let mut fixture = ChatFixture::start(1, &[]).await;
    let mut device = fixture.system.device(0, "toy-1").await;
    device.register(&time_service("Get current time")).await;
    device.send_text(task(1), "What time is it?").await;
    let request = fixture.provider.next_request().await;
    request.calls(&[("call_1", "get_current_time", "{}")]).await;
    let (id, ..) = device.receive_call().await;
    fixture.chat.kill();
    device.send_result(&id, json!("too late")).await;
    let _other = fixture.another_chat();
    // The next frames: no second call and no text about the result.
    let text = device.receive_answer(task(1)).await;
    assert!(text.starts_with("Sorry, I was interrupted."), "{text}");
    assert_eq!(fixture.provider.seen().len(), 1);
}
