//! Labels and notes of devices: set, shown, filtered, counted.

use reqwest::Method;
use serde_json::{Value, json};
use switchboard_identity::ApiKeySecret;
use switchboard_protocol::token::Scope;
use switchboard_runtime::paging::Order;
use switchboard_store::AuditFilter;

use crate::test_gateway::{Response, TestGateway, send};

async fn patch(gateway: &TestGateway, key: &ApiKeySecret, id: &str, body: &Value) -> Response {
    let path = format!("/v1/devices/{id}");
    send(gateway.request_as(key, Method::PATCH, &path).json(body)).await
}

/// The ids of all pages of a list.
async fn listed(gateway: &TestGateway, query: &str) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = gateway.get(&format!("/v1/devices?{query}{cursor}")).await;
        assert_eq!(page.status, 200, "{}", page.text);
        let devices = page.json["devices"].as_array().unwrap();
        ids.extend(
            devices
                .iter()
                .map(|one| one["id"].as_str().unwrap().to_owned()),
        );
        match page.json["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ids,
        }
    }
}

#[tokio::test]
async fn device_has_the_labels_and_the_note_that_it_was_given() {
    let gateway = TestGateway::start().await;
    let admin = gateway.add_key(&[Scope::Admin]).await;
    gateway.connect("live").await;
    gateway.store_device("past").await;
    let labels = json!(["stage:test", "room:kitchen", "stage:test"]);
    let set = patch(
        &gateway,
        &admin,
        "past",
        &json!({"labels": labels, "note": "左"}),
    )
    .await;
    let expected = json!({"labels": ["room:kitchen", "stage:test"], "note": "左"});
    assert_eq!((set.status, &set.json), (200, &expected));
    let shown = gateway.get("/v1/devices/past").await.json;
    assert_eq!(
        (&shown["labels"], &shown["note"]),
        (&expected["labels"], &json!("左"))
    );
    // A member that is absent stays; null resets.
    let kept = patch(&gateway, &admin, "past", &json!({"labels": null})).await;
    assert_eq!(kept.json, json!({"labels": [], "note": "左"}));
    let kept = patch(
        &gateway,
        &admin,
        "past",
        &json!({"labels": ["a"], "note": null}),
    )
    .await;
    assert_eq!(kept.json, json!({"labels": ["a"], "note": null}));
    assert_eq!(
        patch(&gateway, &admin, "past", &json!({})).await.json,
        kept.json
    );
    // Also of a device that the database does not know yet.
    let live = patch(&gateway, &admin, "live", &json!({"labels": ["a"]})).await;
    assert_eq!(live.status, 200, "{live:?}");
    let list = gateway.get("/v1/devices").await.json;
    let labels: Vec<_> = (0..2).map(|at| &list["devices"][at]["labels"]).collect();
    assert_eq!(labels, [&json!(["a"]), &json!(["a"])]);
    assert_eq!(list["devices"][0].get("note"), None);
    let unknown = patch(&gateway, &admin, "nobody", &json!({"labels": ["a"]})).await;
    assert_eq!(unknown.json["type"], "/problems/unknown_device");
    // A device that is forgotten loses both.
    let forget = gateway.request_as(&admin, Method::DELETE, "/v1/devices/past");
    assert_eq!(send(forget).await.status, 204);
    gateway.store_device("past").await;
    assert_eq!(
        gateway.get("/v1/labels").await.json["items"][0]["devices"],
        1
    );
}

#[tokio::test]
async fn changes_of_labels_are_audited() {
    let gateway = TestGateway::start().await;
    let admin = gateway.add_key(&[Scope::Admin]).await;
    gateway.store_device("past").await;
    for body in [
        json!({"labels": ["a"]}),
        json!({"labels": ["a"]}),
        json!({"labels": null, "note": "x"}),
        json!({"note": null}),
    ] {
        assert_eq!(patch(&gateway, &admin, "past", &body).await.status, 200);
    }
    let filter = AuditFilter {
        device_id: Some("past".parse().unwrap()),
        ..AuditFilter::default()
    };
    let newest_first = (Order::Desc, None);
    let store = &gateway.store;
    let entries = store
        .audit_log(gateway.org.into(), &filter, newest_first, 10)
        .await;
    let changed: Vec<_> = entries
        .unwrap()
        .into_iter()
        .inspect(|entry| assert!(entry.actor.starts_with("key_"), "{entry:?}"))
        .map(|entry| entry.changed.join(","))
        .collect();
    assert_eq!(changed, ["note", "labels,note", "labels"]);
}

#[tokio::test]
async fn invalid_labels_are_refused() {
    let gateway = TestGateway::start().await;
    let admin = gateway.add_key(&[Scope::Admin]).await;
    gateway.store_device("past").await;
    let many: Vec<String> = (0..17).map(|at| format!("l{at}")).collect();
    for (body, pointer) in [
        (json!({"labels": ["two words"]}), "/labels"),
        (json!({"labels": ["x".repeat(64)]}), "/labels"),
        (json!({"labels": many}), "/labels"),
        (json!({"note": "x".repeat(2_001)}), "/note"),
        (json!({"note": "a\u{0}b"}), "/note"),
        (json!({"colour": "red"}), ""),
    ] {
        let refused = patch(&gateway, &admin, "past", &body).await;
        assert_eq!(refused.status, 422, "{refused:?}");
        let found = refused.json["errors"][0]["pointer"].as_str().unwrap();
        assert!(found.starts_with(pointer), "{refused:?}");
    }
    for query in ["label=", "label=a%20b", "label=a&label="] {
        let refused = gateway.get(&format!("/v1/devices?{query}")).await;
        assert_eq!(refused.status, 400, "{query}: {refused:?}");
    }
}

#[tokio::test]
async fn list_has_the_devices_with_all_labels() {
    let gateway = TestGateway::start().await;
    for id in ["a", "c"] {
        gateway.connect(id).await;
    }
    for id in ["b", "d", "e"] {
        gateway.store_device(id).await;
    }
    for (id, labels) in [
        ("a", &["red", "x:1"][..]),
        ("b", &["red"]),
        ("c", &["red", "x:1", "y"]),
        ("d", &["x:1"]),
        // No device.
        ("ghost", &["red"]),
    ] {
        gateway.label(id, labels).await;
    }
    for limit in [1, 2, 50] {
        let check = async |query: &str, expected: &[&str]| {
            let query = format!("limit={limit}&{query}");
            assert_eq!(listed(&gateway, &query).await, expected, "{query}");
        };
        check("label=red", &["a", "b", "c"]).await;
        check("label=red&label=x:1", &["a", "c"]).await;
        check("label=red&online=false", &["b"]).await;
        check("label=x:1&online=true", &["a", "c"]).await;
        check("label=red&prefix=c&service=echo", &["c"]).await;
        check("label=green", &[]).await;
    }
    let labels = gateway.get("/v1/labels").await.json;
    let expected = json!([
        {"label": "red", "devices": 4}, {"label": "x:1", "devices": 3}, {"label": "y", "devices": 1}
    ]);
    assert_eq!(labels, json!({"items": expected, "next_cursor": null}));
    let foreign = gateway.foreign_key().await;
    let theirs = send(gateway.request_as(&foreign, Method::GET, "/v1/devices?label=red")).await;
    assert_eq!(theirs.json["devices"], json!([]));
}

#[tokio::test]
async fn ten_thousand_labelled_devices_are_paginated() {
    let gateway = TestGateway::start().await;
    let org = gateway.org.uuid();
    let fill = format!(
        "INSERT INTO devices (org_id, device_id, epoch, first_seen, last_seen, left_reason)
         SELECT '{org}', 'd' || n, 1, now(), now(), 'closed' FROM generate_series(1, 10000) n;
         INSERT INTO device_labels (org_id, device_id, labels, note)
         SELECT '{org}', 'd' || n, CASE WHEN n % 50 = 0 THEN '{{all,some}}'::text[] ELSE '{{all}}' END, ''
         FROM generate_series(1, 10000) n"
    );
    gateway.database.execute(&fill).await.unwrap();
    let all = listed(&gateway, "label=all&limit=200&services=none").await;
    assert_eq!(all.len(), 10_000);
    assert!(all.is_sorted());
    let some = listed(&gateway, "label=all&label=some&limit=200&services=none").await;
    assert_eq!(some.len(), 200);
}
