//! Authentication of callers, with and without the database.

use std::{num::NonZeroU32, time::Duration};

use http::{Extensions, HeaderMap, Method, StatusCode, header};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use switchboard_bus::{NodeCheck, NodeStatus};
use switchboard_control::{Config, bootstrap};
use switchboard_identity::{ApiKeySecret, Credential};
use switchboard_protocol::{id::ApiKeyId, token::Scope};
use switchboard_store::NewApiKey;
use tokio::time::Instant;
use uuid::Uuid;

use crate::installation::{Installation, OPERATOR_KEY, body, config};

fn bearer(credential: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(
        header::AUTHORIZATION,
        format!("Bearer {credential}").parse().unwrap(),
    );
    headers
}

#[tokio::test]
async fn invalid_credential_has_a_specific_problem() {
    let installation = Installation::start().await;
    installation.trusted().await;
    let unknown = format!("sb_{}", "x".repeat(43));
    let check = async |credential: Option<&str>, slug: &str| {
        let response = installation
            .request(Method::GET, "/v1/api-keys", credential, None)
            .await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        let challenge = response.headers()[header::WWW_AUTHENTICATE]
            .to_str()
            .unwrap();
        assert!(challenge.starts_with("Bearer"), "{challenge}");
        let problem = body(response).await;
        assert_eq!(problem["type"], format!("/problems/{slug}"), "{problem}");
    };
    check(None, "missing_credentials").await;
    check(Some("nonsense"), "token_malformed").await;
    check(Some("a.b.c"), "token_malformed").await;
    check(Some(&unknown), "unknown_api_key").await;
}

#[tokio::test]
async fn keys_of_an_org_share_its_rate() {
    let config = Config {
        control_org_rate_per_s: NonZeroU32::MIN,
        control_org_burst: NonZeroU32::new(4).unwrap(),
        operator_key: Some(SecretString::from(OPERATOR_KEY)),
        ..config()
    };
    let installation = Installation::with_config(config).await;
    let (org, other) = (
        installation.new_org("Toys").await,
        installation.new_org("Robots").await,
    );
    let order = json!({"name": "second", "scopes": ["read"]});
    let (status, second) = installation
        .send(Method::POST, "/v1/api-keys", Some(&org.key), Some(order))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{second}");
    let keys = [org.key.as_str(), second["api_key"].as_str().unwrap()];
    let mut limited = None;
    for key in keys.into_iter().cycle().take(8) {
        let response = installation
            .request(Method::GET, "/v1/templates", Some(key), None)
            .await;
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            limited = Some(response);
        }
    }
    let limited = limited.unwrap();
    assert!(limited.headers().contains_key(header::RETRY_AFTER));
    assert_eq!(body(limited).await["type"], "/problems/rate_limited");
    assert!(installation.metric("switchboard_control_rate_limited_total") >= 1.0);
    let (status, page) = installation
        .send(Method::GET, "/v1/templates", Some(&other.key), None)
        .await;
    assert_eq!(status, StatusCode::OK, "{page}");
}

#[tokio::test]
async fn cached_key_is_accepted_without_the_database() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let headers = bearer(&org.key);
    installation
        .authenticator
        .authenticate(&headers, &Extensions::new())
        .await
        .unwrap();
    installation.database.set_unavailable(true).await.unwrap();

    let unknown = format!("sb_{}", "x".repeat(43));
    let response = installation
        .request(Method::GET, "/v1/api-keys", Some(&unknown), None)
        .await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()[header::RETRY_AFTER], "1");

    // After the cache TTL, the key is looked up again, and the lookup fails.
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        let caller = installation
            .authenticator
            .authenticate(&headers, &Extensions::new())
            .await
            .unwrap();
        assert_eq!(caller.org.to_string(), org.id);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (status, problem) = installation
        .send(Method::GET, "/v1/api-keys", Some(&org.key), None)
        .await;
    assert_eq!(
        (status, &problem["type"]),
        (
            StatusCode::SERVICE_UNAVAILABLE,
            &json!("/problems/store_unavailable")
        )
    );

    installation.database.set_unavailable(false).await.unwrap();
    let (status, _) = installation
        .send(Method::GET, "/v1/api-keys", Some(&org.key), None)
        .await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn invented_key_is_rejected_without_a_query() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    installation.database.set_unavailable(true).await.unwrap();
    let status = async |key: &str| {
        let response = installation.request(Method::GET, "/v1/api-keys", Some(key), None);
        let response = response.await;
        let status = response.status();
        (status, body(response).await["type"].clone())
    };
    let unknown = (StatusCode::UNAUTHORIZED, json!("/problems/unknown_api_key"));
    assert_eq!(status(&format!("sb_{}1", "x".repeat(42))).await, unknown);
    let mut mistyped = org.key.clone();
    let other = if mistyped.as_bytes()[20] == b'A' {
        "B"
    } else {
        "A"
    };
    mistyped.replace_range(20..=20, other);
    assert_eq!(status(&mistyped).await, unknown);
    // Any other key needs a query.
    let (possible, _) = status(ApiKeySecret::generate().expose_secret()).await;
    assert_eq!(possible, StatusCode::SERVICE_UNAVAILABLE);
    installation.database.set_unavailable(false).await.unwrap();
}

#[tokio::test]
async fn key_of_an_earlier_release_is_accepted() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    // 256 bits as base64url, without a checksum.
    let key = "sb_0123456789abcdefghijklmnopqrstuvwxyzABCDEFE";
    let secret = ApiKeySecret::parse(key).unwrap();
    let new = NewApiKey {
        id: ApiKeyId::from_uuid(Uuid::now_v7()),
        name: "earlier".to_owned(),
        prefix: secret.display_prefix().to_owned(),
        secret_hash: secret.hash(),
        scopes: Scope::ALL.into_iter().collect(),
    };
    let created = installation.store.create_api_key(org.id(), &new).await;
    created.unwrap();
    let (status, keys) = installation
        .send(Method::GET, "/v1/api-keys", Some(key), None)
        .await;
    assert_eq!(status, StatusCode::OK, "{keys}");
    let bootstrapped = bootstrap(&installation.store, &key.into()).await;
    assert_eq!(bootstrapped.unwrap(), org.id());
}

#[tokio::test]
async fn bootstrap_creates_one_organisation() {
    let installation = Installation::start().await;
    let secret = ApiKeySecret::generate();
    let key = SecretString::from(secret.expose_secret());
    let (one, two) = tokio::join!(
        bootstrap(&installation.store, &key),
        bootstrap(&installation.store, &key),
    );
    let org = one.unwrap();
    assert_eq!(two.unwrap(), org);
    assert_eq!(bootstrap(&installation.store, &key).await.unwrap(), org);
    let headers = bearer(key.expose_secret());
    assert_eq!(
        installation
            .authenticator
            .authenticate(&headers, &Extensions::new())
            .await
            .unwrap()
            .org,
        org
    );
    for malformed in ["too short".to_owned(), format!("sb_{}1", "x".repeat(42))] {
        let refused = bootstrap(&installation.store, &malformed.into()).await;
        assert!(refused.unwrap_err().to_string().contains("sb_"));
    }
}

#[tokio::test]
async fn access_token_has_its_subject() {
    let installation = Installation::start().await;
    installation.trusted().await;
    let org = installation.new_org("Toys").await;
    let body = json!({"subject": "client:app", "scopes": ["read"]});
    let (_, token) = installation
        .send(Method::POST, "/v1/tokens", Some(&org.key), Some(body))
        .await;
    let headers = bearer(token["access_token"].as_str().unwrap());
    let caller = installation
        .authenticator
        .authenticate(&headers, &Extensions::new())
        .await
        .unwrap();
    let Credential::AccessToken { subject, .. } = &caller.credential else {
        panic!("{caller:?}")
    };
    assert_eq!(*subject, "client:app".parse().unwrap());
    assert_eq!(
        caller.require(Scope::Call).unwrap_err().status(),
        StatusCode::FORBIDDEN
    );
}

#[tokio::test]
async fn tokens_are_listed_newest_first() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let issue = async |subject: &str, scopes: Value| {
        let request = json!({"subject": subject, "scopes": scopes});
        let issued = installation.send(Method::POST, "/v1/tokens", Some(&org.key), Some(request));
        let (status, issued) = issued.await;
        assert_eq!(status, StatusCode::CREATED, "{issued}");
        issued["token_id"].clone()
    };
    let first = issue("device:toy-1", json!(["device"])).await;
    let second = issue("client:app", json!(["read"])).await;
    let third = issue("device:toy-1", json!(["device"])).await;
    let list = async |query: &str| {
        let path = format!("/v1/tokens{query}");
        installation
            .send(Method::GET, &path, Some(&org.key), None)
            .await
            .1
    };
    let ids = |page: &Value| {
        let tokens = page["tokens"].as_array().unwrap().iter();
        tokens
            .map(|token| token["token_id"].clone())
            .collect::<Vec<_>>()
    };
    let page = list("?limit=2").await;
    assert_eq!(ids(&page), [third.clone(), second]);
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = list(&format!("?limit=2&cursor={cursor}")).await;
    assert_eq!(
        (ids(&rest), &rest["next_cursor"]),
        (vec![first.clone()], &Value::Null)
    );
    let path = format!("/v1/tokens/{}", first.as_str().unwrap());
    installation
        .send(Method::DELETE, &path, Some(&org.key), None)
        .await;
    let of_device = list("?subject=device:toy-1").await;
    assert_eq!(ids(&of_device), [third, first]);
    let tokens = &of_device["tokens"];
    assert_eq!(tokens[0]["scopes"], json!(["device"]));
    assert_eq!(tokens[0]["revoked_at"], Value::Null);
    assert!(tokens[1]["revoked_at"].is_string(), "{tokens}");
    let other = installation.new_org("Games").await;
    let theirs = installation
        .send(Method::GET, "/v1/tokens", Some(&other.key), None)
        .await;
    assert_eq!(theirs.1["tokens"], json!([]));
}

#[tokio::test]
async fn nodes_are_listed_for_the_operator() {
    let installation = Installation::start().await;
    let status = NodeStatus {
        role: Some("edge".to_owned()),
        version: Some("0.2.0".to_owned()),
        started_at_ms: Some(1_767_323_045_000),
        draining: Some(false),
        ready: Some(false),
        checks: vec![NodeCheck {
            name: "trust".to_owned(),
            ok: false,
            detail: Some("no keys".to_owned()),
        }],
        ..NodeStatus::default()
    };
    let list = async || {
        let nodes = installation.send(Method::GET, "/v1/nodes", Some(OPERATOR_KEY), None);
        let (status, nodes) = nodes.await;
        assert_eq!(status, StatusCode::OK, "{nodes}");
        nodes["nodes"].clone()
    };
    let silent = list().await;
    assert_eq!(
        (&silent[0]["role"], &silent[0]["ready"]),
        (&Value::Null, &Value::Null)
    );
    installation.bus.publish_status(status).await.unwrap();
    let nodes = list().await;
    assert_eq!(nodes[0]["id"], silent[0]["id"]);
    assert_eq!(nodes[0]["started_at"], "2026-01-02T03:04:05Z");
    assert_eq!(
        (&nodes[0]["role"], &nodes[0]["ready"], &nodes[0]["devices"]),
        (&json!("edge"), &json!(false), &Value::Null)
    );
    let check = json!({"name": "trust", "ok": false, "detail": "no keys"});
    assert_eq!(nodes[0]["checks"], json!([check]));
    let org = installation.new_org("Toys").await;
    let refused = installation
        .send(Method::GET, "/v1/nodes", Some(&org.key), None)
        .await;
    assert_eq!(refused.0, StatusCode::FORBIDDEN);
}
