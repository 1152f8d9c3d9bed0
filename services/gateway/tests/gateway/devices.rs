//! Devices, connected or not: single and in pages.

use chrono::Utc;
use reqwest::Method;
use serde_json::{Value, json};
use switchboard_protocol::token::Scope;
use switchboard_store::{DeviceEvent, DeviceEventKind};

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
    check("online=yes").await;
    check("prefix=").await;
    check("prefix=a%20b").await;
    check("services=some").await;
    check(&format!("service={}", "x".repeat(257))).await;
}

/// The ids of all pages of a list, page by page.
async fn pages(gateway: &TestGateway, query: &str) -> Vec<String> {
    let mut path = format!("/v1/devices?{query}");
    let mut pages = Vec::new();
    loop {
        let page = gateway.get(&path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        pages.push(ids(&page.json).join(" "));
        match page.json["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/devices?{query}&cursor={cursor}"),
            None => return pages,
        }
    }
}

const WAVES: &str = r#"{"wave":{"description":"Waves","parameters":{}},"blink":{"description":"Blinks","parameters":{}}}"#;

#[tokio::test]
async fn device_list_is_filtered() {
    let gateway = TestGateway::start().await;
    for id in ["toy-1", "toy-3", "sun-1"] {
        gateway.connect(id).await;
    }
    gateway.connect_with("toy-5", WAVES).await;
    for id in ["toy-1", "toy-2", "toy-4", "toz"] {
        gateway.store_device(id).await;
    }
    let check = async |query: &str, expected: &[&str]| {
        assert_eq!(pages(&gateway, query).await, expected, "{query}");
    };
    check("prefix=toy-&limit=3", &["toy-1 toy-2 toy-3", "toy-4 toy-5"]).await;
    check("prefix=toy-5", &["toy-5"]).await;
    check("prefix=none", &[""]).await;
    check("online=true&limit=2", &["sun-1 toy-1", "toy-3 toy-5"]).await;
    check("online=true&prefix=toy&limit=3", &["toy-1 toy-3 toy-5"]).await;
    check("online=false", &["toy-2 toy-4 toz"]).await;
    check("online=false&limit=2", &["toy-2 toy-4", "toz"]).await;
    check("online=false&prefix=toy-", &["toy-2 toy-4"]).await;
    check("service=wave", &["toy-5"]).await;
    check("service=echo&online=true", &["sun-1 toy-1 toy-3"]).await;
    check("service=echo&online=false&prefix=toy", &["toy-2 toy-4"]).await;
    check(
        "service=echo&limit=4",
        &["sun-1 toy-1 toy-2 toy-3", "toy-4 toz"],
    )
    .await;
    check("service=nothing", &[""]).await;
}

#[tokio::test]
async fn device_list_has_services_as_asked() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("live", WAVES).await;
    gateway.store_device("past").await;
    let list = async |detail: &str| {
        let page = gateway.get(&format!("/v1/devices?{detail}")).await;
        page.json["devices"].as_array().unwrap().clone()
    };
    let full = list("services=full").await;
    assert_eq!(full, list("").await);
    assert!(full[0]["services"]["wave"].is_object(), "{full:?}");
    let names = list("services=names").await;
    assert_eq!(names[0]["service_names"], json!(["blink", "wave"]));
    let stored: Value = serde_json::from_str(SERVICES).unwrap();
    let stored: Vec<&String> = stored.as_object().unwrap().keys().collect();
    assert_eq!(names[1]["service_names"], json!(stored));
    let filtered = list("services=full&service=wave").await;
    assert_eq!(filtered, full[..1]);
    let none = list("services=none&service=wave").await;
    assert_eq!(none.len(), 1);
    for device in names.iter().chain(&none) {
        assert_eq!(device.get("services"), None, "{device}");
    }
    assert_eq!(none[0].get("service_names"), None);
}

#[tokio::test]
async fn filtered_list_reads_a_bounded_number_of_devices() {
    let gateway = TestGateway::start().await;
    let event = |id: String| DeviceEvent {
        device: gateway.device(&id),
        epoch: 1,
        at: Utc::now(),
        kind: DeviceEventKind::Connected,
    };
    let events: Vec<_> = (0..1_001).map(|n| event(format!("toy-{n:04}"))).collect();
    let store = gateway.database.store();
    store.record_device_events(&events).await.unwrap();
    gateway.store_device("zebra").await;
    let found = pages(&gateway, "service=echo").await;
    assert_eq!(found, ["", "zebra"]);
}

#[tokio::test]
async fn devices_are_counted() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    gateway.connect("sun-1").await;
    gateway.store_device("toy-2").await;
    gateway.store_device("toy-1").await;
    gateway.store_device("sun-1").await;
    let check = async |query: &str, online: u64, known: u64| {
        let counts = gateway.get(&format!("/v1/devices/counts{query}")).await;
        assert_eq!(counts.json, json!({"online": online, "known": known}));
    };
    check("", 2, 3).await;
    check("?prefix=toy-", 1, 2).await;
    check("?prefix=none", 0, 0).await;
    gateway.database.set_unavailable(true).await.unwrap();
    let refused = gateway.get("/v1/devices/counts").await;
    assert_eq!(refused.json["type"], "/problems/store_unavailable");
    let refused = gateway.get("/v1/devices?online=false").await;
    assert_eq!(refused.json["type"], "/problems/store_unavailable");
    assert_eq!(
        pages(&gateway, "online=true&service=echo").await,
        ["sun-1 toy-1"]
    );
    gateway.database.set_unavailable(false).await.unwrap();
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

#[tokio::test]
async fn device_that_is_not_connected_is_forgotten() {
    let gateway = TestGateway::start().await;
    let epoch = gateway.connect("live").await;
    gateway.store_device("past").await;
    let (admin, foreign) = (
        gateway.add_key(&[Scope::Admin]).await,
        gateway.foreign_key().await,
    );
    let forget = async |key, device: &str| {
        let path = format!("/v1/devices/{device}");
        let response = send(gateway.request_as(key, Method::DELETE, &path)).await;
        (response.status, response.json["type"].clone())
    };
    let unknown = (404, json!("/problems/unknown_device"));
    assert_eq!(forget(&foreign, "past").await, unknown);
    assert_eq!(forget(&admin, "nobody").await, unknown);
    assert_eq!(
        forget(&admin, "live").await,
        (409, json!("/problems/device_online"))
    );
    assert_eq!(forget(&admin, "past").await, (204, Value::Null));
    assert_eq!(gateway.get("/v1/devices/past").await.status, 404);
    // Its last events arrive late, or again.
    gateway.store_device("past").await;
    assert_eq!(gateway.get("/v1/devices/past").await.status, 404);
    // A newer connection makes it known again.
    let event = DeviceEvent {
        device: gateway.device("past"),
        epoch: 2,
        at: Utc::now(),
        kind: DeviceEventKind::Connected,
    };
    let store = gateway.database.store();
    store.record_device_events(&[event]).await.unwrap();
    let known = gateway.get("/v1/devices/past").await;
    assert_eq!((known.status, &known.json["services"]), (200, &json!({})));
    gateway.disconnect("live", epoch);
}
