//! The same clients where an NPC is the server: its device's tools but for those that it may not use.

use super::*;

/// A plant, a device with one tool more than others have, and the id of an NPC that may not use that one.
async fn npc() -> (Plant, Device, String) {
    let (plant, mut device) = stage().await;
    let mut more = services();
    more["open_the_door"] = json!({});
    device.register(&more.to_string()).await;
    let npc = json!({
        "overrides": {"name": "Bello", "tools": {"deny": ["open_the_door"]}}, "device_ids": [DEVICE],
    });
    let url = format!("{}/v1/npcs", plant.control.address("http_url"));
    let request = plant.http.post(url).bearer_auth(&plant.org.key).json(&npc);
    let made = request.send().await.unwrap();
    assert_eq!(made.status(), 201);
    let made: Value = made.json().await.unwrap();
    let id = made["id"].as_str().unwrap().to_owned();
    (plant, device, id)
}

/// Talks, and then hears that the tools are others.
async fn serves(maker: impl Fn(&Plant, &str) -> Maker) {
    let (plant, mut device, id) = npc().await;
    talks(maker(&plant, &id), &plant, &mut device).await;
    hears(maker(&plant, &id), &plant, &mut device).await;
}

fn endpoint(id: &str) -> String {
    format!("/mcp/npcs/{id}")
}

#[tokio::test]
async fn python_2_3_0() {
    serves(|plant, id| Maker::python("2.3.0", NEWEST, &["auto"]).at(plant, &endpoint(id))).await;
}

#[tokio::test]
async fn python_1_30_0() {
    serves(|plant, id| Maker::python("1.30.0", LEGACY, &["http"]).at(plant, &endpoint(id))).await;
}

#[tokio::test]
async fn client_2_4_0() {
    serves(|plant, id| Maker::node("client.mjs", NEWEST, &["modern"]).at(plant, &endpoint(id)))
        .await;
}

#[tokio::test]
async fn sdk_1_32_2_stdio() {
    serves(|_, id| Maker::node("sdk.mjs", LEGACY, &["stdio"]).stdio_with(&["--npc", id])).await;
}
