//! A caller that asks twice, a device that acts once.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::{eventually::eventually, plant::Plant};

async fn call_with_key(plant: &Plant, key: &str, body: &Value) -> (StatusCode, bool, Value) {
    let request = plant
        .http
        .post(plant.url("/v1/devices/toy-1/calls"))
        .bearer_auth(&plant.org.key);
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
async fn i2_a_retry_with_the_same_key_is_answered_and_not_executed_again() {
    let plant = Plant::start(1).await;
    let served = plant.echo(0, "toy-1").await.serve();
    let body = json!({"service": "echo", "params": {"text": "once"}});
    let (status, replayed, first) = call_with_key(&plant, "k-1", &body).await;
    assert_eq!((status, replayed), (StatusCode::OK, false), "{first}");
    let (status, replayed, again) = call_with_key(&plant, "k-1", &body).await;
    assert_eq!((status, replayed, &again), (StatusCode::OK, true, &first));
    let other = json!({"service": "echo", "params": {"text": "other"}});
    let (status, _, problem) = call_with_key(&plant, "k-1", &other).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    let (_, _, second) = call_with_key(&plant, "k-2", &other).await;
    assert_eq!(second["result"]["data"]["text"], "other");
    plant.edges[0].terminate();
    assert_eq!(served.join_all().await, [2], "executed once for each key");
}

#[tokio::test(flavor = "multi_thread")]
async fn i2_a_retry_while_the_first_is_under_way_waits_outside_and_an_undelivered_one_may_be_repeated()
 {
    let plant = Plant::start(1).await;
    let body = json!({"service": "echo", "params": {"text": "x"}});
    // Nothing was delivered: the key is free again.
    let (status, _, answer) = call_with_key(&plant, "k", &body).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{answer}");
    let mut toy = plant.echo(0, "toy-1").await;
    let first = call_with_key(&plant, "k", &body);
    let second = async {
        let (id, _, _) = toy.next_call().await;
        let (status, _, problem) = call_with_key(&plant, "k", &body).await;
        assert_eq!(status, StatusCode::CONFLICT, "{problem}");
        toy.answer(&id, &json!({"success": true, "data": 1})).await;
    };
    let ((status, _, _), ()) = tokio::join!(first, second);
    assert_eq!(status, StatusCode::OK);
    let replay = async || call_with_key(&plant, "k", &body).await.1;
    eventually(Duration::from_secs(5), replay, |replayed| *replayed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i2_a_key_outlives_a_redis_that_restarts_empty() {
    let mut plant = Plant::start(1).await;
    let served = plant.echo(0, "toy-1").await.serve();
    let body = json!({"service": "echo", "params": {"text": "once"}});
    let (status, replayed, first) = call_with_key(&plant, "k", &body).await;
    assert_eq!((status, replayed), (StatusCode::OK, false), "{first}");
    plant.redis.kill();
    plant.redis.restart();
    // The device can be called again, so only the record keeps it from acting twice.
    let there = async || plant.get("/v1/devices/toy-1").await.1["online"].clone();
    eventually(Duration::from_secs(10), there, |online| *online == true).await;
    let (status, replayed, again) = call_with_key(&plant, "k", &body).await;
    assert_eq!((status, replayed, &again), (StatusCode::OK, true, &first));
    plant.edges[0].terminate();
    assert_eq!(served.join_all().await, [1], "executed once");
}
