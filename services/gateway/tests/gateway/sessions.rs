//! Sessions of the console at a gateway: on the REST routes only.

use reqwest::{Method, RequestBuilder};
use switchboard_identity::{Authenticator, Holder, KeyHash, Transport};
use switchboard_test_support::eventually::eventually_some;

use crate::{
    mcp_client::{exchange, get, modern},
    test_gateway::{TestGateway, send},
};

/// The cookie of a session of the gateway's key, as another node has begun it.
async fn cookie(gateway: &TestGateway) -> String {
    let node = Authenticator::new(gateway.store.clone(), gateway.bus.clone(), &gateway.budgets);
    let holder = Holder::ApiKey(KeyHash::of(&gateway.key));
    let started = node.sessions().start(holder, Transport::Loopback).await;
    let cookie = started.unwrap().cookie;
    let cookie = cookie.to_str().unwrap().split(';').next().unwrap();
    cookie.to_owned()
}

fn without_key(request: RequestBuilder, cookie: &str) -> RequestBuilder {
    let (client, request) = request.build_split();
    let mut request = request.unwrap();
    let headers = request.headers_mut();
    headers.remove("authorization");
    headers.insert("cookie", cookie.parse().unwrap());
    headers.insert("x-switchboard-console", "1".parse().unwrap());
    headers.insert("sec-fetch-site", "same-origin".parse().unwrap());
    RequestBuilder::from_parts(client, request)
}

#[tokio::test]
async fn session_is_accepted_by_rest_and_not_by_mcp() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let cookie = cookie(&gateway).await;
    let listed = send(without_key(
        gateway.request(Method::GET, "/v1/devices"),
        &cookie,
    ))
    .await;
    assert_eq!(listed.status, 200, "{listed:?}");
    let call = gateway.call_request("toy-1", r#"{"service":"echo"}"#);
    assert_eq!(send(without_key(call, &cookie)).await.status, 200);
    for path in ["/mcp", "/mcp/devices/toy-1"] {
        let list = modern(&gateway, path, "tools/list", serde_json::json!({}));
        let listen = get(&gateway, path);
        for request in [list, listen] {
            let refused = exchange(without_key(request, &cookie)).await;
            assert_eq!(refused.status, 401, "{refused:?}");
            assert_eq!(refused.last()["type"], "/problems/missing_credentials");
        }
    }
}

#[tokio::test]
async fn cookie_of_plain_http_counts_on_this_machine_only() {
    let gateway = TestGateway::start().await;
    let cookie = cookie(&gateway).await;
    let request = || without_key(gateway.request(Method::GET, "/v1/devices"), &cookie);
    assert_eq!(send(request()).await.status, 200);
    let elsewhere = request().header("x-forwarded-for", "192.0.2.1");
    let refused = send(elsewhere).await;
    assert_eq!(
        (refused.status, &refused.json["type"]),
        (401, &"/problems/missing_credentials".into())
    );
    let refused = send(request().header("host", "toys.example")).await;
    assert_eq!(refused.status, 401, "{refused:?}");
}

#[tokio::test]
async fn session_ends_when_its_key_is_revoked() {
    let gateway = TestGateway::start().await;
    let cookie = cookie(&gateway).await;
    let list = async || {
        send(without_key(
            gateway.request(Method::GET, "/v1/devices"),
            &cookie,
        ))
        .await
    };
    assert_eq!(list().await.status, 200);
    gateway.revoke_key(&gateway.key).await;
    eventually_some("the session has ended", async || {
        let response = list().await;
        (response.status == 401).then_some(())
    })
    .await;
}
