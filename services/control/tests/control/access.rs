//! Authentication of callers, with and without the database.

use std::time::Duration;

use http::{HeaderMap, Method, StatusCode, header};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use switchboard_control::bootstrap;
use switchboard_identity::{ApiKeySecret, Credential};
use switchboard_protocol::token::Scope;
use tokio::time::Instant;

use crate::installation::{Installation, body};

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
async fn cached_key_is_accepted_without_the_database() {
    let installation = Installation::start().await;
    let org = installation.new_org("Toys").await;
    let headers = bearer(&org.key);
    installation
        .authenticator
        .authenticate(&headers)
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
            .authenticate(&headers)
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
            .authenticate(&headers)
            .await
            .unwrap()
            .org,
        org
    );
    let malformed = bootstrap(&installation.store, &"too short".into()).await;
    assert!(malformed.unwrap_err().to_string().contains("sb_"));
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
        .authenticate(&headers)
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
