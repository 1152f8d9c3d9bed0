//! Idempotency keys: a repeated request does not repeat the call.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use switchboard_protocol::token::Scope;
use switchboard_test_support::eventually::{eventually, eventually_true};

use crate::test_gateway::{Response, TEST_TIMEOUT, TestGateway, send};

const ECHO: &str = r#"{"service":"echo","params":{"a":1}}"#;

async fn call_with(gateway: &TestGateway, key: &str, body: &str) -> Response {
    send(
        gateway
            .call_request("toy-1", body)
            .header("idempotency-key", key),
    )
    .await
}

#[tokio::test]
async fn repeated_request_replays_the_response() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let first = call_with(&gateway, "k-1", ECHO).await;
    assert_eq!(first.status, 200, "{}", first.text);
    assert!(!first.headers.contains_key("idempotency-replayed"));
    let second = call_with(&gateway, "k-1", ECHO).await;
    assert_eq!((second.status, &second.text), (200, &first.text));
    assert_eq!(second.headers["idempotency-replayed"], "true");
    assert_eq!(gateway.edge.received.lock().len(), 1);
    assert_ne!(
        call_with(&gateway, "k-2", ECHO).await.json["call_id"],
        first.json["call_id"]
    );
    assert_eq!(gateway.edge.received.lock().len(), 2);
}

#[tokio::test]
async fn repeated_request_replays_a_timeout() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let silent = r#"{"service":"silent","timeout_ms":200}"#;
    let first = call_with(&gateway, "k", silent).await;
    assert_eq!(first.status, 504);
    let second = call_with(&gateway, "k", silent).await;
    assert_eq!((second.status, &second.text), (504, &first.text));
    assert_eq!(gateway.edge.received.lock().len(), 1);
}

#[tokio::test]
async fn undelivered_call_releases_its_key() {
    let gateway = TestGateway::start().await;
    gateway.store_device("toy-1").await;
    assert_eq!(
        call_with(&gateway, "k", ECHO).await.json["outcome"],
        "offline"
    );
    gateway.connect("toy-1").await;
    let answer = call_with(&gateway, "k", ECHO).await;
    assert_eq!(answer.json["outcome"], "succeeded", "{}", answer.text);
    assert!(!answer.headers.contains_key("idempotency-replayed"));
}

#[tokio::test]
async fn key_is_scoped_to_request_and_caller() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let first = call_with(&gateway, "k", ECHO).await;
    let other = call_with(&gateway, "k", r#"{"service":"echo","params":{"a":2}}"#).await;
    assert_eq!(
        (other.status, &other.json["type"]),
        (422, &json!("/problems/idempotency_key_reused"))
    );
    let malformed = call_with(&gateway, "two words", ECHO).await;
    assert_eq!(malformed.json["type"], "/problems/invalid_idempotency_key");

    let colleague = gateway.add_key(&[Scope::Call]).await;
    let request = gateway.request_as(&colleague, Method::POST, "/v1/devices/toy-1/calls");
    let request = request
        .header("content-type", "application/json")
        .header("idempotency-key", "k");
    let theirs = send(request.body(ECHO)).await;
    assert_eq!(theirs.status, 200);
    assert_ne!(theirs.json["call_id"], first.json["call_id"]);
}

#[tokio::test]
async fn repeated_request_of_call_in_flight_is_a_conflict() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let silent = r#"{"service":"silent","timeout_ms":700}"#;
    let first = call_with(&gateway, "k", silent);
    let during = async {
        eventually_true("the call is delivered", || {
            !gateway.edge.received.lock().is_empty()
        })
        .await;
        call_with(&gateway, "k", silent).await
    };
    let (first, during) = tokio::join!(first, during);
    assert_eq!(
        (during.status, &during.json["type"]),
        (409, &json!("/problems/call_in_progress"))
    );
    assert_eq!(during.headers["retry-after"], "1");
    assert_eq!(during.json["call_id"], first.json["call_id"]);
    assert_eq!(gateway.edge.received.lock().len(), 1);
}

#[tokio::test]
async fn key_of_disconnected_caller_is_lost() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let silent = r#"{"service":"silent","timeout_ms":300}"#;
    let left = gateway
        .call_request("toy-1", silent)
        .header("idempotency-key", "k");
    tokio::select! {
        _ = left.send() => panic!("nobody answers yet"),
        () = eventually_true("the call is delivered", || !gateway.edge.received.lock().is_empty()) => {}
    }
    let settled = async {
        loop {
            let answer = call_with(&gateway, "k", silent).await;
            if answer.status != 409 {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let answer = tokio::time::timeout(TEST_TIMEOUT, settled).await.unwrap();
    assert_eq!(
        (answer.status, &answer.json["outcome"]),
        (502, &json!("lost")),
        "{}",
        answer.text
    );
    assert_eq!(answer.json["delivered"], "unknown");
    assert_eq!(gateway.edge.received.lock().len(), 1);
}

#[tokio::test]
async fn keyed_call_is_refused_without_the_database() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    // Authenticates the key while the database is available, so that it is cached.
    assert_eq!(gateway.get("/v1/devices").await.status, 200);
    let check = async |body: &str, within: Duration| {
        let started = Instant::now();
        let refused = call_with(&gateway, "k", body).await;
        assert!(started.elapsed() < within, "{:?}", started.elapsed());
        assert_eq!(
            (refused.status, &refused.json["type"]),
            (503, &json!("/problems/store_unavailable")),
            "{}",
            refused.text
        );
        assert_eq!(refused.json["delivered"], "no");
        assert!(refused.json["call_id"].is_string() && refused.json["elapsed_ms"].is_number());
        assert!(refused.json.get("outcome").is_none(), "{}", refused.text);
        assert_eq!(refused.headers["retry-after"], "1");
    };
    let hasty = r#"{"service":"echo","timeout_ms":200}"#;
    let lock = gateway.database.lock("idempotent_calls").await.unwrap();
    check(hasty, Duration::from_millis(900)).await;
    check(ECHO, Duration::from_millis(2_900)).await;
    lock.release().await.unwrap();
    gateway.database.set_unavailable(true).await.unwrap();
    check(hasty, Duration::from_millis(900)).await;
    // Without an idempotency key the call does not need the database.
    assert_eq!(gateway.call("toy-1", ECHO).await.status, 200);
    gateway.database.set_unavailable(false).await.unwrap();
    assert_eq!(gateway.edge.received.lock().len(), 1);
    let metrics = gateway.registry.gather();
    let metrics = prometheus::TextEncoder::new().encode_to_string(&metrics);
    assert!(metrics.unwrap().contains("{outcome=\"unavailable\"} 3"));
}

#[tokio::test]
async fn outcome_is_stored_after_its_caller_has_received_it() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let delivered = |count| gateway.edge.received.lock().len() == count;
    let silent = r#"{"service":"silent","timeout_ms":600}"#;
    let call = async |key: &str| {
        let started = Instant::now();
        let response = call_with(&gateway, key, silent).await;
        let took = started.elapsed();
        assert_eq!(response.json["outcome"], "timed_out", "{}", response.text);
        assert!(took < Duration::from_millis(1_200), "{took:?}");
        response
    };
    let second = async {
        eventually_true("the first call is delivered", || delivered(1)).await;
        let row = "SELECT FROM idempotent_calls FOR UPDATE";
        let mut lock = gateway.database.begin(row).await.unwrap();
        while !lock.is_waited_for().await.unwrap() {}
        (call("k-2").await, lock)
    };
    // The second outcome waits for the statement of the first, whose row is locked.
    let (_, (second, mut lock)) = tokio::join!(call("k-1"), second);
    assert!(lock.is_waited_for().await.unwrap());
    lock.release().await.unwrap();
    let repeat = || call_with(&gateway, "k-2", silent);
    let repeated = eventually(TEST_TIMEOUT, repeat, |response| response.status != 409);
    assert_eq!(repeated.await.text, second.text);
    assert!(delivered(2));
}
