//! Selection of the NPC for a device: its own, else the organisation's default, and none of another
//! organisation.

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    system::ChatFixture,
    turns::{task, time_service},
};

#[tokio::test(flavor = "multi_thread")]
async fn default_npc_answers_for_unbound_device() {
    let mut fixture = ChatFixture::start(1, &[]).await;
    let system = &fixture.system;
    let general = json!({"name": "Rex", "persona": {"role": "the one for all"}});
    let general = system.npc(&general, &[]).await;
    let bound = json!({"name": "Bello", "persona": {"role": "the one of its own"}});
    let bound = system.npc(&bound, &["toy-1"]).await;
    system.set_default_npc(&general).await;
    let mut own = system.device(0, "toy-1").await;
    let mut other = system.device(0, "toy-2").await;
    for (number, (lamp, role)) in [
        (&mut own, "the one of its own"),
        (&mut other, "the one for all"),
    ]
    .into_iter()
    .enumerate()
    {
        lamp.send_text(task(number), "Who are you?").await;
        let request = fixture.provider.next_request().await;
        assert!(request.system().contains(role), "{}", request.system());
        request.reply("Guess.").await;
        assert_eq!(lamp.receive_answer(task(number)).await, "Guess.");
    }
    // Without its own NPC, the organisation's default answers.
    let url = format!("{}/v1/npcs/{bound}", system.settings);
    let shown = system
        .http
        .get(&url)
        .bearer_auth(&system.key)
        .send()
        .await
        .unwrap();
    let removed = system.http.delete(&url).bearer_auth(&system.key);
    let removed = removed.header("if-match", &shown.headers()["etag"]);
    assert_eq!(removed.send().await.unwrap().status(), 204);
    own.send_text(task(7), "And now?").await;
    let request = fixture.provider.next_request().await;
    assert!(request.system().contains("the one for all"));
    request.reply("Guess again.").await;
    own.receive_answer(task(7)).await;
    // Another organisation does not see this NPC.
    let stranger = fixture.cluster.another_org("second").await;
    let token = fixture
        .cluster
        .token(&stranger, "device:toy-2", &["device"])
        .await;
    let token = token["access_token"].as_str().unwrap();
    let mut stranger = crate::device::Device::connect(&fixture.system.devices[0], token).await;
    stranger.send_text(task(8), "Who are you?").await;
    let request = fixture.provider.next_request().await;
    assert!(!request.system().contains("the one for all"));
    request.reply("Nobody.").await;
    stranger.receive_answer(task(8)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn npc_calls_only_permitted_tools() {
    let mut fixture = ChatFixture::start(1, &[]).await;
    let settings = json!({"name": "Bello", "tools": {"deny": ["get_current_time"]}});
    let npc = fixture.system.npc(&settings, &["toy-1"]).await;
    let mut device = fixture.system.device(0, "toy-1").await;
    let mut services: Value = serde_json::from_str(&time_service("Get current time")).unwrap();
    services["ring"] = json!({"description": "Ring the bell"});
    device.register(&services.to_string()).await;
    device.send_text(task(1), "What time is it?").await;
    let request = fixture.provider.next_request().await;
    let tools = request.body["tools"].as_array().unwrap();
    assert_eq!(
        (tools.len(), &tools[0]["function"]["name"]),
        (1, &json!("ring"))
    );
    // A tool that is not in the prompt cannot be called either.
    request.calls(&[("call_1", "get_current_time", "{}")]).await;
    let request = fixture.provider.next_request().await;
    let (_, results) = request.last_round();
    let content = results[0]["content"].as_str().unwrap();
    assert!(content.ends_with("There are: ring."), "{content}");
    request.reply("I cannot tell.").await;
    assert_eq!(device.receive_answer(task(1)).await, "I cannot tell.");
    let path = format!("/v1/npcs/{npc}");
    let (_, shown) = fixture.system.ask(Method::GET, &path, &Value::Null).await;
    assert_eq!(
        shown["effective"]["tools"]["deny"],
        json!(["get_current_time"])
    );
}
