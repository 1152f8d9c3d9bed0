//! Presence and registered services of devices, online and offline.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_test_support::eventually::eventually;

use crate::cluster::{Org, TestCluster, echo_services};

#[tokio::test(flavor = "multi_thread")]
async fn i8_presence_and_services_follow_the_live_connection() {
    let cluster = TestCluster::start(2).await;
    let (status, problem) = cluster.get("/v1/devices/toy-1").await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{problem}");
    let mut lamp = cluster.echo(0, "toy-1").await;
    let (status, device) = cluster.get("/v1/devices/toy-1").await;
    assert_eq!(
        (status, &device["online"]),
        (StatusCode::OK, &json!(true)),
        "{device}"
    );
    assert!(
        device["since"].is_string() && device["node"].as_str().unwrap().starts_with("edge"),
        "{device}"
    );
    let sent: Value = serde_json::from_str(&echo_services()).unwrap();
    assert_eq!(device["services"], sent);
    lamp.register("{\"sing\":{\"description\":\"唱歌\"}}").await;
    let (_, device) = cluster.get("/v1/devices/toy-1").await;
    assert_eq!(device["services"], json!({"sing": {"description": "唱歌"}}));
    // A rejected registration leaves the current one in force.
    let refused = lamp
        .try_register("{\"a\":{\"parameters\":{\"type\":\"colour\"}}}")
        .await;
    assert_eq!(refused["success"], false, "{refused}");
    let (_, device) = cluster.get("/v1/devices/toy-1").await;
    assert_eq!(device["services"], json!({"sing": {"description": "唱歌"}}));
    drop(lamp);
    let asleep = async || cluster.get("/v1/devices/toy-1").await.1;
    let device = eventually(Duration::from_secs(10), asleep, |device| {
        device["left_reason"] == "closed"
    })
    .await;
    assert_eq!(device["online"], false);
    assert_eq!(
        device["services"],
        json!({"sing": {"description": "唱歌"}}),
        "remembered while it sleeps"
    );
    assert!(device["last_seen"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn device_list_pages_contain_online_and_offline_devices() {
    let cluster = TestCluster::start(2).await;
    drop(cluster.echo(0, "b").await);
    let gone = async || cluster.get("/v1/devices/b").await.1["left_reason"].clone();
    eventually(Duration::from_secs(5), gone, |reason| *reason == "closed").await;
    let live = [cluster.echo(1, "c").await, cluster.echo(0, "a").await];
    let (_, page) = cluster.get("/v1/devices?limit=2").await;
    let ids = |page: &Value| {
        let devices = page["devices"].as_array().unwrap().clone();
        devices
            .into_iter()
            .map(|device| (device["id"].clone(), device["online"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ids(&page),
        [(json!("a"), json!(true)), (json!("b"), json!(false))]
    );
    let (_, rest) = cluster
        .get(&format!(
            "/v1/devices?limit=2&cursor={}",
            page["next_cursor"].as_str().unwrap()
        ))
        .await;
    assert_eq!(ids(&rest), [(json!("c"), json!(true))]);
    assert_eq!(rest["next_cursor"], Value::Null);
    let (status, _) = cluster.get("/v1/devices?cursor=%21").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    drop(live);
}

#[tokio::test(flavor = "multi_thread")]
async fn device_is_disconnected_at_whichever_edge_has_it_and_may_return() {
    let cluster = TestCluster::start(2).await;
    let foreign = cluster.another_org("foreign").await;
    let _other = cluster.echo(0, "toy-2").await;
    let mut toy = cluster.echo(1, "toy-1").await;
    let disconnect = async |org: &Org| {
        let url = cluster.url("/v1/devices/toy-1/disconnect");
        let request = cluster.http.post(url).bearer_auth(&org.key);
        let response = request.send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    };
    let (status, problem) = disconnect(&foreign).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{problem}");
    let (status, problem) = disconnect(&cluster.org).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{problem}");
    let online = async || cluster.get("/v1/devices/toy-1").await.1["online"].clone();
    // Unknown until it is stored that it was here.
    assert_ne!(online().await, true);
    eventually(Duration::from_secs(10), online, |online| *online == false).await;
    let last = toy.closes().await.pop().unwrap().json();
    assert_eq!(last["reason"], "disconnect_requested", "{last}");
    let stored = async || cluster.get("/v1/devices/toy-1").await.1["left_reason"].clone();
    eventually(Duration::from_secs(10), stored, |reason| {
        *reason == "disconnect_requested"
    })
    .await;
    let (status, problem) = disconnect(&cluster.org).await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    assert!(problem.contains("/problems/offline"), "{problem}");
    let (_, device) = cluster.get("/v1/devices/toy-2").await;
    assert_eq!(device["online"], true, "{device}");

    let _tasks = cluster.echo(0, "toy-1").await.serve();
    cluster.answers("toy-1", Duration::from_secs(5)).await;
}
