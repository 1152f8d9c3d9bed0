//! Starting without what is needed, ending without losing what is under way.

use std::{collections::HashMap, time::Duration};

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_protocol::frame::Kind;

use crate::{eventually::eventually, plant::Plant, program::Program, redis_server::RedisServer};

#[tokio::test(flavor = "multi_thread")]
async fn i14_a_drained_edge_loses_no_call() {
    let mut plant = Plant::start(2).await;
    let mut toy = plant.echo(0, "toy-1").await;
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..10 {
        let request = plant
            .http
            .post(plant.url("/v1/devices/toy-1/calls"))
            .bearer_auth(&plant.org.key);
        let body =
            json!({"service": "echo", "params": {"text": n.to_string()}, "timeout_ms": 20_000});
        let request = request.json(&body);
        calls.spawn(async move { request.send().await.unwrap().json::<Value>().await.unwrap() });
    }
    let mut under_way = Vec::new();
    for _ in 0..10 {
        under_way.push(toy.next_call().await);
    }
    plant.edges[0].terminate();
    let goaway = toy.next(Kind::Goaway).await.json();
    assert_eq!(goaway["reason"], "drain");
    assert!(goaway["retry_after_ms"].as_u64().is_some());
    for (id, _, params) in under_way {
        toy.answer(&id, &json!({"success": true, "data": params}))
            .await;
    }
    for answer in calls.join_all().await {
        assert_eq!(answer["outcome"], "succeeded", "{answer}");
    }
    toy.closes().await;
    assert_eq!(
        plant.edges[0].exit_code(Duration::from_secs(20)).await,
        Some(0)
    );
    let (_, device) = plant.get("/v1/devices/toy-1").await;
    assert_eq!(device["online"], false);
    let left = async || plant.get("/v1/devices/toy-1").await.1["left_reason"].clone();
    eventually(Duration::from_secs(5), left, |reason| *reason == "drain").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i14_the_devices_own_client_finishes_its_calls_on_a_drained_edge() {
    let mut plant = Plant::start(2).await;
    let folder = tempfile::tempdir().unwrap();
    let (begun, services) = (
        folder.path().join("begun"),
        folder.path().join("services.json"),
    );
    let command = format!("touch {}; sleep 2; echo '\"done\"'", begun.display());
    let slow = json!({"description": "Takes its time", "command": ["sh", "-c", command]});
    std::fs::write(&services, json!({"services": {"slow": slow}}).to_string()).unwrap();
    let (device_addr, url) = (
        plant.edges[0].address("device_addr"),
        plant.control.address("http_url"),
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
    let environment = [("SWITCHBOARD_API_KEY", plant.org.key.clone())];
    let device = Program::launch(&[&arguments[..], &services[..]].concat(), &environment);
    let online = async || plant.get("/v1/devices/toy-1").await.1["services"].clone();
    eventually(Duration::from_secs(10), online, |services| {
        services.get("slow").is_some()
    })
    .await;
    let request = plant
        .http
        .post(plant.url("/v1/devices/toy-1/calls"))
        .bearer_auth(&plant.org.key);
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
    plant.edges[0].terminate();
    let answer = call.join_all().await;
    assert_eq!(
        answer[0]["outcome"],
        "succeeded",
        "{}\n{}",
        answer[0],
        device.logged()
    );
    assert_eq!(
        plant.edges[0].exit_code(Duration::from_secs(20)).await,
        Some(0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_service_ends_cleanly_on_sigterm() {
    let mut plant = Plant::start(1).await;
    for program in [&mut plant.gateway, &mut plant.control, &mut plant.edges[0]] {
        program.terminate();
        assert_eq!(program.exit_code(Duration::from_secs(20)).await, Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_that_starts_without_redis_says_so_and_serves_when_it_comes() {
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
        |log| log.contains("Redis can not be reached"),
    )
    .await;
    let ready = tokio::task::spawn_blocking(move || edge.until_ready());
    redis.restart();
    let edge = ready.await.unwrap();
    assert!(edge.ready["device_addr"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_starts_without_postgres_serves_when_it_comes() {
    let plant = Plant::start(0).await;
    plant.database.set_away(true).await.unwrap();
    let mut environment = plant.environment();
    environment.push(("SWITCHBOARD_HTTP_LISTEN", "127.0.0.1:0".to_owned()));
    let second = Program::launch(&["control"], &environment);
    eventually(
        Duration::from_secs(20),
        async || second.logged(),
        |log| log.contains("Postgres"),
    )
    .await;
    plant.database.set_away(false).await.unwrap();
    let second = tokio::task::spawn_blocking(move || second.until_ready())
        .await
        .unwrap();
    let url = format!("{}/v1/tokens", second.address("http_url"));
    let body = json!({"subject": "client:x", "scopes": ["call"], "ttl_s": 60});
    let token = async || {
        plant
            .http
            .post(&url)
            .bearer_auth(&plant.org.key)
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
async fn a_wrong_setting_is_named_and_ends_with_64() {
    for (service, name, value, said) in [
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
        assert!(log.contains(said), "{service} {name}: {log}");
    }
}

/// What a service says, and how it ends, when one setting is like this and the others are sound.
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
async fn a_taken_port_is_named_with_its_setting() {
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
