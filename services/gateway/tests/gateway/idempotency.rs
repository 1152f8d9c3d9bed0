//! The same request twice is one execution, and never less than the truth.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use switchboard_protocol::access::Scope;

use crate::stage::{LONG, Response, Stage, send, until};

const ECHO: &str = r#"{"service":"echo","params":{"a":1}}"#;

async fn call_with(stage: &Stage, key: &str, body: &str) -> Response {
    send(stage.calling("toy-1", body).header("idempotency-key", key)).await
}

#[tokio::test]
async fn a_repeated_request_gets_the_first_answer() {
    let stage = Stage::set().await;
    stage.connect("toy-1").await;
    let first = call_with(&stage, "k-1", ECHO).await;
    assert_eq!(first.status, 200, "{}", first.text);
    assert!(!first.headers.contains_key("idempotency-replayed"));
    let second = call_with(&stage, "k-1", ECHO).await;
    assert_eq!((second.status, &second.text), (200, &first.text));
    assert_eq!(second.headers["idempotency-replayed"], "true");
    assert_eq!(stage.edge.seen.lock().len(), 1);
    assert_ne!(
        call_with(&stage, "k-2", ECHO).await.json["call_id"],
        first.json["call_id"]
    );
    assert_eq!(stage.edge.seen.lock().len(), 2);
}

#[tokio::test]
async fn what_may_have_happened_is_not_tried_again() {
    let stage = Stage::set().await;
    stage.connect("toy-1").await;
    let silent = r#"{"service":"silent","timeout_ms":200}"#;
    let first = call_with(&stage, "k", silent).await;
    assert_eq!(first.status, 504);
    let second = call_with(&stage, "k", silent).await;
    assert_eq!((second.status, &second.text), (504, &first.text));
    assert_eq!(stage.edge.seen.lock().len(), 1);
}

#[tokio::test]
async fn what_was_not_delivered_may_be_tried_again() {
    let stage = Stage::set().await;
    stage.remember("toy-1").await;
    assert_eq!(
        call_with(&stage, "k", ECHO).await.json["outcome"],
        "offline"
    );
    stage.connect("toy-1").await;
    let answer = call_with(&stage, "k", ECHO).await;
    assert_eq!(answer.json["outcome"], "succeeded", "{}", answer.text);
    assert!(!answer.headers.contains_key("idempotency-replayed"));
}

#[tokio::test]
async fn a_key_stands_for_one_request_of_one_caller() {
    let stage = Stage::set().await;
    stage.connect("toy-1").await;
    let first = call_with(&stage, "k", ECHO).await;
    let other = call_with(&stage, "k", r#"{"service":"echo","params":{"a":2}}"#).await;
    assert_eq!(
        (other.status, &other.json["type"]),
        (422, &json!("/problems/idempotency_key_reused"))
    );
    let malformed = call_with(&stage, "two words", ECHO).await;
    assert_eq!(malformed.json["type"], "/problems/invalid_idempotency_key");

    let colleague = stage.add_key(&[Scope::Call]).await;
    let request = stage.request_as(&colleague, Method::POST, "/v1/devices/toy-1/calls");
    let request = request
        .header("content-type", "application/json")
        .header("idempotency-key", "k");
    let theirs = send(request.body(ECHO)).await;
    assert_eq!(theirs.status, 200);
    assert_ne!(theirs.json["call_id"], first.json["call_id"]);
}

#[tokio::test]
async fn a_call_under_way_is_neither_repeated_nor_forgotten() {
    let stage = Stage::set().await;
    stage.connect("toy-1").await;
    let silent = r#"{"service":"silent","timeout_ms":700}"#;
    let first = call_with(&stage, "k", silent);
    let during = async {
        until(|| !stage.edge.seen.lock().is_empty()).await;
        call_with(&stage, "k", silent).await
    };
    let (first, during) = tokio::join!(first, during);
    assert_eq!(
        (during.status, &during.json["type"]),
        (409, &json!("/problems/call_in_progress"))
    );
    assert_eq!(during.headers["retry-after"], "1");
    assert_eq!(during.json["call_id"], first.json["call_id"]);
    assert_eq!(stage.edge.seen.lock().len(), 1);
}

#[tokio::test]
async fn a_caller_that_left_is_told_lost_and_nothing_is_executed_again() {
    let stage = Stage::set().await;
    stage.connect("toy-1").await;
    let silent = r#"{"service":"silent","timeout_ms":300}"#;
    let left = stage
        .calling("toy-1", silent)
        .header("idempotency-key", "k");
    tokio::select! {
        _ = left.send() => panic!("nobody answers yet"),
        () = until(|| !stage.edge.seen.lock().is_empty()) => {}
    }
    let settled = async {
        loop {
            let answer = call_with(&stage, "k", silent).await;
            if answer.status != 409 {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let answer = tokio::time::timeout(LONG, settled).await.unwrap();
    assert_eq!(
        (answer.status, &answer.json["outcome"]),
        (502, &json!("lost")),
        "{}",
        answer.text
    );
    assert_eq!(answer.json["delivered"], "unknown");
    assert_eq!(stage.edge.seen.lock().len(), 1);
}

#[tokio::test]
async fn without_the_record_nothing_is_sent_under_a_key() {
    let stage = Stage::set().await;
    stage.connect("toy-1").await;
    // The caller's own key is judged while the record is there, and remembered.
    assert_eq!(stage.get("/v1/devices").await.status, 200);
    let check = async |body: &str, within: Duration| {
        let started = Instant::now();
        let refused = call_with(&stage, "k", body).await;
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
    let lock = stage.database.lock("idempotent_calls").await.unwrap();
    check(hasty, Duration::from_millis(900)).await;
    check(ECHO, Duration::from_millis(2_900)).await;
    lock.release().await.unwrap();
    stage.database.set_away(true).await.unwrap();
    check(hasty, Duration::from_millis(900)).await;
    // Without a key the call needs no record.
    assert_eq!(stage.call("toy-1", ECHO).await.status, 200);
    stage.database.set_away(false).await.unwrap();
    assert_eq!(stage.edge.seen.lock().len(), 1);
    let metrics = stage.registry.gather();
    let metrics = prometheus::TextEncoder::new().encode_to_string(&metrics);
    assert!(metrics.unwrap().contains("{outcome=\"unavailable\"} 3"));
}

#[tokio::test]
async fn an_outcome_that_cannot_be_stored_is_answered_and_never_made_again() {
    let stage = Stage::set().await;
    stage.connect("toy-1").await;
    let silent = r#"{"service":"silent","timeout_ms":300}"#;
    let first = async {
        let started = Instant::now();
        (call_with(&stage, "k", silent).await, started.elapsed())
    };
    let stalled = async {
        until(|| !stage.edge.seen.lock().is_empty()).await;
        stage.database.lock("idempotent_calls").await.unwrap()
    };
    let ((first, took), lock) = tokio::join!(first, stalled);
    assert_eq!(first.json["outcome"], "timed_out", "{}", first.text);
    assert!(took < Duration::from_millis(900), "{took:?}");
    lock.release().await.unwrap();
    let again = call_with(&stage, "k", silent).await;
    let known = [
        &json!("/problems/call_in_progress"),
        &json!("/problems/timed_out"),
    ];
    assert!(known.contains(&&again.json["type"]), "{}", again.text);
    assert_eq!(stage.edge.seen.lock().len(), 1);
}
