//! The quota of stored results of calls.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use switchboard_bus::QuotaLimits;
use switchboard_protocol::token::Scope;
use switchboard_runtime::quota::{Limits, Quota};
use switchboard_test_support::eventually::eventually;

use crate::test_gateway::{Response, TestGateway, send};

/// Within this, a changed quota is in force: an amount is cached for 10 s.
const IN_FORCE_TIMEOUT: Duration = Duration::from_secs(15);

const LIMIT: u64 = 2_000;

async fn limit(gateway: &TestGateway, bytes: u64) {
    let own = Limits([(Quota::StoredResultBytes, bytes)].into_iter().collect());
    let quotas = QuotaLimits {
        orgs: vec![(gateway.org, own)],
        ..QuotaLimits::default()
    };
    gateway.edge.bus.publish_quotas(&quotas).await.unwrap();
    let seen = async || {
        gateway
            .bus
            .quota_limit(gateway.org, Quota::StoredResultBytes)
    };
    assert_eq!(
        eventually(IN_FORCE_TIMEOUT, seen, |seen| *seen == Some(bytes)).await,
        Some(bytes)
    );
}

/// A call whose result has more than a thousand bytes.
fn large(mode: &str) -> Value {
    json!({"service": "echo", "mode": mode, "params": {"text": "x".repeat(1_000)}})
}

async fn keyed(gateway: &TestGateway, key: &str, body: &Value) -> Response {
    let request = gateway.call_request("toy-1", &body.to_string());
    send(request.header("idempotency-key", key)).await
}

fn assert_refused(answer: &Response) {
    assert_eq!(answer.status, 409, "{}", answer.text);
    let problem = &answer.json;
    assert_eq!(problem["type"], "/problems/quota_exceeded");
    assert_eq!(
        (&problem["quota"], &problem["limit"], &problem["delivered"]),
        (&json!("stored_result_bytes"), &json!(LIMIT), &json!("no"))
    );
    assert!(problem["used"].as_u64() >= Some(LIMIT), "{problem}");
}

#[tokio::test]
async fn call_waits_for_the_measurement_of_a_quota_within_its_timeout() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    limit(&gateway, LIMIT).await;
    let call = || json!({"service": "echo", "timeout_ms": 200});
    let lock = gateway.database.lock("calls").await.unwrap();
    let started = Instant::now();
    let refused = keyed(&gateway, "hasty", &call()).await;
    // The statement would take 10 s.
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert_eq!(refused.json["delivered"], "no");
    lock.release().await.unwrap();
    let answer = async || keyed(&gateway, "hasty", &call()).await.status;
    assert_eq!(
        eventually(IN_FORCE_TIMEOUT, answer, |status| *status == 200).await,
        200
    );
}

#[tokio::test]
async fn call_whose_result_exceeds_the_quota_is_not_made() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    limit(&gateway, LIMIT).await;
    let accepted = gateway.call("toy-1", &large("async").to_string()).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text);
    gateway.wait_for_end(&accepted.json["call_id"]).await;
    let first = keyed(&gateway, "first", &large("sync")).await;
    assert_eq!(first.status, 200, "{}", first.text);
    let made = gateway.edge.received.lock().len();

    for mode in ["async", "queued"] {
        let answer = gateway.call("toy-1", &large(mode).to_string()).await;
        assert_refused(&answer);
        assert_refused(&keyed(&gateway, "new", &large(mode)).await);
    }
    assert_refused(&keyed(&gateway, "new", &large("sync")).await);
    assert_eq!(gateway.edge.received.lock().len(), made);
    // A repetition stores nothing, and a call without a key neither.
    let again = keyed(&gateway, "first", &large("sync")).await;
    assert_eq!((again.status, &again.text), (200, &first.text));
    let answer = gateway.call("toy-1", &large("sync").to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    // The amount that the database has is the same.
    let quotas = [Quota::StoredResultBytes];
    let measured = gateway.store.measure_quotas(gateway.org, &quotas).await;
    let stored = measured.unwrap()[&Quota::StoredResultBytes];
    assert!((LIMIT..LIMIT + 500).contains(&stored), "{stored}");

    limit(&gateway, 3 * LIMIT).await;
    let call = async || keyed(&gateway, "new", &large("sync")).await.status;
    assert_eq!(
        eventually(IN_FORCE_TIMEOUT, call, |status| *status == 200).await,
        200
    );
}

#[tokio::test]
async fn results_of_another_organisation_do_not_count() {
    let gateway = TestGateway::start().await;
    gateway.connect("toy-1").await;
    let foreign = gateway.foreign_key().await;
    let own = gateway.add_key(&[Scope::Call]).await;
    limit(&gateway, 1).await;
    let call = async |key| {
        let path = "/v1/devices/toy-1/calls";
        let request = gateway.request_as(key, reqwest::Method::POST, path);
        send(request.json(&large("async"))).await
    };
    let accepted = call(&own).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text);
    gateway.wait_for_end(&accepted.json["call_id"]).await;
    assert_eq!(call(&own).await.status, 409);
    assert_eq!(call(&foreign).await.status, 202);
}
