//! Synchronous calls: the response to each outcome, and refused requests.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use switchboard_bus::{BusConfig, LocalHub};
use switchboard_protocol::token::Scope;
use switchboard_test_support::eventually::eventually_true;

use crate::test_gateway::{TestGateway, send};

#[tokio::test]
async fn result_is_returned_byte_for_byte() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let body = r#"{"service":"echo","params":{"text":"你好","n":1.50e0}}"#;
    let answer = gateway.call("toy-1", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(
        (&answer.json["outcome"], &answer.json["delivered"]),
        (&json!("succeeded"), &json!("yes"))
    );
    let result = r#""result":{ "success" : true, "data":{"text":"你好","n":1.50e0}},"#;
    assert!(answer.text.contains(result), "{}", answer.text);
    assert_eq!(
        answer.json["call_id"],
        json!(gateway.edge.received.lock()[0])
    );
    assert!(answer.json["elapsed_ms"].is_number());
}

#[tokio::test]
async fn outcome_reports_delivery() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    gateway.store_device("asleep").await;
    let check = async |(device, service): (&str, &str), status, outcome: &str, delivered: &str| {
        let body = format!("{{\"service\":\"{service}\",\"timeout_ms\":300}}");
        let answer = gateway.call(device, &body).await;
        assert_eq!(answer.status, status, "{service}: {}", answer.text);
        assert_eq!(answer.json["outcome"], outcome, "{service}");
        assert_eq!(answer.json["delivered"], delivered, "{service}");
        if status != 200 {
            assert_eq!(answer.json["type"], format!("/problems/{outcome}"));
            assert!(answer.json["call_id"].is_string() && answer.json["elapsed_ms"].is_number());
        }
        answer
    };
    check(("toy-1", "echo"), 200, "succeeded", "yes").await;
    let failed = check(("toy-1", "fail"), 200, "failed", "yes").await;
    assert_eq!(
        failed.json["result"],
        json!({"success": false, "error": "broken"})
    );
    let invalid = check(("toy-1", "invalid"), 422, "invalid", "no").await;
    assert_eq!(
        invalid.json["errors"],
        json!([{"pointer": "/a", "detail": "no"}])
    );
    check(("toy-1", "unknown"), 404, "unknown_service", "no").await;
    check(("nobody", "echo"), 404, "unknown_device", "no").await;
    check(("asleep", "echo"), 409, "offline", "no").await;
    let overloaded = check(("toy-1", "overloaded"), 429, "overloaded", "no").await;
    assert_eq!(overloaded.headers["retry-after"], "1");
    check(("toy-1", "silent"), 504, "timed_out", "unknown").await;
    check(("toy-1", "lost"), 502, "lost", "unknown").await;
    assert_eq!(gateway.edge.received.lock().len(), 3);

    for line in [
        "switchboard_gateway_calls_total{outcome=\"offline\"} 1",
        "switchboard_gateway_calls_total{outcome=\"cancelled\"} 0",
        "switchboard_gateway_call_seconds_count 9",
        "switchboard_gateway_calls_in_flight 0",
    ] {
        gateway.assert_metric(line);
    }
}

#[tokio::test]
async fn invalid_call_is_refused_before_it_is_sent() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let check = async |device: &str, body: &str, status, slug: &str| {
        let answer = gateway.call(device, body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text);
        assert_eq!(answer.json["type"], format!("/problems/{slug}"), "{body}");
    };
    check("toy-1", "{", 400, "malformed_json").await;
    check("toy-1", "", 400, "empty_body").await;
    check(
        "toy-1",
        r#"{"service":"echo","param":{}}"#,
        422,
        "invalid_body",
    )
    .await;
    check(
        "toy-1",
        r#"{"service":"echo","params":[]}"#,
        422,
        "invalid_body",
    )
    .await;
    check("a%20b", r#"{"service":"echo"}"#, 404, "not_found").await;
    let large = format!(
        "{{\"service\":\"echo\",\"params\":{{\"a\":\"{}\"}}}}",
        "x".repeat(262_144)
    );
    check("toy-1", &large, 413, "overloaded").await;
    let larger = "x".repeat(1_048_577);
    check("toy-1", &larger, 413, "body_too_large").await;
    assert_eq!(gateway.get("/v1/devices/toy-1/calls").await.status, 405);
    assert!(gateway.edge.received.lock().is_empty());
    // A request that is too large does not count as load.
    gateway.assert_metric("switchboard_gateway_calls_total{outcome=\"too_large\"} 1");
    gateway.assert_metric("switchboard_gateway_calls_total{outcome=\"overloaded\"} 0");
}

#[tokio::test]
async fn call_requires_its_scope() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let reader = gateway.add_key(&[Scope::Read]).await;
    let path = "/v1/devices/toy-1/calls";
    // The scope is checked before the body, which is missing.
    assert_eq!(
        send(gateway.request_as(&reader, Method::POST, path))
            .await
            .status,
        403
    );
    let device = gateway.add_key(&[Scope::Device]).await;
    for path in ["/v1/devices", "/v1/devices/toy-1"] {
        assert_eq!(
            send(gateway.request_as(&device, Method::GET, path))
                .await
                .status,
            403
        );
        assert_eq!(
            send(gateway.request_as(&reader, Method::GET, path))
                .await
                .status,
            200
        );
    }
    let stranger = switchboard_identity::ApiKeySecret::generate();
    assert_eq!(
        send(gateway.request_as(&stranger, Method::GET, "/v1/devices"))
            .await
            .status,
        401
    );
}

#[tokio::test]
async fn device_of_another_org_is_unknown() {
    let hub = LocalHub::default();
    let ours = TestGateway::with_bus(&hub, BusConfig::local(&hub, "gateway-1")).await;
    let theirs = TestGateway::with_bus(&hub, BusConfig::local(&hub, "gateway-2")).await;
    theirs.connect("toy-1").await;
    assert_eq!(
        ours.call("toy-1", r#"{"service":"echo"}"#).await.json["outcome"],
        "unknown_device"
    );
    assert_eq!(ours.get("/v1/devices").await.json["devices"], json!([]));
    assert_eq!(ours.get("/v1/devices/toy-1").await.status, 404);
    assert!(theirs.edge.received.lock().is_empty());
}

#[tokio::test]
async fn disconnected_caller_cancels_its_call() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let request = gateway.call_request("toy-1", r#"{"service":"silent"}"#);
    tokio::select! {
        _ = request.send() => panic!("nobody answers"),
        () = eventually_true("the call is delivered", || !gateway.edge.received.lock().is_empty()) => {}
    }
    eventually_true("the call is cancelled", || {
        !gateway.edge.cancelled.lock().is_empty()
    })
    .await;
    assert_eq!(
        *gateway.edge.cancelled.lock(),
        *gateway.edge.received.lock()
    );
}

#[tokio::test]
async fn absent_device_is_offline_without_the_database() {
    let gateway = TestGateway::start().await;
    // Authenticates the key while the database is available, so that it is cached.
    assert_eq!(gateway.get("/v1/devices").await.status, 200);
    gateway.database.set_unavailable(true).await.unwrap();
    let started = std::time::Instant::now();
    let answer = gateway.call("nobody", r#"{"service":"echo"}"#).await;
    assert_eq!(answer.json["outcome"], "offline", "{}", answer.text);
    assert!(started.elapsed() < Duration::from_secs(1));
    gateway.database.set_unavailable(false).await.unwrap();
}

#[tokio::test]
async fn call_with_a_known_key_does_not_wait_for_the_database() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let call = async || {
        let answer = gateway
            .call("toy-1", r#"{"service":"echo","timeout_ms":300}"#)
            .await;
        assert_eq!(answer.json["outcome"], "succeeded", "{}", answer.text);
    };
    call().await;
    let lock = gateway.database.lock("api_keys").await.unwrap();
    // The key is looked up again after 3 s, and each lookup takes longer than the calls.
    let end = std::time::Instant::now() + Duration::from_secs(9);
    while std::time::Instant::now() < end {
        call().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    lock.release().await.unwrap();
}

#[tokio::test]
async fn deadline_counts_from_the_head_of_the_request() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let mut lock = gateway.database.lock("api_keys").await.unwrap();
    let request = gateway.call_request("toy-1", r#"{"service":"echo","timeout_ms":1}"#);
    let mut sent = tokio::task::JoinSet::from_iter([send(request)]);
    while !lock.is_waited_for().await.unwrap() {}
    lock.release().await.unwrap();
    let answer = sent.join_next().await.unwrap().unwrap();
    let seen = [&answer.json["outcome"], &answer.json["delivered"]];
    assert_eq!(seen, ["timed_out", "no"], "{}", answer.text);
    assert!(gateway.edge.received.lock().is_empty());
}

#[tokio::test]
async fn call_whose_key_cannot_be_looked_up_was_not_sent() {
    let gateway = TestGateway::start().await;
    gateway.database.set_unavailable(true).await.unwrap();
    let answer = gateway.call("toy-1", r#"{"service":"echo"}"#).await;
    gateway.database.set_unavailable(false).await.unwrap();
    assert_eq!(answer.status, 503, "{}", answer.text);
    assert_eq!(answer.json["delivered"], "no", "{}", answer.text);
}

#[tokio::test]
async fn call_is_refused_without_the_bus() {
    let hub = LocalHub::default();
    let nowhere = secrecy::SecretString::from("redis://127.0.0.1:1/");
    let gateway = TestGateway::with_bus(&hub, BusConfig::redis(&nowhere, "gateway", "sb")).await;
    let check = async |request| {
        let answer = send(request).await;
        assert_eq!(answer.status, 503, "{}", answer.text);
        assert_eq!(answer.json["type"], "/problems/bus_unavailable");
        assert_eq!(answer.json["delivered"], "no");
        assert!(answer.json["call_id"].is_string() && answer.json["elapsed_ms"].is_number());
        assert!(answer.json.get("outcome").is_none(), "{}", answer.text);
        assert_eq!(answer.headers["retry-after"], "1");
    };
    let call = || gateway.call_request("toy-1", r#"{"service":"echo","timeout_ms":500}"#);
    tokio::time::timeout(Duration::from_secs(8), async {
        check(call()).await;
        check(call().header("idempotency-key", "k")).await;
        // It would be lost: nothing would repeat it.
        check(gateway.call_request("toy-1", r#"{"service":"echo","mode":"async"}"#)).await;
    })
    .await
    .expect("a refusal does not take long");
}
