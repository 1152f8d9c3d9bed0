//! Start without dependencies, and graceful shutdown without lost work.

use std::{collections::HashMap, time::Duration};

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_protocol::frame::Kind;
use switchboard_test_support::{
    eventually::eventually, redis_server::RedisServer, switchboard::Program,
};

use crate::cluster::TestCluster;

#[tokio::test(flavor = "multi_thread")]
async fn i14_a_drained_edge_loses_no_call() {
    let mut cluster = TestCluster::start(2).await;
    let mut lamp = cluster.echo(0, "toy-1").await;
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..10 {
        let request = cluster
            .http
            .post(cluster.url("/v1/devices/toy-1/calls"))
            .bearer_auth(&cluster.org.key);
        let body =
            json!({"service": "echo", "params": {"text": n.to_string()}, "timeout_ms": 20_000});
        let request = request.json(&body);
        calls.spawn(async move { request.send().await.unwrap().json::<Value>().await.unwrap() });
    }
    let mut in_flight = Vec::new();
    for _ in 0..10 {
        in_flight.push(lamp.next_call().await);
    }
    cluster.edges[0].terminate();
    let goaway = lamp.next(Kind::Goaway).await.json();
    assert_eq!(goaway["reason"], "drain");
    assert!(goaway["retry_after_ms"].as_u64().is_some());
    for (id, _, params) in in_flight {
        lamp.answer(&id, &json!({"success": true, "data": params}))
            .await;
    }
    for answer in calls.join_all().await {
        assert_eq!(answer["outcome"], "succeeded", "{answer}");
    }
    drop(lamp);
    assert_eq!(
        cluster.edges[0].exit_code(Duration::from_secs(20)).await,
        Some(0)
    );
    let (_, device) = cluster.get("/v1/devices/toy-1").await;
    assert_eq!(device["online"], false);
    let left = async || cluster.get("/v1/devices/toy-1").await.1["left_reason"].clone();
    eventually(Duration::from_secs(5), left, |reason| *reason == "drain").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i14_the_devices_own_client_finishes_its_calls_on_a_drained_edge() {
    let mut cluster = TestCluster::start(2).await;
    let folder = tempfile::tempdir().unwrap();
    let (begun, services) = (
        folder.path().join("begun"),
        folder.path().join("services.json"),
    );
    let command = format!("touch {}; sleep 2; echo '\"done\"'", begun.display());
    let slow = json!({"description": "Takes its time", "command": ["sh", "-c", command]});
    std::fs::write(&services, json!({"services": {"slow": slow}}).to_string()).unwrap();
    let (device_addr, url) = (
        cluster.edges[0].address("device_addr"),
        cluster.control.address("http_url"),
    );
    let arguments = [
        "device",
        "--id",
        "toy-1",
        "--addr",
        &device_addr,
        "--url",
        &url,
    ];
    let services = ["--services", services.to_str().unwrap()];
    let environment = [("SWITCHBOARD_API_KEY", cluster.org.key.clone())];
    let device = Program::launch(&[&arguments[..], &services[..]].concat(), &environment);
    let online = async || cluster.get("/v1/devices/toy-1").await.1["services"].clone();
    eventually(Duration::from_secs(10), online, |services| {
        services.get("slow").is_some()
    })
    .await;
    let request = cluster
        .http
        .post(cluster.url("/v1/devices/toy-1/calls"))
        .bearer_auth(&cluster.org.key);
    let request = request.json(&json!({"service": "slow", "params": {}}));
    let call = tokio::task::JoinSet::from_iter([async move {
        request.send().await.unwrap().json::<Value>().await.unwrap()
    }]);
    eventually(
        Duration::from_secs(10),
        async || begun.exists(),
        |begun| *begun,
    )
    .await;
    cluster.edges[0].terminate();
    let answer = call.join_all().await;
    assert_eq!(
        answer[0]["outcome"],
        "succeeded",
        "{}\n{}",
        answer[0],
        device.logged()
    );
    assert_eq!(
        cluster.edges[0].exit_code(Duration::from_secs(20)).await,
        Some(0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_service_ends_cleanly_on_sigterm() {
    let mut cluster = TestCluster::start(1).await;
    for program in [
        &mut cluster.gateway,
        &mut cluster.control,
        &mut cluster.edges[0],
    ] {
        program.terminate();
        assert_eq!(program.exit_code(Duration::from_secs(20)).await, Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn edge_started_without_redis_serves_when_redis_starts() {
    let mut redis = RedisServer::start();
    redis.kill();
    let environment = [
        ("REDIS_URL", redis.url()),
        ("SWITCHBOARD_ADMIN_LISTEN", "127.0.0.1:0".to_owned()),
        ("SWITCHBOARD_DEVICE_LISTEN", "127.0.0.1:0".to_owned()),
    ];
    let edge = Program::launch(&["edge"], &environment);
    eventually(
        Duration::from_secs(20),
        async || edge.logged(),
        |log| log.contains("cannot connect to Redis"),
    )
    .await;
    let ready = tokio::task::spawn_blocking(move || edge.until_ready());
    redis.restart();
    let edge = ready.await.unwrap();
    assert!(edge.ready["device_addr"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn control_started_without_postgres_serves_when_it_starts() {
    let cluster = TestCluster::start(0).await;
    cluster.database.set_unavailable(true).await.unwrap();
    let mut environment = cluster.environment();
    environment.push(("SWITCHBOARD_HTTP_LISTEN", "127.0.0.1:0".to_owned()));
    let second = Program::launch(&["control"], &environment);
    eventually(
        Duration::from_secs(20),
        async || second.logged(),
        |log| log.contains("Postgres"),
    )
    .await;
    cluster.database.set_unavailable(false).await.unwrap();
    let second = tokio::task::spawn_blocking(move || second.until_ready())
        .await
        .unwrap();
    let url = format!("{}/v1/tokens", second.address("http_url"));
    let body = json!({"subject": "client:x", "scopes": ["call"], "ttl_s": 60});
    let token = async || {
        cluster
            .http
            .post(&url)
            .bearer_auth(&cluster.org.key)
            .json(&body)
            .send()
            .await
            .unwrap()
            .status()
    };
    eventually(Duration::from_secs(5), token, |status| {
        *status == StatusCode::CREATED
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_setting_is_named_and_exits_with_64() {
    for (service, name, value, reported) in [
        (
            "edge",
            "SWITCHBOARD_DEVICE_LISTEN",
            "nowhere",
            "device-listen",
        ),
        (
            "edge",
            "SWITCHBOARD_DRAIN_TIMEOUT_S",
            "soon",
            "drain-timeout-s",
        ),
        ("edge", "REDIS_URL", "http://wrong", "REDIS_URL"),
        (
            "gateway",
            "SWITCHBOARD_HTTP_LISTEN",
            "nowhere",
            "http-listen",
        ),
        ("gateway", "DATABASE_URL", "http://wrong", "DATABASE_URL"),
        (
            "control",
            "SWITCHBOARD_HTTP_LISTEN",
            "nowhere",
            "http-listen",
        ),
    ] {
        let (log, code) = launched_with(service, name, value).await;
        assert_eq!(code, Some(64), "{service} {name}: {log}");
        assert!(log.contains(reported), "{service} {name}: {log}");
    }
}

/// The log and exit code of a service with one invalid setting.
async fn launched_with(service: &str, name: &'static str, value: &str) -> (String, Option<i32>) {
    let nobody = "postgres://nobody@127.0.0.1:1/none";
    let mut environment = HashMap::from([
        ("REDIS_URL", "redis://127.0.0.1:1/".to_owned()),
        ("DATABASE_URL", nobody.to_owned()),
        ("SWITCHBOARD_ADMIN_LISTEN", "127.0.0.1:0".to_owned()),
    ]);
    environment.insert(name, value.to_owned());
    let environment: Vec<_> = environment.into_iter().collect();
    let mut program = Program::launch(&[service], &environment);
    let code = program.exit_code(Duration::from_secs(20)).await;
    (program.logged(), code)
}

#[tokio::test(flavor = "multi_thread")]
async fn used_port_is_named_with_its_setting() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (service, variable, flag) in [
        ("edge", "SWITCHBOARD_DEVICE_LISTEN", "--device-listen"),
        ("edge", "SWITCHBOARD_ADMIN_LISTEN", "--admin-listen"),
        ("gateway", "SWITCHBOARD_HTTP_LISTEN", "--http-listen"),
        ("control", "SWITCHBOARD_HTTP_LISTEN", "--http-listen"),
    ] {
        let (log, code) = launched_with(service, variable, &address).await;
        assert_eq!(code, Some(1), "{service}: {log}");
        assert!(
            log.contains(&address) && log.contains(flag),
            "{service}: {log}"
        );
    }
}
