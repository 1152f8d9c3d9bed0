//! An edge whose host stands still: nothing of it answers, and its connections stay open.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_test_support::eventually::eventually;
use tokio::task::JoinSet;

use crate::{cluster::TestCluster, device::Ledger};

fn echo(text: &str, timeout_ms: u64) -> Value {
    json!({"service": "echo", "params": {"text": text}, "timeout_ms": timeout_ms})
}

/// Connects a device to an edge and serves it. It was called once, so that its owner is cached.
async fn serve(cluster: &TestCluster, edge: usize, id: &str) -> (Ledger, JoinSet<usize>) {
    let device = cluster.echo(edge, id).await;
    let executed = device.executed.clone();
    let served = device.serve();
    cluster.answers(id, Duration::from_secs(5)).await;
    (executed, served)
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_devices_leave_a_dark_edge_and_the_others_are_offline_in_10_s() {
    let cluster = TestCluster::start(2).await;
    let _moving = serve(&cluster, 0, "toy-1").await;
    let (executed, _stays) = serve(&cluster, 0, "toy-2").await;
    cluster.edges[0].pause();
    let paused = Instant::now();

    let moved = cluster.echo(1, "toy-1").await;
    let registered = Instant::now();
    let _moved = moved.serve();
    let outcome = async || cluster.call("toy-1", &echo("moved", 250)).await.1["outcome"].clone();
    eventually(Duration::from_secs(2), outcome, |outcome| {
        *outcome == "succeeded"
    })
    .await;
    let took = registered.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");

    // A call that waits for the dark edge ends with its lease, long before its own deadline.
    let (status, answer) = cluster.call("toy-2", &echo("waits", 60_000)).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY, "{answer}");
    assert_eq!(answer["outcome"], "lost", "{answer}");
    let (_, answer) = cluster.call("toy-2", &echo("offline", 1_000)).await;
    assert_eq!(answer["outcome"], "offline", "{answer}");

    let (_, device) = cluster.get("/v1/devices/toy-2").await;
    assert_eq!(device["online"], false, "{device}");
    let took = paused.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");

    // It is not sent to the dark edge, so it is delivered when that goes on.
    let mut queued = echo("queued", 60_000);
    queued["mode"] = json!("queued");
    let (status, answer) = cluster.call("toy-2", &queued).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    let path = format!("/v1/calls/{}", answer["call_id"].as_str().unwrap());
    // Longer than the gateway takes to look for calls that it can deliver.
    let waits_until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < waits_until {
        let (_, call) = cluster.get(&path).await;
        assert!(call["outcome"].is_null(), "{call}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    cluster.edges[0].resume();
    let outcome = async || cluster.get(&path).await.1["outcome"].clone();
    eventually(Duration::from_secs(10), outcome, |outcome| {
        *outcome == "succeeded"
    })
    .await;
    // The device receives its calls in order: the lost one would be before the queued one.
    let params = executed.params();
    assert_eq!(params.last(), Some(&json!({"text": "queued"})));
    assert!(!params.contains(&json!({"text": "waits"})), "{params:?}");
}

/// The gateway has cached that it is at the edge that goes dark.
#[tokio::test(flavor = "multi_thread")]
async fn i8_device_that_left_an_edge_before_it_goes_dark_is_callable() {
    let cluster = TestCluster::start(2).await;
    let (_, leaves) = serve(&cluster, 0, "toy-1").await;
    drop(leaves);
    let online = async || cluster.get("/v1/devices/toy-1").await.1["online"].clone();
    eventually(Duration::from_secs(5), online, |online| *online == false).await;
    cluster.edges[0].pause();
    let moved = cluster.echo(1, "toy-1").await;
    let registered = Instant::now();
    let _moved = moved.serve();
    let (_, answer) = cluster.call("toy-1", &echo("moved", 60_000)).await;
    assert_eq!(answer["outcome"], "succeeded", "{answer}");
    let took = registered.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_dark_edge_executes_no_call_after_its_deadline() {
    const DEVICES: usize = 16;
    let cluster = Arc::new(TestCluster::start(1).await);
    let mut devices = Vec::new();
    for number in 0..DEVICES {
        devices.push(serve(&cluster, 0, &format!("toy-{number}")).await);
    }
    cluster.edges[0].pause();
    let mut calls = JoinSet::new();
    for number in 0..DEVICES {
        let cluster = Arc::clone(&cluster);
        calls.spawn(async move {
            let call = echo("late", 1_000);
            cluster.call(&format!("toy-{number}"), &call).await.1
        });
    }
    for answer in calls.join_all().await {
        assert_eq!(answer["outcome"], "timed_out", "{answer}");
    }
    cluster.edges[0].resume();
    for (number, (executed, _)) in devices.iter().enumerate() {
        let id = format!("toy-{number}");
        // The device receives its calls in order: the late one would be before this one.
        cluster.answers(&id, Duration::from_secs(5)).await;
        let executed = executed.params();
        assert!(!executed.contains(&json!({"text": "late"})), "{executed:?}");
    }
}
