//! Keys and tokens that reach some devices and services only, over REST and MCP.

use reqwest::Method;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use switchboard_identity::ApiKeySecret;
use switchboard_test_support::eventually::eventually_some;

use crate::{
    mcp_client::{exchange, legacy, modern, names, with_credential},
    mcp_npcs::{npc, npc_path},
    test_gateway::{Response, TestGateway, send},
};

const SERVICES: &str =
    r#"{"echo": {"description": "回声"}, "led.on": {"timeout_ms": 10}, "reset": {}}"#;

/// A gateway with three devices, of which one is not connected, and a key for the toys.
async fn gateway() -> (TestGateway, ApiKeySecret) {
    let gateway = TestGateway::start().await;
    gateway.connect_with("lamp-1", SERVICES).await;
    gateway.connect_with("toy-1", SERVICES).await;
    gateway.store_device("toy-2").await;
    gateway.store_device("tpy").await;
    let key = gateway
        .restricted_key(Some("toy-"), Some(&["echo", "led.*"]))
        .await;
    (gateway, key)
}

async fn ask(gateway: &TestGateway, key: &ApiKeySecret, method: Method, path: &str) -> Response {
    send(gateway.request_as(key, method, path)).await
}

#[track_caller]
fn assert_outside(response: &Response, restriction: &str) {
    assert_eq!(response.status, 403, "{response:?}");
    assert_eq!(response.json["type"], "/problems/outside_key");
    assert_eq!(response.json["restriction"], restriction, "{response:?}");
}

#[tokio::test]
async fn restricted_key_sees_and_calls_what_it_reaches() {
    let (gateway, key) = gateway().await;
    let listed = ask(&gateway, &key, Method::GET, "/v1/devices").await.json;
    let devices = listed["devices"].as_array().unwrap();
    let ids: Vec<_> = devices.iter().map(|device| &device["id"]).collect();
    assert_eq!(ids, ["toy-1", "toy-2"], "{listed}");
    assert_eq!(listed["next_cursor"], Value::Null);
    let services = json!({"echo": {"description": "回声"}, "led.on": {"timeout_ms": 10}});
    assert_eq!(devices[0]["services"], services);
    // In pages, too.
    let first = ask(&gateway, &key, Method::GET, "/v1/devices?limit=1")
        .await
        .json;
    let path = format!(
        "/v1/devices?limit=1&cursor={}",
        first["next_cursor"].as_str().unwrap()
    );
    let second = ask(&gateway, &key, Method::GET, &path).await.json;
    assert_eq!(second["devices"][0]["id"], "toy-2");
    assert_eq!(second["next_cursor"], Value::Null, "{second}");
    let shown = ask(&gateway, &key, Method::GET, "/v1/devices/toy-1").await;
    assert_eq!(shown.json["services"], services);
    for (method, path) in [
        (Method::GET, "/v1/devices/lamp-1"),
        // The answer is the same for a device that does not exist.
        (Method::GET, "/v1/devices/lamp-9"),
        (Method::POST, "/v1/devices/lamp-1/disconnect"),
    ] {
        assert_outside(&ask(&gateway, &key, method, path).await, "device_prefix");
    }
    let call = async |device: &str, service: &str| {
        let path = format!("/v1/devices/{device}/calls");
        let request = gateway.request_as(&key, Method::POST, &path);
        send(request.json(&json!({"service": service}))).await
    };
    assert_eq!(call("toy-1", "echo").await.status, 200);
    let refused = call("toy-1", "reset").await;
    assert_outside(&refused, "services");
    assert_eq!(refused.json["value"], json!(["echo", "led.*"]));
    assert_eq!(refused.json["delivered"], "no");
    assert_outside(&call("lamp-1", "echo").await, "device_prefix");
    assert_eq!(*gateway.edge.called.lock(), ["toy-1"]);
}

#[tokio::test]
async fn restricted_key_reads_stored_calls_that_it_reaches() {
    let (gateway, key) = gateway().await;
    let mut ids = Vec::new();
    for (device, service) in [("toy-9", "led.on"), ("toy-9", "reset"), ("lamp-9", "echo")] {
        let body = json!({"service": service, "mode": "queued"}).to_string();
        let accepted = gateway.call(device, &body).await;
        assert_eq!(accepted.status, 202, "{accepted:?}");
        ids.push(accepted.json["call_id"].as_str().unwrap().to_owned());
    }
    let listed = ask(&gateway, &key, Method::GET, "/v1/calls").await.json;
    let calls = listed["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 1, "{listed}");
    assert_eq!(calls[0]["call_id"], ids[0]);
    for (id, restriction) in [(&ids[1], "services"), (&ids[2], "device_prefix")] {
        for method in [Method::GET, Method::DELETE] {
            let path = format!("/v1/calls/{id}");
            let refused = ask(&gateway, &key, method, &path).await;
            assert_outside(&refused, restriction);
        }
    }
    let own = format!("/v1/calls/{}", ids[0]);
    assert_eq!(ask(&gateway, &key, Method::GET, &own).await.status, 200);
    assert_eq!(ask(&gateway, &key, Method::DELETE, &own).await.status, 204);
    // Without restrictions, all of them.
    let all = gateway.get("/v1/calls").await.json;
    assert_eq!(all["calls"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn restricted_key_has_the_tools_that_it_reaches() {
    let (gateway, key) = gateway().await;
    let mcp = async |path: &str, method: &str, params: Value| {
        let request = modern(&gateway, path, method, params);
        exchange(with_credential(request, key.expose_secret())).await
    };
    let listed = mcp("/mcp", "tools/list", json!({})).await;
    assert_eq!(
        names(listed.result()),
        ["toy-1__echo", "toy-1__led_on-d79f823b", "toy-2__echo"],
        "{listed:?}"
    );
    let listed = mcp("/mcp/devices/toy-1", "tools/list", json!({})).await;
    assert_eq!(names(listed.result()).len(), 2, "{listed:?}");
    let called = mcp("/mcp/devices/toy-1", "tools/call", json!({"name": "echo"})).await;
    assert_eq!(called.result()["isError"], json!(false), "{called:?}");
    for (path, name, restriction) in [
        ("/mcp/devices/toy-1", "reset", "services"),
        ("/mcp", "toy-1__reset", "services"),
        ("/mcp", "lamp-1__echo", "device_prefix"),
    ] {
        let requests = [
            modern(&gateway, path, "tools/call", json!({"name": name})),
            legacy(&gateway, path, "tools/call", json!({"name": name})),
        ];
        for request in requests {
            let refused = exchange(with_credential(request, key.expose_secret())).await;
            assert_eq!(refused.error_code(), -32602, "{refused:?}");
            let data = &refused.last()["error"]["data"];
            assert_eq!(data["type"], "/problems/outside_key", "{refused:?}");
            assert_eq!(data["restriction"], restriction);
        }
    }
    let refused = mcp("/mcp/devices/lamp-1", "tools/list", json!({})).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_eq!(*gateway.edge.called.lock(), ["toy-1"]);
}

#[tokio::test]
async fn npc_has_for_a_restricted_key_the_tools_that_it_reaches() {
    let (gateway, key) = gateway().await;
    let rex = npc(&gateway, None, json!({"name": "Rex"}), &["lamp-1", "toy-1"]).await;
    let path = npc_path(&rex);
    let request = modern(&gateway, &path, "tools/list", json!({}));
    let listed = exchange(with_credential(request, key.expose_secret())).await;
    let tools = names(listed.result());
    assert_eq!(tools.len(), 2, "{tools:?}");
    assert!(
        tools.iter().all(|tool| tool.starts_with("toy-1")),
        "{tools:?}"
    );
    let request = modern(
        &gateway,
        &path,
        "tools/call",
        json!({"name": "lamp-1__echo"}),
    );
    let refused = exchange(with_credential(request, key.expose_secret())).await;
    assert_eq!(refused.error_code(), -32602, "{refused:?}");
    assert!(gateway.edge.called.lock().is_empty());
}

/// A gateway with a toy and a lamp that are connected, a toy that is not, and a key for what has the label of the toys.
async fn labelled() -> (TestGateway, ApiKeySecret) {
    let gateway = TestGateway::start().await;
    gateway.connect_with("lamp-1", SERVICES).await;
    gateway.connect_with("toy-1", SERVICES).await;
    gateway.store_device("toy-2").await;
    gateway.label("lamp-1", &["all", "room:hall"]).await;
    for toy in ["toy-1", "toy-2"] {
        gateway.label(toy, &["all", "room:kitchen"]).await;
    }
    let key = gateway.key_of_label("room:kitchen").await;
    (gateway, key)
}

#[tokio::test]
async fn key_of_a_label_lists_the_devices_that_have_it() {
    let (gateway, key) = labelled().await;
    let get = async |path: &str| ask(&gateway, &key, Method::GET, path).await.json;
    let ids = |listed: &Value| {
        let devices = listed["devices"].as_array().unwrap();
        let ids = devices.iter().map(|device| device["id"].clone());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(ids(&get("/v1/devices").await), ["toy-1", "toy-2"]);
    assert_eq!(ids(&get("/v1/devices?online=true").await), ["toy-1"]);
    assert_eq!(ids(&get("/v1/devices?label=room:hall").await), [""; 0]);
    let counts = json!({"online": 1, "known": 2});
    assert_eq!(get("/v1/devices/counts").await, counts);
    let none = json!({"online": 0, "known": 0});
    assert_eq!(get("/v1/devices/counts?prefix=lamp-").await, none);
    let labels = json!([{"label": "all", "devices": 2}, {"label": "room:kitchen", "devices": 2}]);
    assert_eq!(get("/v1/labels").await["items"], labels);
    let request = modern(&gateway, "/mcp", "tools/list", json!({}));
    let listed = exchange(with_credential(request, key.expose_secret())).await;
    let tools = names(listed.result());
    assert!(tools.contains(&"toy-1__echo"), "{tools:?}");
    assert!(
        tools.iter().all(|tool| tool.starts_with("toy-")),
        "{tools:?}"
    );
    for device in ["lamp-1", "toy-1"] {
        let body = r#"{"service": "echo", "mode": "queued"}"#;
        assert_eq!(gateway.call(device, body).await.status, 202);
    }
    let listed = get("/v1/calls").await;
    assert_eq!(listed["calls"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["calls"][0]["device_id"], "toy-1");
}

#[tokio::test]
async fn key_of_a_label_reaches_the_devices_that_have_it() {
    let (gateway, key) = labelled().await;
    let send_to = async |method: Method, path: &str, body: Value| {
        send(gateway.request_as(&key, method, path).json(&body)).await
    };
    let call = json!({"service": "echo"});
    let called = send_to(Method::POST, "/v1/devices/toy-1/calls", call.clone()).await;
    assert_eq!(called.status, 200, "{called:?}");
    let group = json!({"service": "echo", "label": "all"});
    let called = send_to(Method::POST, "/v1/group-calls", group).await;
    assert_eq!(called.json["devices"], 2, "{called:?}");
    let listed = json!({"service": "echo", "devices": ["toy-1", "lamp-1"]});
    let labels = json!({"labels": ["room:kitchen"]});
    for (method, path, body) in [
        (Method::POST, "/v1/devices/lamp-1/calls", call),
        (Method::POST, "/v1/group-calls", listed),
        (Method::PATCH, "/v1/devices/lamp-1", labels),
        (Method::POST, "/v1/devices/lamp-1/disconnect", json!({})),
    ] {
        let refused = send_to(method, path, body).await;
        assert_outside(&refused, "device_label");
        assert_eq!(refused.json["value"], "room:kitchen", "{refused:?}");
    }
    assert_eq!(*gateway.edge.called.lock(), ["toy-1", "toy-1"]);
    // The label decides as it is now.
    gateway.label("toy-1", &["all"]).await;
    gateway.label("lamp-1", &["room:kitchen"]).await;
    eventually_some("the labels count", async || {
        let (toy, lamp) = tokio::join!(
            ask(&gateway, &key, Method::GET, "/v1/devices/toy-1"),
            ask(&gateway, &key, Method::GET, "/v1/devices/lamp-1"),
        );
        ((toy.status, lamp.status) == (403, 200)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn key_of_a_label_reaches_nothing_while_labels_cannot_be_read() {
    let (gateway, key) = labelled().await;
    let path = "/v1/devices/toy-1";
    assert_eq!(ask(&gateway, &key, Method::GET, path).await.status, 200);
    gateway.database.set_unavailable(true).await.unwrap();
    eventually_some("the labels are unknown", async || {
        let refused = ask(&gateway, &key, Method::GET, path).await;
        (refused.json["type"] == "/problems/credentials_unverifiable").then_some(())
    })
    .await;
}
