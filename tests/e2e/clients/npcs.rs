//! The same clients against an NPC as the server: its device's tools except those that it may not
//! use.

use super::*;

/// A cluster, a device with one more tool than usual, and the id of an NPC that may not use that
/// tool.
async fn npc() -> (TestCluster, Device, String) {
    let (cluster, mut device) = fixture().await;
    let mut more = services();
    more["open_the_door"] = json!({});
    device.register(&more.to_string()).await;
    let npc = json!({
        "overrides": {"name": "Bello", "tools": {"deny": ["open_the_door"]}}, "device_ids": [DEVICE],
    });
    let url = format!("{}/v1/npcs", cluster.control.address("http_url"));
    let request = cluster
        .http
        .post(url)
        .bearer_auth(&cluster.org.key)
        .json(&npc);
    let created = request.send().await.unwrap();
    assert_eq!(created.status(), 201);
    let created: Value = created.json().await.unwrap();
    let id = created["id"].as_str().unwrap().to_owned();
    (cluster, device, id)
}

/// Calls tools, then receives a list-changed notification.
async fn serves(maker: impl Fn(&TestCluster, &str) -> Maker) {
    let (cluster, mut device, id) = npc().await;
    check_calls(maker(&cluster, &id), &cluster, &mut device).await;
    check_list_change(maker(&cluster, &id), &cluster, &mut device).await;
}

fn endpoint(id: &str) -> String {
    format!("/mcp/npcs/{id}")
}

#[tokio::test]
async fn python_2_3_0() {
    serves(|cluster, id| Maker::python("2.3.0", NEWEST, &["auto"]).at(cluster, &endpoint(id)))
        .await;
}

#[tokio::test]
async fn python_1_30_0() {
    serves(|cluster, id| Maker::python("1.30.0", LEGACY, &["http"]).at(cluster, &endpoint(id)))
        .await;
}

#[tokio::test]
async fn client_2_4_0() {
    serves(|cluster, id| Maker::node("client.mjs", NEWEST, &["modern"]).at(cluster, &endpoint(id)))
        .await;
}

#[tokio::test]
async fn sdk_1_32_2_stdio() {
    serves(|_, id| Maker::node("sdk.mjs", LEGACY, &["stdio"]).stdio_with(&["--npc", id])).await;
}
