//! Authentication and authorization: valid and invalid tokens and keys at every listener.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_test_support::eventually::eventually;

use crate::{cluster::TestCluster, device::Device};

#[tokio::test(flavor = "multi_thread")]
async fn i11_revoked_token_closes_connection_within_five_seconds() {
    let cluster = TestCluster::start(2).await;
    let token = cluster
        .token(&cluster.org, "device:toy-1", &["device"])
        .await;
    let text = token["access_token"].as_str().unwrap();
    let mut device = Device::connect(&cluster.edges[0].address("device_addr"), text).await;
    let url = format!(
        "{}/v1/tokens/{}",
        cluster.control.address("http_url"),
        token["token_id"].as_str().unwrap()
    );
    let revoked = Instant::now();
    let answer = cluster
        .http
        .delete(&url)
        .bearer_auth(&cluster.org.key)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    let last_words = device.closes().await;
    assert!(
        revoked.elapsed() < Duration::from_secs(5),
        "{:?}",
        revoked.elapsed()
    );
    assert_eq!(
        last_words.last().unwrap().json()["code"],
        "token_revoked",
        "{last_words:?}"
    );
    for edge in &cluster.edges {
        let address = edge.address("device_addr");
        let refused = async || {
            Device::dial(&address).await.authenticate(text).await["data"]["success"].clone()
        };
        let left = Duration::from_secs(5).saturating_sub(revoked.elapsed());
        eventually(left, refused, |success| *success == false).await;
    }
    // An edge that starts later refuses it too.
    let mut cluster = cluster;
    cluster.add_edge().await;
    let answer = Device::dial(&cluster.edges[2].address("device_addr"))
        .await
        .authenticate(text)
        .await;
    assert_eq!(answer["data"]["success"], false, "{answer}");
    assert!(
        answer["data"]["error"].to_string().contains("revoked"),
        "{answer}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn i11_revoked_client_token_is_rejected_within_five_seconds() {
    let cluster = TestCluster::start(0).await;
    let token = cluster
        .token(&cluster.org, "client:app", &["read", "admin"])
        .await;
    let text = token["access_token"].as_str().unwrap();
    let control = cluster.control.address("http_url");
    let doors = [cluster.url("/v1/devices"), format!("{control}/v1/api-keys")];
    let knock = async |door: &String| {
        let request = cluster.http.get(door).bearer_auth(text);
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let body: Value = answer.json().await.unwrap();
        (status, body["type"].clone())
    };
    for door in &doors {
        assert_eq!(knock(door).await.0, StatusCode::OK, "{door}");
    }
    let id = token["token_id"].as_str().unwrap();
    let revocation = cluster.http.delete(format!("{control}/v1/tokens/{id}"));
    let revoked = Instant::now();
    let answer = revocation
        .bearer_auth(&cluster.org.key)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    for door in &doors {
        let left = Duration::from_secs(5).saturating_sub(revoked.elapsed());
        let (_, kind) = eventually(
            left,
            async || knock(door).await,
            |(status, _)| *status == StatusCode::UNAUTHORIZED,
        )
        .await;
        assert_eq!(kind, "/problems/token_revoked", "{door}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i11_token_of_a_deleted_key_is_cut_off_within_five_seconds() {
    let cluster = TestCluster::start(1).await;
    let mut device = cluster.device(0, "toy-1").await;
    let deleted = Instant::now();
    // The runbook of a leaked key.
    for sql in [
        "UPDATE signing_keys SET retired_at = now() WHERE retired_at IS NULL",
        "DELETE FROM signing_keys WHERE retired_at IS NOT NULL",
    ] {
        let scoped = format!("SET switchboard.speaker = 'everyone'; {sql}");
        cluster.database.execute(&scoped).await.unwrap();
    }
    let last = device.closes().await;
    assert!(
        deleted.elapsed() < Duration::from_secs(5),
        "{:?}",
        deleted.elapsed()
    );
    assert_eq!(
        last.last().unwrap().json()["code"],
        "token_unknown_key",
        "{last:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_organisation_is_cut_off_until_it_is_resumed() {
    let cluster = TestCluster::start(1).await;
    let token = cluster.device_token("toy-1").await;
    let mut device = cluster.echo(0, "toy-1").await;
    let other = cluster.another_org("other").await;
    let devices = async |key: &str| {
        let request = cluster.http.get(cluster.url("/v1/devices"));
        request.bearer_auth(key).send().await.unwrap().status()
    };
    cluster.set_suspended(&cluster.org, true).await;
    let suspended = Instant::now();
    let last = device.closes().await;
    assert!(
        suspended.elapsed() < Duration::from_secs(5),
        "{:?}",
        suspended.elapsed()
    );
    assert_eq!(last.last().unwrap().json()["code"], "org_suspended");
    let left = Duration::from_secs(5);
    let own = async || devices(&cluster.org.key).await;
    eventually(left, own, |status| *status == StatusCode::FORBIDDEN).await;
    assert_eq!(devices(&other.key).await, StatusCode::OK);
    cluster.set_suspended(&cluster.org, false).await;
    eventually(left, own, |status| *status == StatusCode::OK).await;
    let address = cluster.edges[0].address("device_addr");
    let admitted =
        async || Device::dial(&address).await.authenticate(&token).await["data"]["success"].clone();
    eventually(left, admitted, |success| *success == true).await;
    let served = cluster.echo(0, "toy-1").await.serve();
    let body = json!({"service": "echo", "params": {"text": "x"}});
    assert_eq!(cluster.call("toy-1", &body).await.0, StatusCode::OK);
    drop(served);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_expired_and_foreign_tokens_have_distinct_errors() {
    let cluster = TestCluster::start(1).await;
    let address = cluster.edges[0].address("device_addr");
    let short = cluster
        .http
        .post(format!("{}/v1/tokens", cluster.control.address("http_url")))
        .bearer_auth(&cluster.org.key)
        .json(&json!({"subject": "device:toy-1", "scopes": ["device"], "ttl_s": 1}))
        .send()
        .await
        .unwrap();
    let short: Value = short.json().await.unwrap();
    let short = short["access_token"].as_str().unwrap().to_owned();
    let client = cluster.token(&cluster.org, "client:app", &["call"]).await["access_token"]
        .as_str()
        .unwrap()
        .to_owned();
    let refusal = async |token: &str| {
        let mut device = Device::dial(&address).await;
        let answer = device.authenticate(token).await;
        assert_eq!(answer["data"]["success"], false, "{answer}");
        assert!(
            device.closes().await.is_empty(),
            "closed after a refused AUTH"
        );
        answer["data"]["error"].to_string()
    };
    assert!(refusal("garbage").await.contains("token"), "a bad token");
    let mut bent = client.clone();
    bent.pop();
    refusal(&bent).await;
    assert!(
        refusal(&client).await.contains("device"),
        "a client's token is no device's"
    );
    let expired = async || {
        Device::dial(&address).await.authenticate(&short).await["data"]["error"].to_string()
    };
    eventually(Duration::from_secs(5), expired, |error| {
        error.contains("expired")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_request_without_scope_is_rejected() {
    let cluster = TestCluster::start(1).await;
    let served = cluster.echo(0, "toy-1").await.serve();
    let read = cluster.token(&cluster.org, "client:app", &["read"]).await["access_token"]
        .as_str()
        .unwrap()
        .to_owned();
    let call = cluster.token(&cluster.org, "client:app", &["call"]).await["access_token"]
        .as_str()
        .unwrap()
        .to_owned();
    let body = json!({"service": "echo", "params": {"text": "x"}});
    let check = async |key: Option<&str>, calls: u16, reads: u16| {
        let mut post = cluster
            .http
            .post(cluster.url("/v1/devices/toy-1/calls"))
            .json(&body);
        let mut get = cluster.http.get(cluster.url("/v1/devices"));
        if let Some(key) = key {
            post = post.bearer_auth(key);
            get = get.bearer_auth(key);
        }
        assert_eq!(
            post.send().await.unwrap().status().as_u16(),
            calls,
            "{key:?}"
        );
        assert_eq!(
            get.send().await.unwrap().status().as_u16(),
            reads,
            "{key:?}"
        );
    };
    check(None, 401, 401).await;
    check(Some("sb_not-a-key"), 401, 401).await;
    check(Some(&read), 403, 200).await;
    check(Some(&call), 200, 403).await;
    check(Some(&cluster.org.key), 200, 200).await;
    drop(served);
}
