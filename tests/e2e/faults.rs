//! Faults of Redis, PostgreSQL and edges: effects during the fault, and time to heal.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_protocol::frame::Kind;
use switchboard_test_support::eventually::eventually;

use crate::cluster::TestCluster;

fn echo(text: &str, timeout_ms: u64) -> Value {
    json!({"service": "echo", "params": {"text": text}, "timeout_ms": timeout_ms})
}

#[tokio::test(flavor = "multi_thread")]
async fn i9_killed_edge_ends_calls_in_3_s_and_presence_in_10_s() {
    let mut cluster = TestCluster::start(2).await;
    let mut device = cluster.echo(0, "toy-1").await;
    let mut waiting = tokio::task::JoinSet::new();
    let request = cluster
        .http
        .post(cluster.url("/v1/devices/toy-1/calls"))
        .bearer_auth(&cluster.org.key);
    let request = request.json(&echo("x", 60_000));
    waiting.spawn(async move {
        let answer = request.send().await.unwrap();
        (answer.status(), answer.json::<Value>().await.unwrap())
    });
    device.next_call().await;
    let killed = Instant::now();
    cluster.edges[0].kill();
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
    let online = async || cluster.get("/v1/devices/toy-1").await.1["online"].clone();
    let left = Duration::from_secs(10).saturating_sub(killed.elapsed());
    eventually(left, online, |online| *online == false).await;
    // The device reconnects to the other edge.
    let served = cluster.echo(1, "toy-1").await.serve();
    cluster.answers("toy-1", Duration::from_secs(5)).await;
    drop(served);
}

#[tokio::test(flavor = "multi_thread")]
async fn i9_redis_outage_heals_within_five_seconds_without_restart() {
    let mut cluster = TestCluster::start(2).await;
    let served = cluster.echo(1, "toy-1").await.serve();
    cluster.answers("toy-1", Duration::from_secs(5)).await;
    cluster.redis.kill();
    let back = Instant::now() + Duration::from_secs(30);
    let refused = async || cluster.call("toy-1", &echo("x", 1000)).await;
    let (_, answer) = eventually(Duration::from_secs(10), refused, |(status, _)| {
        *status == StatusCode::SERVICE_UNAVAILABLE
    })
    .await;
    assert_eq!(answer["delivered"], "no", "{answer}");
    assert!(answer["detail"].as_str().is_some(), "{answer}");
    // Errors stay fast during the outage, and disconnected nodes report it.
    while Instant::now() < back {
        let begun = Instant::now();
        cluster.call("toy-1", &echo("x", 1000)).await;
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
        cluster.gateway.address("admin_url"),
        cluster.edges[1].address("admin_url"),
    ] {
        let ready = cluster
            .http
            .get(format!("{admin}/readyz"))
            .send()
            .await
            .unwrap();
        assert_eq!(ready.status(), StatusCode::SERVICE_UNAVAILABLE);
        let ready: Value = ready.json().await.unwrap();
        assert_eq!(ready["dependencies"]["redis"]["ready"], false, "{ready}");
    }
    cluster.redis.restart();
    cluster.answers("toy-1", Duration::from_secs(5)).await;
    let presence = async || cluster.get("/v1/devices/toy-1").await.1;
    let seen =
        |device: &Value| device["online"] == true && device["services"].get("echo").is_some();
    eventually(Duration::from_secs(5), presence, seen).await;
    drop(served);
}

#[tokio::test(flavor = "multi_thread")]
async fn i3_calls_during_redis_kill_have_one_true_outcome() {
    let mut cluster = TestCluster::start(1).await;
    let device = cluster.echo(0, "toy-1").await;
    let executed = device.executed.clone();
    let served = device.serve();
    cluster.answers("toy-1", Duration::from_secs(5)).await;
    let mut calls = tokio::task::JoinSet::new();
    for caller in 0..8 {
        let (http, url, key) = (
            cluster.http.clone(),
            cluster.url("/v1/devices/toy-1/calls"),
            cluster.org.key.clone(),
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
    let under_load = async || executed.params().len();
    eventually(Duration::from_secs(10), under_load, |count| *count > 100).await;
    cluster.redis.kill();
    cluster.redis.restart();
    let ends: Vec<_> = calls.join_all().await.into_iter().flatten().collect();
    cluster.answers("toy-1", Duration::from_secs(5)).await;
    let executed = executed.params();
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
async fn i1_calls_during_stalled_redis_end_within_deadline_plus_1_s() {
    let cluster = TestCluster::start(2).await;
    let known = cluster.echo(0, "known").await.serve();
    let fresh = cluster.echo(1, "fresh").await.serve();
    let body = echo("x", 500);
    assert_eq!(cluster.call("known", &body).await.0, StatusCode::OK);
    cluster.redis.pause();
    // The gateway has the entry of one device cached and must look up the other.
    for device in ["known", "fresh", "known"] {
        let begun = Instant::now();
        let (status, answer) = cluster.call(device, &body).await;
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
    cluster.redis.resume();
    for device in ["known", "fresh"] {
        cluster.answers(device, Duration::from_secs(5)).await;
    }
    drop((known, fresh));
}

#[tokio::test(flavor = "multi_thread")]
async fn i9_devices_work_during_postgres_outage_and_it_heals() {
    let cluster = TestCluster::start(2).await;
    let token = cluster.device_token("toy-1").await;
    assert_eq!(
        cluster.get("/v1/devices").await.0,
        StatusCode::OK,
        "the key is known to the gateway"
    );
    cluster.database.set_unavailable(true).await.unwrap();
    let mut lamp =
        crate::device::Device::connect(&cluster.edges[0].address("device_addr"), &token).await;
    lamp.register(&crate::cluster::echo_services()).await;
    let served = lamp.serve();
    cluster.answers("toy-1", Duration::from_secs(5)).await;
    let (status, device) = cluster.get("/v1/devices/toy-1").await;
    assert_eq!(
        (status, &device["online"]),
        (StatusCode::OK, &json!(true)),
        "{device}"
    );
    let body = json!({"subject": "device:toy-2", "scopes": ["device"], "ttl_s": 60});
    let url = format!("{}/v1/tokens", cluster.control.address("http_url"));
    let refused = cluster
        .http
        .post(url)
        .bearer_auth(&cluster.org.key)
        .json(&body)
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    cluster.database.set_unavailable(false).await.unwrap();
    // The events of the outage are persisted.
    drop(served);
    let remembered = async || cluster.get("/v1/devices/toy-1").await.1;
    let complete =
        |device: &Value| device["online"] == false && device["services"].get("echo").is_some();
    eventually(Duration::from_secs(5), remembered, complete).await;
    cluster.device_token("toy-2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i2_i5_newest_connection_receives_only_its_own_calls() {
    let cluster = TestCluster::start(2).await;
    let mut old = cluster.echo(0, "toy-1").await;
    let request = |text: &str| {
        let post = cluster.http.post(cluster.url("/v1/devices/toy-1/calls"));
        post.bearer_auth(&cluster.org.key).json(&echo(text, 20_000))
    };
    let mut waiting = tokio::task::JoinSet::new();
    let first = request("for the old one");
    waiting.spawn(async move { first.send().await.unwrap().json::<Value>().await.unwrap() });
    let (old_call, _, _) = old.next_call().await;
    let mut new = cluster.echo(1, "toy-1").await;
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
    // A result for a call of the old connection has no effect on the new one.
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
    let executed = new.executed.clone();
    let served = new.serve();
    cluster.answers("toy-1", Duration::from_secs(5)).await;
    assert!(
        executed
            .params()
            .iter()
            .all(|params| params["text"] == "again")
    );
    drop(served);
}
