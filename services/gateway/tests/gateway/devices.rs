//! Devices, connected or not: single and in pages.

use reqwest::Method;
use serde_json::{Value, json};
use switchboard_protocol::token::Scope;

use crate::test_gateway::{SERVICES, TEST_TIMEOUT, TestGateway, send};

fn ids(page: &Value) -> Vec<&str> {
    page["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|device| device["id"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn device_shows_its_connection_or_stored_state() {
    let gateway = TestGateway::start().await;
    let epoch = gateway.connect("live").await;
    gateway.store_device("past").await;

    let live = gateway.get("/v1/devices/live").await;
    assert_eq!(live.status, 200, "{}", live.text);
    assert_eq!(
        (&live.json["online"], &live.json["left_reason"]),
        (&json!(true), &Value::Null)
    );
    assert!(
        live.json["node"].as_str().unwrap().starts_with("edge~"),
        "{}",
        live.text
    );
    assert!(
        live.json["since"].as_str().unwrap().ends_with('Z'),
        "{}",
        live.text
    );
    assert!(
        live.text.contains(&format!("\"services\":{SERVICES}")),
        "{}",
        live.text
    );

    let past = gateway.get("/v1/devices/past").await;
    assert_eq!(past.json["online"], false);
    assert_eq!(
        (&past.json["since"], &past.json["node"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(past.json["left_reason"], "idle_timeout");
    assert!(past.json["last_seen"].is_string());
    assert!(
        past.text.contains(&format!("\"services\":{SERVICES}")),
        "{}",
        past.text
    );

    gateway.disconnect("live", epoch);
    let gone = gateway.get("/v1/devices/nobody").await;
    assert_eq!(
        (gone.status, &gone.json["type"]),
        (404, &json!("/problems/unknown_device"))
    );
}

#[tokio::test]
async fn device_is_disconnected_once() {
    let gateway = TestGateway::start().await;
    gateway.connect("live").await;
    gateway.store_device("past").await;
    let (admin, foreign) = (
        gateway.add_key(&[Scope::Admin]).await,
        gateway.foreign_key().await,
    );
    let disconnect = async |key, device: &str| {
        let path = format!("/v1/devices/{device}/disconnect");
        let response = send(gateway.request_as(key, Method::POST, &path)).await;
        (response.status, response.json["type"].clone())
    };
    let unknown = (404, json!("/problems/unknown_device"));
    assert_eq!(disconnect(&foreign, "live").await, unknown);
    assert_eq!(gateway.get("/v1/devices/live").await.json["online"], true);
    assert_eq!(disconnect(&admin, "live").await, (204, Value::Null));
    assert_eq!(gateway.get("/v1/devices/live").await.status, 404);
    let offline = (409, json!("/problems/offline"));
    assert_eq!(disconnect(&admin, "past").await, offline);
    assert_eq!(disconnect(&admin, "nobody").await, unknown);
    let invalid = (404, json!("/problems/not_found"));
    assert_eq!(disconnect(&admin, "no%20id").await, invalid);
}

#[tokio::test]
async fn device_list_is_paginated() {
    let gateway = TestGateway::start().await;
    for id in ["a", "c", "e"] {
        gateway.connect(id).await;
    }
    for id in ["B", "a", "d"] {
        gateway.store_device(id).await;
    }
    let all = gateway.get("/v1/devices").await.json;
    assert_eq!(ids(&all), ["B", "a", "c", "d", "e"]);
    assert_eq!(
        (&all["next_cursor"], all.get("incomplete")),
        (&Value::Null, None)
    );

    let mut path = "/v1/devices?limit=2".to_owned();
    let mut pages = Vec::new();
    loop {
        let page = gateway.get(&path).await.json;
        pages.push(ids(&page).join(""));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/devices?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(pages, ["Ba", "cd", "e"]);
}

#[tokio::test]
async fn invalid_page_query_is_refused() {
    let gateway = TestGateway::start().await;
    let check = async |query: &str| {
        let answer = gateway.get(&format!("/v1/devices?{query}")).await;
        assert_eq!(answer.status, 400, "{query}: {}", answer.text);
    };
    check("limit=0").await;
    check("limit=201").await;
    check("limit=x").await;
    check("cursor=!").await;
    check("offset=1").await;
}

#[tokio::test]
async fn live_devices_are_listed_without_the_database() {
    let gateway = TestGateway::start().await;
    gateway.connect("live").await;
    gateway.store_device("past").await;
    assert_eq!(gateway.get("/v1/devices").await.status, 200);
    gateway.database.set_unavailable(true).await.unwrap();
    let list = gateway.get("/v1/devices").await.json;
    assert_eq!(
        (ids(&list), &list["incomplete"]),
        (vec!["live"], &json!(true))
    );
    let live = gateway.get("/v1/devices/live").await;
    assert_eq!((live.status, &live.json["online"]), (200, &json!(true)));
    let past = gateway.get("/v1/devices/past").await;
    assert_eq!(
        (past.status, &past.json["type"]),
        (503, &json!("/problems/store_unavailable"))
    );
    gateway.database.set_unavailable(false).await.unwrap();
}

#[tokio::test]
async fn disconnected_device_is_offline() {
    let gateway = TestGateway::start().await;
    gateway.store_device("toy-1").await;
    let epoch = gateway.connect("toy-1").await;
    assert_eq!(gateway.get("/v1/devices/toy-1").await.json["online"], true);
    gateway.disconnect("toy-1", epoch);
    let device = gateway.device("toy-1");
    let gone = async {
        while gateway.edge.bus.find(&device).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, gone).await.unwrap();
    assert_eq!(gateway.get("/v1/devices/toy-1").await.json["online"], false);
}
