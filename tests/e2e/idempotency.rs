//! A caller repeats a request; the device executes it once.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_test_support::eventually::eventually;

use crate::cluster::TestCluster;

async fn call_with_key(
    cluster: &TestCluster,
    key: &str,
    body: &Value,
) -> (StatusCode, bool, Value) {
    let request = cluster
        .http
        .post(cluster.url("/v1/devices/toy-1/calls"))
        .bearer_auth(&cluster.org.key);
    let answer = request
        .header("Idempotency-Key", key)
        .json(body)
        .send()
        .await
        .unwrap();
    let replayed = answer.headers().contains_key("idempotency-replayed");
    (answer.status(), replayed, answer.json().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn i2_retry_with_same_key_is_not_executed_again() {
    let cluster = TestCluster::start(1).await;
    let served = cluster.echo(0, "toy-1").await.serve();
    let body = json!({"service": "echo", "params": {"text": "once"}});
    let (status, replayed, first) = call_with_key(&cluster, "k-1", &body).await;
    assert_eq!((status, replayed), (StatusCode::OK, false), "{first}");
    let (status, replayed, again) = call_with_key(&cluster, "k-1", &body).await;
    assert_eq!((status, replayed, &again), (StatusCode::OK, true, &first));
    let other = json!({"service": "echo", "params": {"text": "other"}});
    let (status, _, problem) = call_with_key(&cluster, "k-1", &other).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    let (_, _, second) = call_with_key(&cluster, "k-2", &other).await;
    assert_eq!(second["result"]["data"]["text"], "other");
    cluster.edges[0].terminate();
    assert_eq!(served.join_all().await, [2], "executed once for each key");
}

#[tokio::test(flavor = "multi_thread")]
async fn i2_retry_during_call_conflicts_and_after_no_delivery_runs() {
    let cluster = TestCluster::start(1).await;
    let body = json!({"service": "echo", "params": {"text": "x"}});
    // Nothing was delivered, so the key is free again.
    let (status, _, answer) = call_with_key(&cluster, "k", &body).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{answer}");
    let mut device = cluster.echo(0, "toy-1").await;
    let first = call_with_key(&cluster, "k", &body);
    let second = async {
        let (id, _, _) = device.next_call().await;
        let (status, _, problem) = call_with_key(&cluster, "k", &body).await;
        assert_eq!(status, StatusCode::CONFLICT, "{problem}");
        device
            .answer(&id, &json!({"success": true, "data": 1}))
            .await;
    };
    let ((status, _, _), ()) = tokio::join!(first, second);
    assert_eq!(status, StatusCode::OK);
    let replay = async || call_with_key(&cluster, "k", &body).await.1;
    eventually(Duration::from_secs(5), replay, |replayed| *replayed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i2_a_key_outlives_a_redis_that_restarts_empty() {
    let mut cluster = TestCluster::start(1).await;
    let served = cluster.echo(0, "toy-1").await.serve();
    let body = json!({"service": "echo", "params": {"text": "once"}});
    let (status, replayed, first) = call_with_key(&cluster, "k", &body).await;
    assert_eq!((status, replayed), (StatusCode::OK, false), "{first}");
    cluster.redis.kill();
    cluster.redis.restart();
    // The device is callable again, so only the stored record prevents a second execution.
    let there = async || cluster.get("/v1/devices/toy-1").await.1["online"].clone();
    eventually(Duration::from_secs(10), there, |online| *online == true).await;
    let (status, replayed, again) = call_with_key(&cluster, "k", &body).await;
    assert_eq!((status, replayed, &again), (StatusCode::OK, true, &first));
    cluster.edges[0].terminate();
    assert_eq!(served.join_all().await, [1], "executed once");
}
