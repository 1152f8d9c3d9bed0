//! Every operation of the API document is limited to its organisation and its scope.

use reqwest::Method;
use serde_json::{Value, json};
use switchboard_identity::ApiKeySecret;
use switchboard_protocol::token::Scope;
use switchboard_test_support::eventually::eventually;

use crate::test_gateway::{Response, TEST_TIMEOUT, TestGateway, send};

/// The body of a request to an operation.
fn body_of(id: &str, approval: &Value) -> Option<Value> {
    match id {
        "callDevice" => Some(json!({"service": "echo", "params": {}})),
        "callGroup" => Some(json!({"service": "echo", "label": "all"})),
        "labelDevice" => Some(json!({"labels": ["room:kitchen"], "note": "left"})),
        "approveService" => Some(approval.clone()),
        "listApprovals" | "listOrgApprovals" | "revokeApproval" | "listRecentCalls"
        | "listDevices" | "listLabels" | "countDevices" | "getDevice" | "listCalls" | "getCall"
        | "cancelCall" | "disconnectDevice" | "forgetDevice" => None,
        other => unreachable!(
            "{other} has no case: every operation must show that it keeps what holds for all"
        ),
    }
}

#[tokio::test]
async fn operation_is_limited_to_its_org_and_scope() {
    let gateway = TestGateway::start().await;
    let foreign = gateway.foreign_key().await;
    for device in ["toy-1", "toy-2"] {
        gateway.connect(device).await;
    }
    gateway.store_device("past").await;
    gateway.label("toy-1", &["all"]).await;
    let approval = approve_echo(&gateway, "toy-1").await;
    let document = switchboard_gateway::document();
    let mut seen = 0;
    for (path, item) in document.as_json()["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            seen += 1;
            let id = operation["operationId"].as_str().unwrap();
            // Its response does not end.
            if id == "streamEvents" {
                check_stream(&gateway, path).await;
                continue;
            }
            let body = body_of(id, &approval);
            let scope = operation["security"][0]["credential"][0].as_str().unwrap();
            let method: Method = method.to_uppercase().parse().unwrap();
            let thing = match id {
                // A queued call, which can be cancelled.
                "getCall" | "cancelCall" => {
                    let waits = r#"{"service":"echo","mode":"queued"}"#;
                    let accepted = gateway.call("asleep", waits).await;
                    accepted.json["call_id"].as_str().unwrap().to_owned()
                }
                "revokeApproval" => approval_id(&gateway).await,
                "forgetDevice" => "past".to_owned(),
                "disconnectDevice" => "toy-2".to_owned(),
                _ => "toy-1".to_owned(),
            };
            let path = path.replace("{id}", &thing).replace("{service}", "echo");
            let ask = async |key: Option<&ApiKeySecret>| {
                let request = match key {
                    Some(key) => gateway.request_as(key, method.clone(), &path),
                    None => gateway.anonymous(method.clone(), &path),
                };
                let request = match &body {
                    Some(body) => request.json(body),
                    None => request,
                };
                send(request).await
            };
            let scope: Scope = scope.parse().unwrap();
            let others: Vec<_> = [Scope::Call, Scope::Read, Scope::Admin]
                .into_iter()
                .filter(|other| *other != scope)
                .collect();
            let (wrong, right) = (
                gateway.add_key(&others).await,
                gateway.add_key(&[scope]).await,
            );
            assert_eq!(ask(None).await.status, 401, "{id}");
            assert_eq!(ask(Some(&wrong)).await.status, 403, "{id}");
            let others = ask(Some(&foreign)).await;
            assert_nothing_of_others(id, &path, &others);
            let done = ask(Some(&right)).await.status;
            assert!((200..300).contains(&done), "{id}: {done}");
        }
    }
    assert!(seen >= 12, "{seen}");
}

/// Approves a service of a connected device; returns the body of the request.
async fn approve_echo(gateway: &TestGateway, device: &str) -> Value {
    let key = gateway.add_key(&[Scope::Read, Scope::Admin]).await;
    let ask = |method: Method, path: &str| gateway.request_as(&key, method, path);
    let list = format!("/v1/devices/{device}/approvals");
    let list = send(ask(Method::GET, &list)).await;
    let items = list.json["items"].as_array().unwrap();
    let echo = items.iter().find(|item| item["service"] == "echo").unwrap();
    let body = json!({"digest": echo["digest"], "applies_to": "device"});
    let place = format!("/v1/devices/{device}/services/echo/approval");
    let approved = send(ask(Method::PUT, &place).json(&body)).await;
    assert_eq!(approved.status, 204, "{}", approved.text);
    body
}

/// What an operation answers an organisation that has nothing.
fn assert_nothing_of_others(id: &str, path: &str, others: &Response) {
    let json = &others.json;
    match path.rsplit('/').next() {
        Some(list @ ("devices" | "calls")) if id.starts_with("list") => {
            assert_eq!(json[list], json!([]), "{id}");
        }
        Some("group-calls") => assert_eq!(json["devices"], 0, "{id}"),
        Some("labels" | "approvals") if !path.contains("devices") => {
            assert_eq!(json["items"], json!([]), "{id}")
        }
        Some("recent") => {
            let nothing = json!({"items": [], "next_cursor": null, "left_out": 0});
            assert_eq!(*json, nothing, "{id}");
        }
        Some("counts") => assert_eq!(*json, json!({"online": 0, "known": 0}), "{id}"),
        _ => assert_eq!(others.status, 404, "{id}"),
    }
}

async fn approval_id(gateway: &TestGateway) -> String {
    let listed = gateway.get("/v1/approvals").await.json;
    listed["items"][0]["id"].as_str().unwrap().to_owned()
}

/// That the events of one organisation are not those of another: `event_streams`.
async fn check_stream(gateway: &TestGateway, path: &str) {
    let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status();
    let anonymous = gateway.anonymous(Method::GET, path);
    assert_eq!(status(anonymous).await, 401);
    for (scope, expected) in [(Scope::Call, 403), (Scope::Admin, 403), (Scope::Read, 200)] {
        let key = gateway.add_key(&[scope]).await;
        let request = gateway.request_as(&key, Method::GET, path);
        assert_eq!(status(request).await, expected, "{scope:?}");
    }
}

#[tokio::test]
async fn keys_of_an_org_share_its_rate() {
    let gateway = TestGateway::with_flags(&["--org-rate-per-s=1", "--org-burst=4"]).await;
    let list =
        async |key: &ApiKeySecret| send(gateway.request_as(key, Method::GET, "/v1/devices")).await;
    let mut limited = None;
    for _ in 0..8 {
        let answer = list(&gateway.add_key(&[Scope::Read]).await).await;
        if answer.status != 200 {
            limited = Some(answer);
        }
    }
    let limited = limited.unwrap();
    assert_eq!(limited.json["type"], "/problems/rate_limited");
    assert!(limited.headers.contains_key("retry-after"));
    assert_eq!(list(&gateway.foreign_key().await).await.status, 200);
}

#[tokio::test]
async fn cursor_of_another_list_or_org_is_refused() {
    let gateway = TestGateway::start().await;
    let foreign = gateway.foreign_key().await;
    for device in ["toy-1", "toy-2"] {
        gateway.connect(device).await;
        gateway.label(device, &[device, "all"]).await;
        approve_echo(&gateway, device).await;
        gateway
            .call("asleep", r#"{"service":"echo","mode":"queued"}"#)
            .await;
        gateway.call(device, r#"{"service":"echo"}"#).await;
    }
    let journal = async || gateway.get("/v1/calls/recent").await.json;
    let has_both = |page: &Value| page["items"].as_array().unwrap().len() == 2;
    eventually(TEST_TIMEOUT, journal, has_both).await;
    let document = switchboard_gateway::document();
    let mut cursors = Vec::new();
    for (path, item) in document.as_json()["paths"].as_object().unwrap() {
        let parameters = item["get"]["parameters"].as_array().into_iter().flatten();
        if !parameters.into_iter().any(|one| one["name"] == "cursor") {
            continue;
        }
        let first = gateway.get(&format!("{path}?limit=1")).await;
        let cursor = first.json["next_cursor"].as_str();
        let cursor = cursor.unwrap_or_else(|| panic!("{path}: {}", first.text));
        cursors.push((path.clone(), cursor.to_owned()));
    }
    assert!(cursors.len() >= 2, "{cursors:?}");
    for (index, (path, cursor)) in cursors.iter().enumerate() {
        let next = gateway
            .get(&format!("{path}?limit=1&cursor={cursor}"))
            .await;
        assert_eq!(next.status, 200, "{}", next.text);
        let theirs = format!("{path}?cursor={cursor}");
        let theirs = send(gateway.request_as(&foreign, Method::GET, &theirs)).await;
        let (_, of_another_list) = &cursors[(index + 1) % cursors.len()];
        let another = gateway
            .get(&format!("{path}?cursor={of_another_list}"))
            .await;
        for refused in [theirs, another] {
            assert_eq!(refused.status, 400, "{}", refused.text);
            assert_eq!(refused.json["type"], "/problems/invalid_query");
            let detail = refused.json["detail"].as_str().unwrap();
            assert!(
                detail.starts_with("`cursor` does not belong to this list"),
                "{detail}"
            );
        }
    }
}
