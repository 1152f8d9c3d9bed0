//! Which character answers for a device: its own, else its organisation's.
//! Never: one of another organisation.

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    site::Stage,
    turns::{task, time_service},
};

#[tokio::test(flavor = "multi_thread")]
async fn the_organisations_npc_answers_where_no_other_is_bound() {
    let mut stage = Stage::set(1, &[]).await;
    let site = &stage.site;
    let general = json!({"name": "Rex", "persona": {"role": "the one for all"}});
    let general = site.npc(&general, &[]).await;
    let bound = json!({"name": "Bello", "persona": {"role": "the one of its own"}});
    let bound = site.npc(&bound, &["toy-1"]).await;
    site.answers_for_all(&general).await;
    let mut own = site.device(0, "toy-1").await;
    let mut other = site.device(0, "toy-2").await;
    for (number, (toy, role)) in [
        (&mut own, "the one of its own"),
        (&mut other, "the one for all"),
    ]
    .into_iter()
    .enumerate()
    {
        toy.says(task(number), "Who are you?").await;
        let asked = stage.provider.asked().await;
        assert!(asked.system().contains(role), "{}", asked.system());
        asked.replies("Guess.").await;
        assert_eq!(toy.hears(task(number)).await, "Guess.");
    }
    // Without its own, it is the organisation's turn.
    let url = format!("{}/v1/npcs/{bound}", site.settings);
    let shown = site
        .http
        .get(&url)
        .bearer_auth(&site.key)
        .send()
        .await
        .unwrap();
    let removed = site.http.delete(&url).bearer_auth(&site.key);
    let removed = removed.header("if-match", &shown.headers()["etag"]);
    assert_eq!(removed.send().await.unwrap().status(), 204);
    own.says(task(7), "And now?").await;
    let asked = stage.provider.asked().await;
    assert!(asked.system().contains("the one for all"));
    asked.replies("Guess again.").await;
    own.hears(task(7)).await;
    // Another organisation has none of ours.
    let stranger = stage.plant.another_org("second").await;
    let token = stage
        .plant
        .token(&stranger, "device:toy-2", &["device"])
        .await;
    let token = token["access_token"].as_str().unwrap();
    let mut stranger = crate::device::Device::connect(&stage.site.devices[0], token).await;
    stranger.says(task(8), "Who are you?").await;
    let asked = stage.provider.asked().await;
    assert!(!asked.system().contains("the one for all"));
    asked.replies("Nobody.").await;
    stranger.hears(task(8)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_character_uses_only_what_it_may() {
    let mut stage = Stage::set(1, &[]).await;
    let settings = json!({"name": "Bello", "tools": {"deny": ["get_current_time"]}});
    let npc = stage.site.npc(&settings, &["toy-1"]).await;
    let mut toy = stage.site.device(0, "toy-1").await;
    let mut services: Value = serde_json::from_str(&time_service("Get current time")).unwrap();
    services["ring"] = json!({"description": "Ring the bell"});
    toy.register(&services.to_string()).await;
    toy.says(task(1), "What time is it?").await;
    let asked = stage.provider.asked().await;
    let tools = asked.body["tools"].as_array().unwrap();
    assert_eq!(
        (tools.len(), &tools[0]["function"]["name"]),
        (1, &json!("ring"))
    );
    // What it is not told of, it cannot call either.
    asked.calls(&[("call_1", "get_current_time", "{}")]).await;
    let asked = stage.provider.asked().await;
    let (_, results) = asked.last_round();
    let told = results[0]["content"].as_str().unwrap();
    assert!(told.ends_with("There are: ring."), "{told}");
    asked.replies("I cannot tell.").await;
    assert_eq!(toy.hears(task(1)).await, "I cannot tell.");
    let path = format!("/v1/npcs/{npc}");
    let (_, shown) = stage.site.ask(Method::GET, &path, &Value::Null).await;
    assert_eq!(
        shown["effective"]["tools"]["deny"],
        json!(["get_current_time"])
    );
}
