//! Async and queued calls outlive connections and processes: delivered at most once, in order, and
//! `lost` if the result is unknown.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_test_support::{eventually::eventually, switchboard::Program};

use crate::cluster::{TestCluster, echo_services};

const OUTCOME_TIMEOUT: Duration = Duration::from_secs(15);

/// Another gateway beside the first.
fn second_gateway(cluster: &TestCluster) -> Program {
    let arguments = ["gateway", "--http-listen", "127.0.0.1:0"];
    Program::start(&arguments, &cluster.environment())
}

fn call(mode: &str, text: &str, timeout_ms: u64) -> Value {
    json!({"service": "echo", "mode": mode, "params": {"text": text}, "timeout_ms": timeout_ms})
}

/// Creates an async call and returns its id.
async fn keep(cluster: &TestCluster, body: &Value) -> String {
    let (status, kept) = cluster.call("toy-1", body).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{kept}");
    kept["call_id"].as_str().unwrap().to_owned()
}

/// Creates an async call at one of several gateways.
async fn keep_at(cluster: &TestCluster, gateway: &Program, n: usize) -> String {
    let body = call("queued", &n.to_string(), 5_000);
    let url = format!("{}/v1/devices/toy-1/calls", gateway.address("http_url"));
    let asked = cluster
        .http
        .post(url)
        .bearer_auth(&cluster.org.key)
        .json(&body);
    let kept: Value = asked.send().await.unwrap().json().await.unwrap();
    kept["call_id"].as_str().unwrap().to_owned()
}

/// The outcome of a call as this gateway reports it.
async fn end_of(cluster: &TestCluster, gateway: &Program, id: &str) -> Value {
    let url = format!("{}/v1/calls/{id}?wait_ms=2000", gateway.address("http_url"));
    let known = async || {
        let asked = cluster.http.get(&url).bearer_auth(&cluster.org.key).send();
        asked.await.unwrap().json::<Value>().await.unwrap()
    };
    eventually(OUTCOME_TIMEOUT, known, |call| call["state"] == "ended").await
}

fn outcome(call: &Value) -> (&str, &str) {
    let text = |field: &str| call[field].as_str().unwrap_or_default();
    (text("outcome"), text("delivered"))
}

#[tokio::test(flavor = "multi_thread")]
async fn i17_call_of_killed_gateway_is_lost_and_not_repeated() {
    for mode in ["async", "queued"] {
        let mut cluster = TestCluster::start(1).await;
        let mut device = cluster.echo(0, "toy-1").await;
        let id = keep(&cluster, &call(mode, "first", 5_000)).await;
        let (seen, _, _) = device.next_call().await;
        assert_eq!(seen, id);
        // Not started earlier: the first free gateway would deliver the queued call.
        let other = second_gateway(&cluster);
        cluster.gateway.kill();
        let url = format!("{}/v1/calls/{id}", other.address("http_url"));
        let asked = cluster.http.get(&url).bearer_auth(&cluster.org.key).send();
        let known: Value = asked.await.unwrap().json().await.unwrap();
        assert_eq!(outcome(&known), ("", "unknown"), "{mode}: {known}");
        let ended = end_of(&cluster, &other, &id).await;
        assert_eq!(outcome(&ended), ("lost", "unknown"), "{mode}: {ended}");

        // The device reconnects. The next frame that it receives is the next call.
        cluster.gateway = other;
        drop(device);
        let mut device = cluster.echo(0, "toy-1").await;
        let next = keep(&cluster, &call("queued", "next", 5_000)).await;
        let (seen, _, params) = device.next_call().await;
        assert_eq!((&seen, &params["text"]), (&next, &json!("next")), "{mode}");
        device
            .answer(&seen, &json!({"success": true, "data": 1}))
            .await;
        let ended = end_of(&cluster, &cluster.gateway, &next).await;
        assert_eq!(outcome(&ended), ("succeeded", "yes"), "{mode}: {ended}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i17_queued_calls_survive_restart_of_all_processes() {
    let mut cluster = TestCluster::start(1).await;
    let token = cluster.device_token("toy-1").await;
    let mut ids = Vec::new();
    for text in ["a", "b", "c"] {
        ids.push(keep(&cluster, &call("queued", text, 5_000)).await);
    }
    cluster.gateway.kill();
    cluster.edges[0].kill();
    cluster.redis.kill();
    cluster.database.set_unavailable(true).await.unwrap();
    cluster.database.set_unavailable(false).await.unwrap();
    cluster.redis.restart();
    cluster.gateway = second_gateway(&cluster);
    cluster.edges.clear();
    cluster.add_edge().await;
    let mut lamp =
        crate::device::Device::connect(&cluster.edges[0].address("device_addr"), &token).await;
    lamp.register(&echo_services()).await;
    let executed = lamp.executed.clone();
    let _served = lamp.serve();
    for id in &ids {
        let ended = end_of(&cluster, &cluster.gateway, id).await;
        assert_eq!(outcome(&ended), ("succeeded", "yes"), "{ended}");
    }
    let texts = executed.params();
    let expected = ["a", "b", "c"].map(|text| json!({"text": text}));
    assert_eq!(texts, expected, "once each, in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn i17_outcome_is_stored_after_database_outage() {
    for mode in ["async", "queued"] {
        let cluster = TestCluster::start(1).await;
        let mut device = cluster.echo(0, "toy-1").await;
        let id = keep(&cluster, &call(mode, "x", 20_000)).await;
        device.next_call().await;
        cluster.database.set_unavailable(true).await.unwrap();
        device
            .answer(&id, &json!({"success": true, "data": "kept"}))
            .await;
        let told = async || cluster.gateway.logged();
        eventually(OUTCOME_TIMEOUT, told, |log| {
            log.contains("retrying until the database is available")
        })
        .await;
        cluster.database.set_unavailable(false).await.unwrap();
        let ended = end_of(&cluster, &cluster.gateway, &id).await;
        assert_eq!(outcome(&ended), ("succeeded", "yes"), "{mode}: {ended}");
        assert_eq!(ended["result"]["data"], "kept");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i17_i18_two_gateways_deliver_a_queue_once_and_in_order() {
    let cluster = TestCluster::start(2).await;
    let second = second_gateway(&cluster);
    let mut ids = Vec::new();
    let mut texts = Vec::new();
    for n in 0..40 {
        let gateway = if n % 2 == 0 {
            &cluster.gateway
        } else {
            &second
        };
        ids.push(keep_at(&cluster, gateway, n).await);
        texts.push(json!({"text": n.to_string()}));
    }
    let device = cluster.echo(1, "toy-1").await;
    let executed = device.executed.clone();
    let _served = device.serve();
    // More calls arrive while the queue is drained.
    for n in 40..80 {
        let gateway = if n % 2 == 0 {
            &cluster.gateway
        } else {
            &second
        };
        ids.push(keep_at(&cluster, gateway, n).await);
        texts.push(json!({"text": n.to_string()}));
    }
    for id in &ids {
        let ended = end_of(&cluster, &second, id).await;
        assert_eq!(outcome(&ended), ("succeeded", "yes"), "{ended}");
    }
    assert_eq!(executed.params(), texts, "once each, in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn i14_drained_gateway_stores_outcomes_of_its_calls() {
    let mut cluster = TestCluster::start(1).await;
    let other = second_gateway(&cluster);
    let mut device = cluster.echo(0, "toy-1").await;
    let in_flight = keep(&cluster, &call("async", "x", 20_000)).await;
    let (first, _, _) = device.next_call().await;
    assert_eq!(first, in_flight);
    let queued = keep(&cluster, &call("queued", "y", 20_000)).await;
    let (second, _, _) = device.next_call().await;
    assert_eq!(second, queued);
    cluster.gateway.terminate();
    for id in [&in_flight, &queued] {
        device
            .answer(id, &json!({"success": true, "data": 1}))
            .await;
    }
    assert_eq!(cluster.gateway.exit_code(OUTCOME_TIMEOUT).await, Some(0));
    for id in [&in_flight, &queued] {
        let ended = end_of(&cluster, &other, id).await;
        assert_eq!(outcome(&ended), ("succeeded", "yes"), "{ended}");
    }
}
