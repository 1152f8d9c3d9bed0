//! Calls of many devices at once.

use reqwest::Method;
use serde_json::{Value, json};
use switchboard_identity::ApiKeySecret;
use switchboard_runtime::budget::{Kind, Owner};
use switchboard_test_support::eventually::eventually_true;

use crate::test_gateway::{Response, TestGateway, send};

const TOOLS: &str = r#"{"talk":{},"silent":{},"echo":{},"fail":{}}"#;

/// A gateway with three connected devices and one that is not, all `red`.
async fn gateway() -> TestGateway {
    let gateway = TestGateway::start().await;
    for id in ["lamp-1", "toy-1", "toy-2"] {
        gateway.connect_with(id, TOOLS).await;
        gateway.label(id, &["red"]).await;
    }
    gateway.store_device("past").await;
    gateway.label("past", &["red"]).await;
    gateway
}

async fn call_as(gateway: &TestGateway, key: &ApiKeySecret, body: &Value) -> Response {
    let request = gateway.request_as(key, Method::POST, "/v1/group-calls");
    send(request.json(body)).await
}

async fn call(gateway: &TestGateway, body: &Value) -> Response {
    call_as(gateway, &gateway.key, body).await
}

/// The events of a group, by name.
async fn events(gateway: &TestGateway, body: &Value) -> Vec<(String, Value)> {
    let request = gateway.request(Method::POST, "/v1/group-calls").json(body);
    let request = request.header("accept", "text/event-stream");
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = response.text().await.unwrap();
    let blocks = text.split("\n\n").filter(|block| !block.is_empty());
    let parsed = blocks.map(|block| {
        let (name, data) = block.split_once('\n').unwrap();
        let data = data.strip_prefix("data: ").unwrap();
        let name = name.strip_prefix("event: ").unwrap();
        (name.to_owned(), serde_json::from_str(data).unwrap())
    });
    parsed.collect()
}

fn outcomes(group: &Value) -> Vec<(&str, &str)> {
    let items = group["items"].as_array().unwrap();
    let of =
        |item: &'_ Value, member: &str| item[member].as_str().unwrap().to_owned().leak() as &str;
    items
        .iter()
        .map(|item| (of(item, "device_id"), of(item, "outcome")))
        .collect()
}

#[tokio::test]
async fn each_device_has_its_outcome() {
    let gateway = gateway().await;
    let group = call(
        &gateway,
        &json!({"label": "red", "service": "echo", "params": {"a": 1.50}}),
    )
    .await;
    assert_eq!(group.status, 200, "{group:?}");
    let expected = [
        ("lamp-1", "succeeded"),
        ("past", "offline"),
        ("toy-1", "succeeded"),
        ("toy-2", "succeeded"),
    ];
    assert_eq!(outcomes(&group.json), expected);
    assert_eq!(group.json["devices"], 4);
    assert_eq!(
        group.json["outcomes"],
        json!({"succeeded": 3, "offline": 1})
    );
    let (lamp, past) = (&group.json["items"][0], &group.json["items"][1]);
    assert_eq!(lamp["result"]["success"], true);
    assert_eq!(
        (&lamp["delivered"], lamp.get("problem")),
        (&json!("yes"), None)
    );
    assert_eq!(
        (&past["delivered"], &past["problem"]["type"]),
        (&json!("no"), &json!("/problems/offline"))
    );
    // A list of devices has its order; other services have other outcomes.
    let listed =
        json!({"devices": ["toy-1", "nobody", "lamp-1", "toy-1"], "service": "fail", "at_once": 1});
    let group = call(&gateway, &listed).await.json;
    let expected = [
        ("toy-1", "failed"),
        ("nobody", "unknown_device"),
        ("lamp-1", "failed"),
    ];
    assert_eq!(outcomes(&group), expected);
    assert!(group["items"][0]["result"].is_object(), "{group}");
    let group = call(
        &gateway,
        &json!({"devices": ["toy-1", "past"], "service": "invalid"}),
    )
    .await
    .json;
    assert_eq!(group["outcomes"], json!({"invalid": 1, "offline": 1}));
    assert!(group["items"][0]["problem"]["errors"].is_array(), "{group}");
    let late = json!({"labels": ["red"], "service": "silent", "timeout_ms": 50});
    let group = call(&gateway, &late).await.json;
    assert_eq!(group["outcomes"], json!({"timed_out": 3, "offline": 1}));
    let none = call(&gateway, &json!({"label": "green", "service": "echo"}))
        .await
        .json;
    assert_eq!(none, json!({"devices": 0, "outcomes": {}, "items": []}));
}

#[tokio::test]
async fn group_that_is_too_large_sends_nothing() {
    let gateway = gateway().await;
    let org = gateway.org.uuid();
    let fill = format!(
        "INSERT INTO device_labels (org_id, device_id, labels, note)
         SELECT '{org}', 'd' || n, '{{red}}', '' FROM generate_series(1, 197) n"
    );
    gateway.database.execute(&fill).await.unwrap();
    let refused = call(&gateway, &json!({"label": "red", "service": "echo"})).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    assert_eq!(
        (&refused.json["devices"], &refused.json["limit"]),
        (&json!(201), &json!(200))
    );
    assert!(
        refused.json["detail"]
            .as_str()
            .unwrap()
            .contains("201 devices")
    );
    let listed: Vec<String> = (0..201).map(|at| format!("toy-{at}")).collect();
    let refused = call(&gateway, &json!({"devices": listed, "service": "echo"})).await;
    assert_eq!(
        (refused.status, &refused.json["delivered"]),
        (422, &json!("no"))
    );
    let large = json!({"label": "red", "service": "echo", "params": {"a": "x".repeat(300_000)}});
    assert_eq!(call(&gateway, &large).await.status, 413);
    assert!(gateway.edge.called.lock().is_empty());
}

#[tokio::test]
async fn stream_has_an_item_as_each_call_ends() {
    let gateway = gateway().await;
    let seen = events(&gateway, &json!({"label": "red", "service": "talk"})).await;
    assert_eq!(seen[0], ("started".to_owned(), json!({"devices": 4})));
    let (name, sums) = seen.last().unwrap();
    let expected = json!({"devices": 4, "outcomes": {"succeeded": 3, "offline": 1}});
    assert_eq!((name.as_str(), sums), ("ended", &expected));
    let named = |wanted: &str| seen.iter().filter(|(name, _)| name == wanted).count();
    assert_eq!(named("item"), 4);
    let first = seen
        .iter()
        .position(|(name, data)| name == "progress" && data["device_id"] == "toy-1");
    let item = seen
        .iter()
        .position(|(name, data)| name == "item" && data["device_id"] == "toy-1");
    assert!(first.unwrap() < item.unwrap(), "{seen:?}");
    assert_eq!(seen[first.unwrap()].1["progress"], 1.0);
}

#[tokio::test]
async fn caller_that_disconnects_cancels_its_calls() {
    let gateway = gateway().await;
    for accept in ["text/event-stream", "application/json"] {
        gateway.edge.cancelled.lock().clear();
        let body = json!({"devices": ["toy-1", "toy-2"], "service": "silent"});
        let request = gateway.request(Method::POST, "/v1/group-calls").json(&body);
        let mut request_task = tokio::task::JoinSet::new();
        request_task.spawn(request.header("accept", accept).send());
        let (first, _) = gateway.edge.next_unanswered().await;
        let (second, _) = gateway.edge.next_unanswered().await;
        if accept == "text/event-stream" {
            drop(request_task.join_next().await.unwrap().unwrap().unwrap());
        } else {
            request_task.abort_all();
        }
        eventually_true("the calls are cancelled", || {
            let cancelled = gateway.edge.cancelled.lock();
            [first, second].iter().all(|call| cancelled.contains(call))
        })
        .await;
    }
}

#[tokio::test]
async fn restricted_key_calls_the_devices_that_it_reaches() {
    let gateway = gateway().await;
    let key = gateway.restricted_key(Some("toy-"), Some(&["echo"])).await;
    let group = call_as(&gateway, &key, &json!({"label": "red", "service": "echo"}))
        .await
        .json;
    assert_eq!(
        outcomes(&group),
        [("toy-1", "succeeded"), ("toy-2", "succeeded")]
    );
    gateway.edge.called.lock().clear();
    for (body, restriction) in [
        (
            json!({"devices": ["toy-1", "lamp-1"], "service": "echo"}),
            "device_prefix",
        ),
        (json!({"label": "red", "service": "fail"}), "services"),
    ] {
        let refused = call_as(&gateway, &key, &body).await;
        assert_eq!(
            (refused.status, &refused.json["restriction"]),
            (403, &json!(restriction))
        );
    }
    assert!(gateway.edge.called.lock().is_empty());
}

#[tokio::test]
async fn group_without_a_slot_is_refused() {
    let gateway = gateway().await;
    let budget = gateway.budgets.slots("group_calls", 1, Kind::Brief);
    let owner = Owner::Org(gateway.org.uuid());
    let held = budget.try_acquire(owner, budget.share()).unwrap();
    let body = json!({"label": "red", "service": "echo"});
    let refused = call(&gateway, &body).await;
    assert_eq!(
        (refused.status, &refused.json["budget"]),
        (429, &json!("group_calls"))
    );
    assert!(gateway.edge.called.lock().is_empty());
    drop(held);
    assert_eq!(call(&gateway, &body).await.status, 200);
}

#[tokio::test]
async fn results_beyond_the_limit_are_left_out() {
    let gateway = TestGateway::start().await;
    let ids: Vec<String> = (0..24).map(|at| format!("d{at}")).collect();
    for id in &ids {
        gateway.connect_with(id, TOOLS).await;
    }
    let params = json!({"text": "x".repeat(200_000)});
    let group = call(
        &gateway,
        &json!({"devices": ids, "service": "echo", "params": params}),
    )
    .await;
    assert_eq!(group.status, 200);
    assert_eq!(group.json["outcomes"], json!({"succeeded": 24}));
    let items = group.json["items"].as_array().unwrap();
    let left_out = |item: &&Value| item["problem"]["type"] == "/problems/result_left_out";
    let left_out = items.iter().filter(left_out).count();
    let kept = items
        .iter()
        .filter(|item| item["result"].is_object())
        .count();
    assert_eq!((kept, left_out), (20, 4));
}
