//! What happens while a part is dead, and how soon it is over.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_protocol::frame::Kind;

use crate::{eventually::eventually, plant::Plant};

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
    let toy = plant.echo(0, "toy-1").await;
    let executed = Arc::clone(&toy.executed);
    let served = toy.serve();
    plant.answers("toy-1", Duration::from_secs(5)).await;
    let mut calls = tokio::task::JoinSet::new();
    for caller in 0..8 {
        let (http, url, key) = (
            plant.http.clone(),
            plant.url("/v1/devices/toy-1/calls"),
            plant.org.key.clone(),
        );
        calls.spawn(async move {
            let mut ends = Vec::new();
            for n in 0..200 {
                let (begun, text) = (Instant::now(), format!("{caller}/{n}"));
                let sent = http
                    .post(&url)
                    .bearer_auth(&key)
                    .json(&echo(&text, 2000))
                    .send();
                let answer: Value = sent.await.unwrap().json().await.unwrap();
                assert!(
                    begun.elapsed() < Duration::from_secs(3),
                    "deadline + 1 s: {answer}"
                );
                if answer["outcome"] == "succeeded" {
                    assert_eq!(answer["result"]["data"]["text"], text);
                }
                ends.push((text, answer["outcome"].clone(), answer["delivered"].clone()));
            }
            ends
        });
    }
    let under_load = async || executed.lock().unwrap().len();
    eventually(Duration::from_secs(10), under_load, |count| *count > 100).await;
    plant.redis.kill();
    plant.redis.restart();
    let ends: Vec<_> = calls.join_all().await.into_iter().flatten().collect();
    plant.answers("toy-1", Duration::from_secs(5)).await;
    let executed = executed.lock().unwrap().clone();
    let mut succeeded = 0;
    for (text, outcome, delivered) in ends {
        let times = executed
            .iter()
            .filter(|params| params["text"] == text)
            .count();
        let end = (outcome.as_str(), delivered.as_str());
        match end {
            (Some("succeeded"), Some("yes")) => {
                succeeded += 1;
                assert_eq!(times, 1, "{text} succeeded");
            }
            (Some("lost" | "timed_out"), Some("unknown")) => assert!(times <= 1, "{text} {end:?}"),
            (Some("offline") | None, Some("no")) => assert_eq!(times, 0, "{text} {end:?}"),
            other => panic!("not an end that this fault can have: {other:?}"),
        }
    }
    assert!(succeeded > 0);
    drop(served);
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_a_stalled_redis_delays_no_end_beyond_a_second_after_the_deadline() {
    let plant = Plant::start(2).await;
    let known = plant.echo(0, "known").await.serve();
    let fresh = plant.echo(1, "fresh").await.serve();
    let body = echo("x", 500);
    assert_eq!(plant.call("known", &body).await.0, StatusCode::OK);
    plant.redis.pause();
    // One whose place the gateway remembers, one that it has to ask for.
    for device in ["known", "fresh", "known"] {
        let begun = Instant::now();
        let (status, answer) = plant.call(device, &body).await;
        assert!(
            begun.elapsed() < Duration::from_millis(1500),
            "{:?}: {answer}",
            begun.elapsed()
        );
        assert!(
            status.is_client_error() || status.is_server_error(),
            "{answer}"
        );
        assert!(
            answer["delivered"] == "no" || answer["delivered"] == "unknown",
            "{answer}"
        );
    }
    plant.redis.resume();
    for device in ["known", "fresh"] {
        plant.answers(device, Duration::from_secs(5)).await;
    }
    drop((known, fresh));
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
async fn i2_i5_the_newest_connection_wins_and_neither_sees_the_others_calls() {
    let plant = Plant::start(2).await;
    let mut old = plant.echo(0, "toy-1").await;
    let request = |text: &str| {
        let post = plant.http.post(plant.url("/v1/devices/toy-1/calls"));
        post.bearer_auth(&plant.org.key).json(&echo(text, 20_000))
    };
    let mut waiting = tokio::task::JoinSet::new();
    let first = request("for the old one");
    waiting.spawn(async move { first.send().await.unwrap().json::<Value>().await.unwrap() });
    let (old_call, _, _) = old.next_call().await;
    let mut new = plant.echo(1, "toy-1").await;
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
    // A result for the old connection's call means nothing on the new one.
    let second = request("for the new one");
    waiting.spawn(async move { second.send().await.unwrap().json::<Value>().await.unwrap() });
    let (new_call, _, params) = new.next_call().await;
    assert_eq!(
        params["text"], "for the new one",
        "the old call did not come again"
    );
    new.answer(
        &old_call,
        &json!({"success": true, "data": "the old one's"}),
    )
    .await;
    new.answer(
        &new_call,
        &json!({"success": true, "data": "the new one's"}),
    )
    .await;
    let answer = waiting.join_next().await.unwrap().unwrap();
    assert_eq!(answer["result"]["data"], "the new one's");
    let executed = Arc::clone(&new.executed);
    let served = new.serve();
    plant.answers("toy-1", Duration::from_secs(5)).await;
    assert!(
        executed
            .lock()
            .unwrap()
            .iter()
            .all(|params| params["text"] == "again")
    );
    drop(served);
}
