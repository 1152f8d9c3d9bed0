//! Notifications of a device during a call, and the cancellation of calls.

use std::time::Instant;

use bytes::Bytes;
use reqwest::Method;
use serde_json::{Value, json};
use switchboard_bus::{Answer, Notification, NotificationKind};
use switchboard_protocol::token::Scope;
use switchboard_test_support::eventually::eventually_true;

use crate::{
    mcp_client::{
        DEVICE, Exchange, LEGACY, STATELESS, TOOLS, exchange, legacy, modern, modern_with, post,
    },
    test_gateway::{TEST_TIMEOUT, TestGateway},
};

#[tokio::test]
async fn notifications_are_forwarded_during_a_call() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    let params = || json!({"name": "talk", "arguments": {}});
    let progress = |at: f64| json!({"progressToken": "p", "progress": at, "total": 2.0});

    let meta = json!({"progressToken": "p", "io.modelcontextprotocol/logLevel": "info"});
    let called = exchange(modern_with(&gateway, DEVICE, "tools/call", params(), meta)).await;
    assert_eq!(called.headers["content-type"], "text/event-stream");
    let notifications: Vec<&Value> = called
        .notifications()
        .iter()
        .map(|message| &message["params"])
        .collect();
    let mut first = progress(1.0);
    first["message"] = "半".into();
    let log = json!({"level": "warning", "logger": "toy-1", "data": "hot"});
    assert_eq!(notifications, [&first, &log, &progress(2.0)]);
    assert_eq!(called.result()["isError"], false);

    // Nothing is sent unless it is requested.
    let called = exchange(modern(&gateway, DEVICE, "tools/call", params())).await;
    assert!(called.notifications().is_empty());
    // Earlier revisions receive log messages by default.
    let called = exchange(legacy(&gateway, DEVICE, "tools/call", params())).await;
    assert_eq!(called.notifications().len(), 1);
    assert_eq!(called.notifications()[0]["method"], "notifications/message");
}

#[tokio::test]
async fn many_notifications_do_not_delay_a_call() {
    let gateway = TestGateway::start().await;
    let tools = r#"{"silent": {"timeout_ms": 500}}"#;
    gateway.connect_with("toy-1", tools).await;
    let message = "x".repeat(16_000);
    for reads in [true, false] {
        let params = json!({"name": "silent", "arguments": {}});
        let meta = json!({"progressToken": 1});
        let call = modern_with(&gateway, DEVICE, "tools/call", params, meta);
        let mut client = tokio::task::JoinSet::new();
        let started = Instant::now();
        client.spawn(async move {
            if reads {
                return Some(exchange(call).await);
            }
            let _unread = call.send().await.unwrap();
            std::future::pending().await
        });
        let (id, reply) = gateway.edge.next_unanswered().await;
        let bus = gateway.edge.bus.clone();
        let notification = |at: u64| {
            let data = json!({"progress": at, "message": message})
                .to_string()
                .into();
            let kind = NotificationKind::Progress;
            Notification { kind, data }
        };
        let flood = async {
            for at in 1.. {
                bus.notify(&reply, notification(at));
                if at % 50 == 0 {
                    tokio::task::yield_now().await;
                }
                if gateway.edge.cancelled.lock().contains(&id) {
                    return;
                }
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, flood).await.unwrap();
        let took = started.elapsed();
        assert!(took < TEST_TIMEOUT / 2, "reads: {reads}, {took:?}");
        if reads {
            let ended = client.join_next().await.unwrap().unwrap().unwrap();
            let outcome = &ended.result()["structuredContent"]["outcome"];
            assert_eq!(outcome, "timed_out");
        }
    }
}

#[tokio::test]
async fn disconnected_client_cancels_its_call() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    for request in [
        modern(
            &gateway,
            DEVICE,
            "tools/call",
            json!({"name": "silent", "arguments": {}}),
        ),
        legacy(
            &gateway,
            DEVICE,
            "tools/call",
            json!({"name": "silent", "arguments": {}}),
        ),
    ] {
        let calls = gateway.edge.received.lock().len();
        let mut waiting = tokio::task::JoinSet::new();
        waiting.spawn(request.send());
        eventually_true("the call is delivered", || {
            gateway.edge.received.lock().len() > calls
        })
        .await;
        waiting.abort_all();
        eventually_true("the call is cancelled", || {
            *gateway.edge.received.lock() == *gateway.edge.cancelled.lock()
        })
        .await;
    }
}

fn silent_call(tool: &str, id: i64) -> Value {
    let params = json!({"name": tool, "arguments": {}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

fn cancel_message(id: i64) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

#[tokio::test]
async fn legacy_client_cancels_only_its_own_request() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    gateway.connect_with("toy-2", TOOLS).await;
    let other_key = gateway.add_key(&[Scope::Call]).await;
    let own = |path: &str, session: &str, message: &Value| {
        post(&gateway, path, LEGACY, message).header("mcp-session-id", session)
    };
    let outcome = |call: &Exchange| call.result()["structuredContent"]["outcome"].clone();
    for (path, tool, elsewhere) in [
        (DEVICE, "silent", "/mcp"),
        ("/mcp", "toy-1__silent", "/mcp/devices/toy-2"),
    ] {
        let before = gateway.edge.cancelled.lock().len();
        let mut first = tokio::task::JoinSet::new();
        first.spawn(exchange(own(path, "one", &silent_call(tool, 7))));
        let (first_id, first_reply) = gateway.edge.next_unanswered().await;
        let mut second = tokio::task::JoinSet::new();
        second.spawn(exchange(own(path, "one", &silent_call(tool, 8))));
        let (cancelled_id, _) = gateway.edge.next_unanswered().await;
        // Another session, request, endpoint, key and revision.
        let stranger = gateway.request_as(&other_key, Method::POST, path).build();
        let stranger =
            own(path, "one", &cancel_message(7)).headers(stranger.unwrap().headers().clone());
        for wrong in [
            own(path, "two", &cancel_message(7)),
            own(path, "one", &cancel_message(9)),
            own(elsewhere, "one", &cancel_message(7)),
            stranger,
            post(&gateway, path, STATELESS, &cancel_message(7)).header("mcp-session-id", "one"),
            // Requests are handled in order, so all others were handled before this one.
            own(path, "one", &cancel_message(8)),
        ] {
            exchange(wrong).await;
        }
        let ended = second.join_next().await.unwrap().unwrap();
        assert_eq!(outcome(&ended), "cancelled");
        eventually_true("the call is cancelled", || {
            gateway.edge.cancelled.lock().len() > before
        })
        .await;
        let answer = Answer::result(true, Bytes::from_static(b"{\"success\":true}"));
        gateway.edge.bus.answer(&first_reply, answer);
        let ended = first.join_next().await.unwrap().unwrap();
        assert_eq!(outcome(&ended), "succeeded");
        let cancelled = gateway.edge.cancelled.lock();
        assert_eq!(cancelled[before..], [cancelled_id]);
        assert_ne!(first_id, cancelled_id);
    }
}

#[tokio::test]
async fn request_id_in_flight_is_refused() {
    let gateway = TestGateway::start().await;
    gateway.connect_with("toy-1", TOOLS).await;
    let seen = || gateway.edge.received.lock().len();
    let call = |session: &str, tool: &str| {
        let message = silent_call(tool, 7);
        post(&gateway, DEVICE, LEGACY, &message).header("mcp-session-id", session)
    };
    let mut first = tokio::task::JoinSet::new();
    first.spawn(exchange(call("one", "silent")));
    let (_, reply) = gateway.edge.next_unanswered().await;
    let again = exchange(call("one", "echo")).await;
    assert_eq!((again.error_code(), seen()), (-32600, 1));
    // Other sessions, and the stateless revision, may use the same ID.
    assert_eq!(
        exchange(call("two", "echo")).await.result()["isError"],
        false
    );
    let params = || json!({"name": "echo", "arguments": {}});
    let modern = modern(&gateway, DEVICE, "tools/call", params()).header("mcp-session-id", "one");
    assert_eq!(exchange(modern).await.result()["isError"], false);
    // The first request is still in flight and can be cancelled.
    let cancel = post(&gateway, DEVICE, LEGACY, &cancel_message(7)).header("mcp-session-id", "one");
    assert_eq!(exchange(cancel).await.status, 202);
    let ended = first.join_next().await.unwrap().unwrap();
    let outcome = &ended.result()["structuredContent"]["outcome"];
    assert_eq!(outcome, "cancelled");
    gateway
        .edge
        .bus
        .answer(&reply, Answer::result(true, Bytes::new()));
    // The ID is free again.
    assert_eq!(
        exchange(call("one", "echo")).await.result()["isError"],
        false
    );
}
