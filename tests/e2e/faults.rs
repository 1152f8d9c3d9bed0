//! What happens while a part is dead, and how soon it is over.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_protocol::frame::Kind;

use crate::plant::{Plant, eventually};

fn echo(text: &str, timeout_ms: u64) -> Value {
    json!({"service": "echo", "params": {"text": text}, "timeout_ms": timeout_ms})
}

#[tokio::test(flavor = "multi_thread")]
async fn i9_a_killed_edge_loses_its_calls_within_three_seconds_and_its_devices_within_ten() {
    let mut plant = Plant::start(2).await;
    let mut toy = plant.echo(0, "toy-1").await;
    let mut waiting = tokio::task::JoinSet::new();
    let request = plant
        .http
        .post(plant.url("/v1/devices/toy-1/calls"))
        .bearer_auth(&plant.org.key);
    let request = request.json(&echo("x", 60_000));
    waiting.spawn(async move {
        let answer = request.send().await.unwrap();
        (answer.status(), answer.json::<Value>().await.unwrap())
    });
    toy.next_call().await;
    let killed = Instant::now();
    plant.edges[0].kill();
    let (status, answer) = waiting.join_next().await.unwrap().unwrap();
    assert!(
        killed.elapsed() < Duration::from_secs(3),
        "{:?}",
        killed.elapsed()
    );
    assert_eq!(status, StatusCode::BAD_GATEWAY, "{answer}");
    assert_eq!(
        (&answer["outcome"], &answer["delivered"]),
        (&json!("lost"), &json!("unknown"))
    );
    let online = async || plant.get("/v1/devices/toy-1").await.1["online"].clone();
    let left = Duration::from_secs(10).saturating_sub(killed.elapsed());
    eventually(left, online, |online| *online == false).await;
    // It comes back on the other edge.
    let served = plant.echo(1, "toy-1").await.serve();
    plant.answers("toy-1", Duration::from_secs(5)).await;
    drop(served);
}

#[tokio::test(flavor = "multi_thread")]
async fn i9_redis_away_for_thirty_seconds_costs_five_more_and_no_restart_of_ours() {
    let mut plant = Plant::start(2).await;
    let served = plant.echo(1, "toy-1").await.serve();
    plant.answers("toy-1", Duration::from_secs(5)).await;
    plant.redis.kill();
    let back = Instant::now() + Duration::from_secs(30);
    let refused = async || plant.call("toy-1", &echo("x", 1000)).await;
    let (_, answer) = eventually(Duration::from_secs(10), refused, |(status, _)| {
        *status == StatusCode::SERVICE_UNAVAILABLE
    })
    .await;
    assert_eq!(answer["delivered"], "no", "{answer}");
    assert!(answer["detail"].as_str().is_some(), "{answer}");
    // Refusals stay quick for as long as it takes, and deaf nodes say so.
    while Instant::now() < back {
        let begun = Instant::now();
        plant.call("toy-1", &echo("x", 1000)).await;
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "{:?}",
            begun.elapsed()
        );
        tokio::time::interval_at(
            tokio::time::Instant::now() + Duration::from_millis(500),
            Duration::from_secs(1),
        )
        .tick()
        .await;
    }
    for admin in [
        plant.gateway.address("admin_url"),
        plant.edges[1].address("admin_url"),
    ] {
        let ready = plant
            .http
            .get(format!("{admin}/readyz"))
            .send()
            .await
            .unwrap();
        assert_eq!(ready.status(), StatusCode::SERVICE_UNAVAILABLE);
        let ready: Value = ready.json().await.unwrap();
        assert_eq!(ready["dependencies"]["redis"]["ready"], false, "{ready}");
    }
    plant.redis.restart();
    plant.answers("toy-1", Duration::from_secs(5)).await;
    let presence = async || plant.get("/v1/devices/toy-1").await.1;
    let seen =
        |device: &Value| device["online"] == true && device["services"].get("echo").is_some();
    eventually(Duration::from_secs(5), presence, seen).await;
    drop(served);
}

#[tokio::test(flavor = "multi_thread")]
async fn i3_redis_killed_under_load_leaves_every_call_with_one_true_outcome() {
    let mut plant = Plant::start(1).await;
    let served = plant.echo(0, "toy-1").await.serve();
    plant.answers("toy-1", Duration::from_secs(5)).await;
    let mut calls = tokio::task::JoinSet::new();
    for caller in 0..8 {
        let (http, url, key) = (
            plant.http.clone(),
            plant.url("/v1/devices/toy-1/calls"),
            plant.org.key.clone(),
        );
        calls.spawn(async move {
            let mut outcomes = Vec::new();
            for n in 0..200 {
                let begun = Instant::now();
                let sent = http
                    .post(&url)
                    .bearer_auth(&key)
                    .json(&echo(&format!("{caller}/{n}"), 2000))
                    .send();
                let answer: Value = sent.await.unwrap().json().await.unwrap();
                assert!(
                    begun.elapsed() < Duration::from_secs(3),
                    "deadline + 1 s: {answer}"
                );
                if answer["outcome"] == "succeeded" {
                    assert_eq!(answer["result"]["data"]["text"], format!("{caller}/{n}"));
                }
                outcomes.push((answer["outcome"].clone(), answer["delivered"].clone()));
            }
            outcomes
        });
    }
    let answered = async || plant.get("/v1/devices/toy-1").await.0;
    eventually(Duration::from_secs(5), answered, |status| {
        *status == StatusCode::OK
    })
    .await;
    plant.redis.kill();
    plant.redis.restart();
    let mut succeeded = 0;
    for (outcome, delivered) in calls.join_all().await.into_iter().flatten() {
        match (outcome.as_str(), delivered.as_str()) {
            (Some("succeeded"), Some("yes")) => succeeded += 1,
            (Some("lost"), Some("unknown")) | (Some("offline") | None, Some("no")) => {}
            other => panic!("not an end that this fault can have: {other:?}"),
        }
    }
    assert!(succeeded > 0);
    plant.answers("toy-1", Duration::from_secs(5)).await;
    drop(served);
}

#[tokio::test(flavor = "multi_thread")]
async fn i9_devices_connect_and_are_called_while_postgres_is_away_and_it_heals_by_itself() {
    let plant = Plant::start(2).await;
    let token = plant.device_token("toy-1").await;
    assert_eq!(
        plant.get("/v1/devices").await.0,
        StatusCode::OK,
        "the key is known to the gateway"
    );
    plant.database.set_away(true).await.unwrap();
    let mut toy =
        crate::device::Device::connect(&plant.edges[0].address("device_addr"), &token).await;
    toy.register(&crate::plant::echo_services()).await;
    let served = toy.serve();
    plant.answers("toy-1", Duration::from_secs(5)).await;
    let (status, device) = plant.get("/v1/devices/toy-1").await;
    assert_eq!(
        (status, &device["online"]),
        (StatusCode::OK, &json!(true)),
        "{device}"
    );
    let body = json!({"subject": "device:toy-2", "scopes": ["device"], "ttl_s": 60});
    let url = format!("{}/v1/tokens", plant.control.address("http_url"));
    let refused = plant
        .http
        .post(url)
        .bearer_auth(&plant.org.key)
        .json(&body)
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    plant.database.set_away(false).await.unwrap();
    // What happened meanwhile gets into the record.
    drop(served);
    let remembered = async || plant.get("/v1/devices/toy-1").await.1;
    let complete =
        |device: &Value| device["online"] == false && device["services"].get("echo").is_some();
    eventually(Duration::from_secs(5), remembered, complete).await;
    plant.device_token("toy-2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn takeover_the_newest_connection_wins_on_whatever_node() {
    let plant = Plant::start(2).await;
    let mut old = plant.echo(0, "toy-1").await;
    let request = plant
        .http
        .post(plant.url("/v1/devices/toy-1/calls"))
        .bearer_auth(&plant.org.key);
    let request = request.json(&echo("x", 20_000));
    let mut waiting = tokio::task::JoinSet::new();
    waiting.spawn(async move { request.send().await.unwrap().json::<Value>().await.unwrap() });
    old.next_call().await;
    let new = plant.echo(1, "toy-1").await.serve();
    let last_words = old.closes().await;
    let goaway = last_words
        .iter()
        .find(|frame| frame.kind == Kind::Goaway)
        .expect("a GOAWAY");
    assert_eq!(goaway.json()["reason"], "takeover");
    let answer = waiting.join_next().await.unwrap().unwrap();
    assert_eq!(
        (&answer["outcome"], &answer["delivered"]),
        (&json!("lost"), &json!("unknown"))
    );
    plant.answers("toy-1", Duration::from_secs(5)).await;
    let (_, device) = plant.get("/v1/devices/toy-1").await;
    assert_eq!(device["online"], true);
    drop(new);
}
