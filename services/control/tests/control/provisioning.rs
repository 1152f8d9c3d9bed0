//! API keys that only issue tokens for devices, and keys that expire.

use chrono::{TimeDelta, Utc};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use switchboard_test_support::eventually::eventually_some;

use crate::{
    cases::{credential, operations},
    installation::{Installation, Org},
};

impl Installation {
    async fn create_key(&self, org: &Org, document: Value) -> (u16, Value) {
        let path = "/v1/api-keys";
        let answer = self.send(Method::POST, path, Some(&org.key), Some(document));
        let (status, key) = answer.await;
        (status.as_u16(), key)
    }

    async fn key_with(&self, org: &Org, document: Value) -> String {
        let (status, key) = self.create_key(org, document).await;
        assert_eq!(status, 201, "{key}");
        key["api_key"].as_str().unwrap().to_owned()
    }

    /// The status and the type of the answer to the request for a token.
    async fn ask_for_token(&self, key: &str, subject: &str, scopes: Value) -> (u16, String) {
        let body = json!({"subject": subject, "scopes": scopes});
        let answer = self.send(Method::POST, "/v1/tokens", Some(key), Some(body));
        let (status, body) = answer.await;
        let kind = body["type"].as_str().unwrap_or_default().to_owned();
        (status.as_u16(), kind)
    }
}

#[tokio::test]
async fn provisioning_key_issues_tokens_of_devices_only() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let document = json!({"name": "factory", "scopes": ["provision"], "device_prefix": "toy-"});
    let key = installation.key_with(&org, document).await;
    let check = async |subject: &str, scopes: Value, expected: (u16, &str)| {
        let (status, kind) = installation.ask_for_token(&key, subject, scopes).await;
        assert_eq!((status, kind.as_str()), expected, "{subject}");
    };
    check("device:toy-1", json!(["device"]), (201, "")).await;
    let mismatch = (403, "/problems/device_prefix_mismatch");
    check("device:lamp-1", json!(["device"]), mismatch).await;
    let not_held = (403, "/problems/scope_not_held");
    check("client:app", json!(["admin"]), not_held).await;
    check("client:app", json!(["provision"]), not_held).await;
    check("device:toy-1", json!(["device", "call"]), not_held).await;
    let invalid = (422, "/problems/invalid_body");
    check("client:toy-1", json!(["device"]), invalid).await;
    check("device:toy-1", json!([]), invalid).await;
    // Without a prefix for any device.
    let document = json!({"name": "factory", "scopes": ["provision"]});
    let key = installation.key_with(&org, document).await;
    let issued = installation.ask_for_token(&key, "device:lamp-1", json!(["device"]));
    assert_eq!(issued.await.0, 201);
}

#[tokio::test]
async fn provisioning_key_has_no_other_operation() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let document = json!({"name": "factory", "scopes": ["provision"]});
    let key = installation.key_with(&org, document).await;
    for operation in operations() {
        let is_permitted = matches!(operation.id.as_str(), "createToken" | "getSession");
        if is_permitted || credential(&operation, &org).is_none() {
            continue;
        }
        let case = installation.case(&operation, &org).await;
        let refused = installation.send_case(&case, Some(&key), None).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{}", operation.id);
    }
}

#[tokio::test]
async fn invalid_limit_of_a_key_is_named() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let check = async |document: Value, field: &str| {
        let (status, problem) = installation.create_key(&org, document).await;
        assert_eq!(
            (status, &problem["errors"][0]["pointer"]),
            (422, &json!(format!("/{field}"))),
            "{problem}"
        );
    };
    check(
        json!({"name": "x", "device_prefix": "toy 1"}),
        "device_prefix",
    )
    .await;
    check(
        json!({"name": "x", "device_label": "room kitchen"}),
        "device_label",
    )
    .await;
    check(json!({"name": "x", "services": []}), "services").await;
    check(json!({"name": "x", "services": vec!["a"; 33]}), "services").await;
    let long = vec!["x".repeat(129); 12];
    check(json!({"name": "x", "services": long}), "services").await;
    check(json!({"name": "x", "services": ["a", ""]}), "services/1").await;
    let past = Utc::now() - TimeDelta::seconds(1);
    check(json!({"name": "x", "expires_at": past}), "expires_at").await;
    // An administrator without the scope `device` cannot issue tokens for devices either.
    let admin = json!({"name": "x", "scopes": ["admin"]});
    let admin = Org {
        key: installation.key_with(&org, admin).await,
        id: org.id.clone(),
    };
    let document = json!({"name": "x", "scopes": ["provision"]});
    let (status, problem) = installation.create_key(&admin, document).await;
    assert_eq!((status, &problem["scope"]), (403, &json!("provision")));
}

#[tokio::test]
async fn key_expires_and_its_last_use_is_recorded() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let expires_at = Utc::now() + TimeDelta::seconds(2);
    let document = json!({"name": "guest", "scopes": ["admin"], "expires_at": expires_at});
    let (status, created) = installation.create_key(&org, document).await;
    assert_eq!(status, 201, "{created}");
    assert_eq!(created["last_used_at"], Value::Null);
    let (id, key) = (&created["api_key_id"], created["api_key"].as_str().unwrap());
    let list = async |key: &str| {
        let answer = installation.send(Method::GET, "/v1/api-keys", Some(key), None);
        let (status, keys) = answer.await;
        (status.as_u16(), keys)
    };
    assert_eq!(list(key).await.0, 200);
    let (_, keys) = list(&org.key).await;
    let keys = keys["api_keys"].as_array().unwrap();
    let shown = keys.iter().find(|one| one["api_key_id"] == *id).unwrap();
    assert!(shown["last_used_at"].is_string(), "{shown}");
    assert!(shown["expires_at"].is_string(), "{shown}");
    // A valid key is cached for 3 s.
    eventually_some("the key has expired", async || {
        let (status, problem) = list(key).await;
        (status == 401).then(|| assert_eq!(problem["type"], "/problems/unknown_api_key"))
    })
    .await;
}

#[tokio::test]
async fn key_creates_nothing_that_reaches_more() {
    let installation = Installation::start().await;
    installation.trusted().await;
    let org = installation.new_org("Toys").await;
    let document = json!({
        "name": "toys", "device_prefix": "toy-", "device_label": "room:kitchen", "services": ["wave", "led.*"],
    });
    let (status, created) = installation.create_key(&org, document).await;
    assert_eq!((status, &created["device_prefix"]), (201, &json!("toy-")));
    assert_eq!(created["services"], json!(["wave", "led.*"]));
    let restricted = Org {
        key: created["api_key"].as_str().unwrap().to_owned(),
        id: org.id.clone(),
    };
    let check = async |more: Value, expected: Result<(Value, Value), &str>| {
        let mut document = json!({"name": "one"});
        document
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let (status, key) = installation.create_key(&restricted, document).await;
        let found = match status {
            201 => Ok((key["device_prefix"].clone(), key["services"].clone())),
            _ => {
                assert_eq!(
                    (status, &key["type"]),
                    (403, &json!("/problems/outside_key"))
                );
                Err(key["restriction"].as_str().unwrap())
            }
        };
        assert_eq!(found, expected, "{more}");
    };
    let own = (json!("toy-"), json!(["wave", "led.*"]));
    check(json!({}), Ok(own)).await;
    let narrower = json!({"device_prefix": "toy-1", "services": ["led.on"]});
    check(narrower, Ok((json!("toy-1"), json!(["led.on"])))).await;
    check(json!({"device_prefix": "to"}), Err("device_prefix")).await;
    check(json!({"device_label": "room:hall"}), Err("device_label")).await;
    check(json!({"services": ["*"]}), Err("services")).await;
    check(json!({"services": ["wave", "reset"]}), Err("services")).await;
    // Tokens of devices are for devices within reach; those of clients have the restrictions.
    let lamp = installation.ask_for_token(&restricted.key, "device:lamp-1", json!(["device"]));
    let mismatch = (403, "/problems/device_prefix_mismatch".to_owned());
    assert_eq!(lamp.await, mismatch);
    let body = json!({"subject": "client:app", "scopes": ["read", "admin"]});
    let issued = installation.send(
        Method::POST,
        "/v1/tokens",
        Some(&restricted.key),
        Some(body),
    );
    let token = issued.await.1["access_token"].as_str().unwrap().to_owned();
    let seen = installation.send(Method::GET, "/v1/session", Some(&token), None);
    let (status, seen) = seen.await;
    assert_eq!(status, StatusCode::OK, "{seen}");
    assert_eq!(
        seen["restrictions"],
        json!({"device_prefix": "toy-", "device_label": "room:kitchen", "services": ["wave", "led.*"]})
    );
    assert_eq!(seen["actor"]["name"], "client:app");
    let holder = Org {
        key: token,
        id: org.id.clone(),
    };
    let (status, problem) = installation
        .create_key(
            &holder,
            json!({"name": "x", "scopes": ["read"], "services": ["*"]}),
        )
        .await;
    assert_eq!((status, &problem["restriction"]), (403, &json!("services")));
}
