//! Who is there: live devices and remembered ones, alone and in pages.

use serde_json::{Value, json};

use crate::stage::{LONG, SERVICES, Stage};

fn ids(page: &Value) -> Vec<&str> {
    page["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|device| device["id"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_live_device_shows_its_connection_and_a_remembered_one_its_past() {
    let stage = Stage::set().await;
    let epoch = stage.connect("live").await;
    stage.remember("past").await;

    let live = stage.get("/v1/devices/live").await;
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

    let past = stage.get("/v1/devices/past").await;
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

    stage.disconnect("live", epoch);
    let gone = stage.get("/v1/devices/nobody").await;
    assert_eq!(
        (gone.status, &gone.json["type"]),
        (404, &json!("/problems/unknown_device"))
    );
}

#[tokio::test]
async fn the_list_is_read_page_by_page() {
    let stage = Stage::set().await;
    for id in ["a", "c", "e"] {
        stage.connect(id).await;
    }
    for id in ["B", "a", "d"] {
        stage.remember(id).await;
    }
    let all = stage.get("/v1/devices").await.json;
    assert_eq!(ids(&all), ["B", "a", "c", "d", "e"]);
    assert_eq!(
        (&all["next_cursor"], all.get("incomplete")),
        (&Value::Null, None)
    );

    let mut path = "/v1/devices?limit=2".to_owned();
    let mut pages = Vec::new();
    loop {
        let page = stage.get(&path).await.json;
        pages.push(ids(&page).join(""));
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/devices?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(pages, ["Ba", "cd", "e"]);
}

#[tokio::test]
async fn wrong_pages_are_refused() {
    let stage = Stage::set().await;
    let check = async |query: &str| {
        let answer = stage.get(&format!("/v1/devices?{query}")).await;
        assert_eq!(answer.status, 400, "{query}: {}", answer.text);
    };
    check("limit=0").await;
    check("limit=201").await;
    check("limit=x").await;
    check("cursor=!").await;
    check("offset=1").await;
}

#[tokio::test]
async fn live_devices_are_shown_while_the_record_is_away() {
    let stage = Stage::set().await;
    stage.connect("live").await;
    stage.remember("past").await;
    assert_eq!(stage.get("/v1/devices").await.status, 200);
    stage.database.set_away(true).await.unwrap();
    let list = stage.get("/v1/devices").await.json;
    assert_eq!(
        (ids(&list), &list["incomplete"]),
        (vec!["live"], &json!(true))
    );
    let live = stage.get("/v1/devices/live").await;
    assert_eq!((live.status, &live.json["online"]), (200, &json!(true)));
    let past = stage.get("/v1/devices/past").await;
    assert_eq!(
        (past.status, &past.json["type"]),
        (503, &json!("/problems/store_unavailable"))
    );
    stage.database.set_away(false).await.unwrap();
}

#[tokio::test]
async fn a_device_that_leaves_is_offline() {
    let stage = Stage::set().await;
    stage.remember("toy-1").await;
    let epoch = stage.connect("toy-1").await;
    assert_eq!(stage.get("/v1/devices/toy-1").await.json["online"], true);
    stage.disconnect("toy-1", epoch);
    let device = stage.device("toy-1");
    let gone = async {
        while stage.edge.bus.find(&device).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, gone).await.unwrap();
    assert_eq!(stage.get("/v1/devices/toy-1").await.json["online"], false);
}
