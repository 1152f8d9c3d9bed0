//! Calls from HTTP to a device on another node and back: every outcome, as the caller sees it.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use switchboard_test_support::eventually::eventually;

use crate::cluster::{TestCluster, echo_services};

#[tokio::test(flavor = "multi_thread")]
async fn i3_call_across_nodes_returns_the_devices_bytes() {
    let cluster = TestCluster::start(2).await;
    let mut lamp = cluster.echo(1, "toy-1").await;
    let device = async {
        let (id, service, params) = lamp.next_call().await;
        assert_eq!(
            (service.as_str(), &params),
            ("echo", &json!({"text": "现在几点了? ##END"}))
        );
        lamp.answer(
            &id,
            &json!({"success": true, "data": "2025年1月22日 ##START", "extra": [1.50]}),
        )
        .await;
        id
    };
    let body = json!({"service": "echo", "params": {"text": "现在几点了? ##END"}});
    let (id, (status, answer)) = tokio::join!(device, cluster.call("toy-1", &body));
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(answer["outcome"], "succeeded");
    assert_eq!(answer["delivered"], "yes");
    assert_eq!(answer["call_id"], json!(id));
    assert_eq!(
        answer["result"],
        json!({"success": true, "data": "2025年1月22日 ##START", "extra": [1.50]})
    );
    assert!(answer["elapsed_ms"].as_f64().unwrap() >= 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_call_returns_the_devices_error() {
    let cluster = TestCluster::start(1).await;
    let mut lamp = cluster.echo(0, "toy-1").await;
    let device = async {
        let (id, _, _) = lamp.next_call().await;
        lamp.answer(&id, &json!({"success": false, "error": "the arm is stuck"}))
            .await;
    };
    let body = json!({"service": "echo", "params": {"text": "x"}});
    let ((), (status, answer)) = tokio::join!(device, cluster.call("toy-1", &body));
    assert_eq!(
        (status, &answer["outcome"]),
        (StatusCode::OK, &json!("failed"))
    );
    assert_eq!(
        answer["result"],
        json!({"success": false, "error": "the arm is stuck"})
    );
}

/// Asserts that a call is rejected with this problem and not delivered to the device.
async fn check_refused(
    cluster: &TestCluster,
    device: &str,
    body: Value,
    status: u16,
    outcome: &str,
) -> Value {
    let (got, answer) = cluster.call(device, &body).await;
    assert_eq!(got.as_u16(), status, "{body}: {answer}");
    assert_eq!(answer["outcome"], outcome, "{body}: {answer}");
    assert_eq!(answer["delivered"], "no", "{body}: {answer}");
    assert!(
        answer["detail"]
            .as_str()
            .is_some_and(|detail| detail.len() > 10),
        "{answer}"
    );
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_call_returns_reason_and_is_not_delivered() {
    let cluster = TestCluster::start(1).await;
    let device = cluster.echo(0, "toy-1").await;
    let served = device.serve();
    let params = |params: Value| json!({"service": "echo", "params": params});
    check_refused(
        &cluster,
        "nobody",
        params(json!({"text": "x"})),
        404,
        "unknown_device",
    )
    .await;
    check_refused(
        &cluster,
        "toy-1",
        json!({"service": "fly", "params": {}}),
        404,
        "unknown_service",
    )
    .await;
    for (bad, pointer) in [
        (json!({"text": 7}), "/text"),
        (json!({}), ""),
        (json!({"text": "x", "times": 10}), "/times"),
        (json!({"text": "x", "times": 0}), "/times"),
        (json!({"text": "x", "times": 1.5}), "/times"),
        (json!({"text": "y".repeat(65)}), "/text"),
        (json!({"text": "x", "mood": "sad"}), "/mood"),
    ] {
        let answer = check_refused(&cluster, "toy-1", params(bad), 422, "invalid").await;
        assert_eq!(answer["errors"][0]["pointer"], pointer, "{answer}");
    }
    // Only this call reaches the device.
    cluster.answers("toy-1", Duration::from_secs(5)).await;
    cluster.edges[0].terminate();
    assert_eq!(served.join_all().await, [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnected_device_is_offline_not_unknown() {
    let cluster = TestCluster::start(1).await;
    drop(cluster.echo(0, "toy-1").await);
    let body = json!({"service": "echo", "params": {"text": "x"}});
    let outcome = async || cluster.call("toy-1", &body).await;
    let (_, answer) = eventually(Duration::from_secs(5), outcome, |(status, _)| {
        *status == StatusCode::CONFLICT
    })
    .await;
    assert_eq!(
        (&answer["outcome"], &answer["delivered"]),
        (&json!("offline"), &json!("no"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_silent_device_times_out_and_late_result_is_dropped() {
    let cluster = TestCluster::start(1).await;
    let mut device = cluster.echo(0, "toy-1").await;
    let body = json!({"service": "echo", "params": {"text": "x"}, "timeout_ms": 300});
    let begun = Instant::now();
    let (status, answer) = cluster.call("toy-1", &body).await;
    let took = begun.elapsed();
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "{answer}");
    assert_eq!(
        (&answer["outcome"], &answer["delivered"]),
        (&json!("timed_out"), &json!("unknown"))
    );
    assert!(
        took >= Duration::from_millis(300) && took < Duration::from_millis(550),
        "{took:?}"
    );
    let (late, _, _) = device.next_call().await;
    device
        .answer(&late, &json!({"success": true, "data": "too late"}))
        .await;
    let served = device.serve();
    let (_, answer) = cluster
        .call(
            "toy-1",
            &json!({"service": "echo", "params": {"text": "next"}}),
        )
        .await;
    assert_eq!(answer["result"]["data"], json!({"text": "next"}));
    drop(served);
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_device_completes_only_calls_of_its_connection() {
    let cluster = TestCluster::start(2).await;
    let (mut device, mut thief) = (
        cluster.echo(0, "toy-1").await,
        cluster.echo(1, "thief").await,
    );
    let body = json!({"service": "echo", "params": {"text": "x"}});
    let devices = async {
        let (id, _, _) = device.next_call().await;
        // Another device knows the call id and answers first; then the right device answers twice.
        thief
            .answer(&id, &json!({"success": true, "data": "stolen"}))
            .await;
        thief
            .answer(
                "call_00000000000000000000000000000000",
                &json!({"success": true}),
            )
            .await;
        // The registration of the other device is answered after its results were read.
        thief.register(&echo_services()).await;
        device
            .answer(&id, &json!({"success": true, "data": "first"}))
            .await;
        device
            .answer(&id, &json!({"success": true, "data": "second"}))
            .await;
    };
    let ((), (_, answer)) = tokio::join!(devices, cluster.call("toy-1", &body));
    assert_eq!(answer["result"]["data"], "first");
}

#[tokio::test(flavor = "multi_thread")]
async fn i4_nothing_crosses_an_organisation() {
    let cluster = TestCluster::start(2).await;
    let foreign = cluster.another_org("second").await;
    let ours = cluster.echo(0, "toy-1").await.serve();
    // The same id in another organisation is another device.
    let token = cluster.token(&foreign, "device:toy-1", &["device"]).await;
    let address = cluster.edges[1].address("device_addr");
    let mut theirs =
        crate::device::Device::connect(&address, token["access_token"].as_str().unwrap()).await;
    theirs
        .register("{\"secret_door\":{\"description\":\"theirs\"}}")
        .await;
    let (_, seen) = cluster.get("/v1/devices/toy-1").await;
    assert!(
        seen["services"].get("echo").is_some() && seen["services"].get("secret_door").is_none(),
        "{seen}"
    );
    assert!(!seen.to_string().contains(&foreign.id), "{seen}");
    let body = json!({"service": "echo", "params": {"text": "mine"}});
    assert_eq!(
        cluster.call("toy-1", &body).await.1["result"]["data"]["text"],
        "mine"
    );
    let (status, answer) = cluster.call_as(&foreign, "toy-1", &body).await;
    assert_eq!(
        (status, &answer["outcome"]),
        (StatusCode::NOT_FOUND, &json!("unknown_service"))
    );
    let (status, answer) = cluster
        .call_as(&cluster.another_org("third").await, "toy-1", &body)
        .await;
    assert_eq!(
        (status, &answer["outcome"]),
        (StatusCode::NOT_FOUND, &json!("unknown_device"))
    );
    // Nothing of one organisation is visible to another, or to an operator.
    let canary = "canary-5f2c1";
    let body = json!({"service": "echo", "params": {"text": canary}});
    assert_eq!(
        cluster.call("toy-1", &body).await.1["result"]["data"]["text"],
        canary
    );
    let refused = json!({"service": canary, "params": {"text": canary}});
    assert_eq!(
        cluster.call("toy-1", &refused).await.1["outcome"],
        "unknown_service"
    );
    for program in cluster.programs() {
        let metrics = cluster
            .http
            .get(format!("{}/metrics", program.address("admin_url")));
        let metrics = metrics.send().await.unwrap().text().await.unwrap();
        let log = program.logged();
        for secret in [
            canary,
            &cluster.org.key,
            &foreign.key,
            &cluster.org.id,
            "toy-1",
        ] {
            assert!(!metrics.contains(secret), "{secret} in {metrics}");
        }
        for secret in [canary, &cluster.org.key, &foreign.key] {
            assert!(!log.contains(secret), "{secret} in {log}");
        }
    }
    drop(ours);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_concurrent_calls_over_two_edges_get_own_results() {
    let cluster = TestCluster::start(2).await;
    let mut devices = Vec::new();
    for n in 0..20 {
        devices.push(cluster.echo(n % 2, &format!("toy-{n}")).await.serve());
    }
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..1000 {
        let url = cluster.url(&format!("/v1/devices/toy-{}/calls", n % 20));
        let request = cluster.http.post(url).bearer_auth(&cluster.org.key);
        let request =
            request.json(&json!({"service": "echo", "params": {"text": format!("canary {n}")}}));
        calls.spawn(async move {
            let answer: Value = request.send().await.unwrap().json().await.unwrap();
            (n, answer)
        });
    }
    for (n, answer) in calls.join_all().await {
        assert_eq!(
            answer["result"]["data"]["text"],
            format!("canary {n}"),
            "{answer}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_above_in_flight_limit_are_rejected_undelivered() {
    let cluster = TestCluster::start(1).await;
    let mut device = cluster.echo(0, "toy-1").await;
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..80 {
        let request = cluster
            .http
            .post(cluster.url("/v1/devices/toy-1/calls"))
            .bearer_auth(&cluster.org.key);
        let body =
            json!({"service": "echo", "params": {"text": n.to_string()}, "timeout_ms": 20_000});
        let request = request.json(&body);
        calls.spawn(async move { request.send().await.unwrap().json::<Value>().await.unwrap() });
    }
    // At most 64 calls may be in flight: sixteen are rejected before the device answers one.
    for _ in 0..16 {
        let refused = calls.join_next().await.unwrap().unwrap();
        assert_eq!(
            (&refused["outcome"], &refused["delivered"]),
            (&json!("overloaded"), &json!("no"))
        );
    }
    for _ in 0..64 {
        let (id, _, _) = device.next_call().await;
        device.answer(&id, &json!({"success": true})).await;
    }
    let answers = calls.join_all().await;
    assert_eq!(answers.len(), 64);
    assert!(
        answers
            .iter()
            .all(|answer| answer["outcome"] == "succeeded")
    );
}
