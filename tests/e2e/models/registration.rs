//! Services that a device registers in the middle of a conversation.

use serde_json::json;

use crate::{
    provider::ProviderRequest,
    system::ChatFixture,
    turns::{task, time_service},
};

/// The names of the tools that a request offers.
fn tools(request: &ProviderRequest) -> Vec<&str> {
    let tools = request.body["tools"].as_array().unwrap().iter();
    let names = tools.map(|tool| tool["function"]["name"].as_str().unwrap());
    names.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn next_turn_offers_the_services_that_are_registered_then() {
    let mut fixture = ChatFixture::start(1, &[]).await;
    let mut device = fixture.system.device(0, "toy-1").await;
    device.register(&time_service("Get current time")).await;
    device.send_text(task(1), "What time is it?").await;
    let request = fixture.provider.next_request().await;
    assert_eq!(tools(&request), ["get_current_time"]);
    let wave = json!({"wave": {"description": "Waves"}});
    device.register(&wave.to_string()).await;
    // The rounds of a turn have the tools of its begin. The model learns that one has gone.
    request.calls(&[("call_1", "get_current_time", "{}")]).await;
    let request = fixture.provider.next_request().await;
    assert_eq!(tools(&request), ["get_current_time"]);
    let (_, results) = request.last_round();
    let result = results[0]["content"].as_str().unwrap();
    assert!(result.contains("unknown_service"), "{result}");
    request.reply("I cannot tell.").await;
    assert_eq!(device.receive_answer(task(1)).await, "I cannot tell.");

    device.send_text(task(2), "Then wave").await;
    let request = fixture.provider.next_request().await;
    assert_eq!(tools(&request), ["wave"]);
    let texts = request.messages().iter().map(|message| &message["content"]);
    let texts: Vec<_> = texts.collect();
    assert!(texts.contains(&&json!("I cannot tell.")), "{texts:?}");
    request.calls(&[("call_2", "wave", "{}")]).await;
    let (id, service, _) = device.receive_call().await;
    assert_eq!(service, "wave");
    device.send_result(&id, json!("done")).await;
    fixture
        .provider
        .next_request()
        .await
        .reply("I waved.")
        .await;
    assert_eq!(device.receive_answer(task(2)).await, "I waved.");
}
