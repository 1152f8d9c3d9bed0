//! A session of the console at the address of a gateway, for what every service serves.

use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder, StatusCode, header};
use serde_json::{Value, json};
use switchboard_test_support::eventually::eventually;

use super::Deployment;

/// A revoked key ends its sessions within this time.
const REVOCATION_TIMEOUT: Duration = Duration::from_secs(5);

impl Deployment {
    /// A request of a page of the console, without a key.
    fn page(&self, method: Method, path: &str, cookie: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.gateway.address("http_url"));
        let request = self.system.http.request(method, url);
        request
            .header("sec-fetch-site", "same-origin")
            .header("x-switchboard-console", "1")
            .header(header::COOKIE, cookie)
    }

    /// Begins a session; returns its cookie and the document.
    async fn sign_in(&self, key: &str) -> (String, Value) {
        let request = self.page(Method::POST, "/v1/session", "");
        let begun = request.json(&json!({"api_key": key})).send().await.unwrap();
        assert_eq!(begun.status(), StatusCode::OK);
        let cookie = begun.headers()[header::SET_COOKIE].to_str().unwrap();
        assert!(
            cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
            "{cookie}"
        );
        let cookie = cookie.split(';').next().unwrap().to_owned();
        (cookie, begun.json().await.unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_is_accepted_by_every_service_until_its_key_is_revoked() {
    let deployment = Deployment::start().await;
    let system = &deployment.system;
    let npc = system.npc(&json!({"name": "Bello"}), &[]).await;
    let made = json!({"name": "console", "scopes": ["call", "read", "admin"]});
    let (_, made) = system.ask(Method::POST, "/v1/api-keys", &made).await;
    let (cookie, session) = deployment.sign_in(made["api_key"].as_str().unwrap()).await;
    assert_eq!(session["actor"]["id"], made["api_key_id"]);
    // Of the gateway, of control and of chat.
    let status = async |request: RequestBuilder| request.send().await.unwrap().status();
    for path in ["/v1/devices", "/v1/org", "/v1/session"] {
        let request = deployment.page(Method::GET, path, &cookie);
        assert_eq!(status(request).await, StatusCode::OK, "{path}");
    }
    let chat = format!("/v1/npcs/{npc}/chat");
    let message = json!({"text": "hello"});
    // The answer is a stream, which this test does not read.
    let talk = deployment.page(Method::POST, &chat, &cookie).json(&message);
    assert_eq!(status(talk).await, StatusCode::OK);
    // Not of MCP, and not for pages of other sites.
    let mcp = deployment
        .page(Method::POST, "/mcp", &cookie)
        .json(&json!({}));
    assert_eq!(status(mcp).await, StatusCode::UNAUTHORIZED);
    for (method, path) in [
        (Method::GET, "/v1/devices"),
        (Method::GET, "/v1/org"),
        (Method::POST, chat.as_str()),
    ] {
        let url = format!("{}{path}", deployment.gateway.address("http_url"));
        let request = system
            .http
            .request(method, url)
            .header(header::COOKIE, &cookie);
        let foreign = request
            .header("sec-fetch-site", "cross-site")
            .json(&message);
        assert_eq!(status(foreign).await, StatusCode::FORBIDDEN, "{path}");
    }
    let path = format!("/v1/api-keys/{}", made["api_key_id"].as_str().unwrap());
    let (revoked, _) = system.ask(Method::DELETE, &path, &Value::Null).await;
    assert_eq!(revoked, StatusCode::NO_CONTENT);
    let revoked = Instant::now();
    for (method, path) in [
        (Method::GET, "/v1/devices"),
        (Method::GET, "/v1/org"),
        (Method::POST, chat.as_str()),
    ] {
        let request = || {
            deployment
                .page(method.clone(), path, &cookie)
                .json(&message)
        };
        let left = REVOCATION_TIMEOUT.saturating_sub(revoked.elapsed());
        let ended = async || status(request()).await;
        eventually(left, ended, |status| *status == StatusCode::UNAUTHORIZED).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_over_plain_http_from_another_machine_is_refused() {
    let deployment = Deployment::start().await;
    let key = json!({"api_key": deployment.system.key});
    let refused = deployment
        .page(Method::POST, "/v1/session", "")
        .header("x-forwarded-for", "192.0.2.1")
        .json(&key);
    let refused = refused.send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    let problem: Value = refused.json().await.unwrap();
    assert_eq!(problem["type"], "/problems/insecure_session");
    // Behind a proxy that ends HTTPS, with the cookie that browsers keep for HTTPS only.
    let request = deployment
        .page(Method::POST, "/v1/session", "")
        .header("x-forwarded-for", "192.0.2.1")
        .header("x-forwarded-proto", "https")
        .json(&key);
    let begun = request.send().await.unwrap();
    assert_eq!(begun.status(), StatusCode::OK);
    let cookie = begun.headers()[header::SET_COOKIE].to_str().unwrap();
    assert!(cookie.starts_with("__Host-switchboard="), "{cookie}");
    assert!(cookie.ends_with("; Secure"), "{cookie}");
}
