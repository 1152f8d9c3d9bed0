//! Calls whose response is a stream of events.

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use switchboard_runtime::budget::{Kind, Owner};
use switchboard_test_support::eventually::eventually_true;

use crate::test_gateway::{SERVICES, TestGateway};

const TOOLS: &str = r#"{"talk":{},"silent":{},"echo":{},"fail":{}}"#;

/// The events of a stream, by name.
async fn events(request: RequestBuilder) -> Vec<(String, Value)> {
    let response = request
        .header("accept", "text/event-stream")
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = response.text().await.unwrap();
    let blocks = text.split("\n\n").filter(|block| !block.is_empty());
    let parsed = blocks.map(|block| {
        let mut lines = block.lines();
        let name = lines.next().unwrap().strip_prefix("event: ").unwrap();
        let data = lines.next().unwrap().strip_prefix("data: ").unwrap();
        assert_eq!(lines.next(), None, "{block}");
        (name.to_owned(), serde_json::from_str(data).unwrap())
    });
    parsed.collect()
}

#[tokio::test]
async fn progress_and_log_messages_precede_the_result() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    let seen = events(gateway.call_request("toy-1", r#"{"service":"talk"}"#)).await;
    let (last, before) = seen.split_last().unwrap();
    let expected = [
        (
            "progress",
            json!({"progress": 1.0, "total": 2.0, "message": "半"}),
        ),
        ("log", json!({"level": "debug", "data": "quiet"})),
        ("log", json!({"level": "warning", "data": "hot"})),
        ("progress", json!({"progress": 1.0})),
        ("progress", json!({"progress": 2.0, "total": 2.0})),
    ];
    let expected = expected.map(|(name, data)| (name.to_owned(), data));
    assert_eq!(before, expected);
    assert_eq!(last.0, "result");
    assert_eq!(last.1["outcome"], "succeeded");
    assert_eq!(last.1["result"], json!({"success": true}));
}

#[tokio::test]
async fn problem_is_the_result_of_its_stream() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    let seen = events(gateway.call_request("toy-1", r#"{"service":"invalid"}"#)).await;
    let [(name, problem)] = &seen[..] else {
        panic!("{seen:?}");
    };
    assert_eq!(name, "result");
    assert_eq!(
        (&problem["status"], &problem["outcome"]),
        (&json!(422), &json!("invalid"))
    );
    let seen = events(gateway.call_request("nothing", r#"{"service":"echo"}"#)).await;
    assert_eq!(seen[0].1["outcome"], "unknown_device");
}

#[tokio::test]
async fn closed_stream_cancels_its_call() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    let request = gateway.call_request("toy-1", r#"{"service":"silent"}"#);
    let request = request.header("accept", "text/event-stream");
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    let (call, _reply) = gateway.edge.next_unanswered().await;
    assert!(gateway.edge.cancelled.lock().is_empty());
    drop(response);
    eventually_true("the call is cancelled", || {
        gateway.edge.cancelled.lock().contains(&call)
    })
    .await;
}

#[tokio::test]
async fn repeated_call_has_the_stored_result_and_no_progress() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    let request = || {
        let request = gateway.call_request("toy-1", r#"{"service":"talk"}"#);
        request.header("idempotency-key", "once")
    };
    let first = events(request()).await;
    let (repeated, read) = (events(request()).await, request().send().await.unwrap());
    assert_eq!(repeated, [first.last().unwrap().clone()]);
    assert_eq!(read.headers()["idempotency-replayed"], "true");
    assert_eq!(read.json::<Value>().await.unwrap(), repeated[0].1);
    assert_eq!(gateway.edge.received.lock().len(), 1);
}

#[tokio::test]
async fn other_modes_have_no_stream() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", SERVICES).await;
    let send = async |accept: &str, mode: &str| {
        let body = json!({"service": "echo", "mode": mode}).to_string();
        let request = gateway
            .call_request("toy-1", &body)
            .header("accept", accept);
        request.send().await.unwrap().status().as_u16()
    };
    for mode in ["async", "queued"] {
        assert_eq!(send("text/event-stream", mode).await, 406);
        assert_eq!(send("text/event-stream, application/json", mode).await, 202);
    }
}

#[tokio::test]
async fn stream_without_a_slot_is_refused_before_the_call() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    let slots = gateway
        .budgets
        .slots("call_streams", 1, Kind::quarter_of(1));
    let owner = Owner::Org(gateway.org.uuid());
    let _taken = slots.try_acquire(owner, slots.share()).unwrap();
    let request = gateway.call_request("toy-1", r#"{"service":"echo"}"#);
    let refused = request.header("accept", "text/event-stream").send().await;
    let refused = refused.unwrap();
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    let problem: Value = refused.json().await.unwrap();
    assert_eq!(problem["budget"], "call_streams");
    assert_eq!(problem["delivered"], "no");
    assert!(gateway.edge.received.lock().is_empty());
    let other = gateway.call("toy-1", r#"{"service":"echo"}"#).await;
    assert_eq!(other.status, 200, "without a stream");
}
