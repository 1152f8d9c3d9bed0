//! What a device says while it works, and what stops its work.

use std::time::Instant;

use bytes::Bytes;
use reqwest::Method;
use serde_json::{Value, json};
use switchboard_bus::{Answer, Notice, NoticeKind};
use switchboard_protocol::access::Scope;

use crate::{
    mcp_client::{
        DEVICE, Exchange, LEGACY, MODERN, TOOLS, exchange, legacy, modern, modern_with, post,
    },
    stage::{LONG, Stage, until},
};

#[tokio::test]
async fn a_device_is_heard_while_it_works() {
    let stage = Stage::set().await;
    stage.connect_with("toy-1", TOOLS).await;
    let params = || json!({"name": "talk", "arguments": {}});
    let progress = |at: f64| json!({"progressToken": "p", "progress": at, "total": 2.0});

    let meta = json!({"progressToken": "p", "io.modelcontextprotocol/logLevel": "info"});
    let called = exchange(modern_with(&stage, DEVICE, "tools/call", params(), meta)).await;
    assert_eq!(called.headers["content-type"], "text/event-stream");
    let said: Vec<&Value> = called
        .notifications()
        .iter()
        .map(|message| &message["params"])
        .collect();
    let mut first = progress(1.0);
    first["message"] = "半".into();
    let log = json!({"level": "warning", "logger": "toy-1", "data": "hot"});
    assert_eq!(said, [&first, &log, &progress(2.0)]);
    assert_eq!(called.result()["isError"], false);

    // Nobody asked, nothing is sent.
    let called = exchange(modern(&stage, DEVICE, "tools/call", params())).await;
    assert!(called.notifications().is_empty());
    // The revision before hears logs unasked.
    let called = exchange(legacy(&stage, DEVICE, "tools/call", params())).await;
    assert_eq!(called.notifications().len(), 1);
    assert_eq!(called.notifications()[0]["method"], "notifications/message");
}

#[tokio::test]
async fn talk_does_not_keep_a_call_from_its_end() {
    let stage = Stage::set().await;
    let tools = r#"{"silent": {"timeout_ms": 500}}"#;
    stage.connect_with("toy-1", tools).await;
    let words = "x".repeat(16_000);
    for reads in [true, false] {
        let params = json!({"name": "silent", "arguments": {}});
        let meta = json!({"progressToken": 1});
        let call = modern_with(&stage, DEVICE, "tools/call", params, meta);
        let mut client = tokio::task::JoinSet::new();
        let begun = Instant::now();
        client.spawn(async move {
            if reads {
                return Some(exchange(call).await);
            }
            let _unread = call.send().await.unwrap();
            std::future::pending().await
        });
        let (id, reply) = stage.edge.next_unanswered().await;
        let bus = stage.edge.bus.clone();
        let said = |at: u64| {
            let data = json!({"progress": at, "message": words}).to_string().into();
            let kind = NoticeKind::Progress;
            Notice { kind, data }
        };
        let talk = async {
            for at in 1.. {
                bus.notify(&reply, said(at));
                if at % 50 == 0 {
                    tokio::task::yield_now().await;
                }
                if stage.edge.cancelled.lock().contains(&id) {
                    return;
                }
            }
        };
        tokio::time::timeout(LONG, talk).await.unwrap();
        let took = begun.elapsed();
        assert!(took < LONG / 2, "reads: {reads}, {took:?}");
        if reads {
            let ended = client.join_next().await.unwrap().unwrap().unwrap();
            let outcome = &ended.result()["structuredContent"]["outcome"];
            assert_eq!(outcome, "timed_out");
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_call() {
    let stage = Stage::set().await;
    stage.connect_with("toy-1", TOOLS).await;
    for request in [
        modern(
            &stage,
            DEVICE,
            "tools/call",
            json!({"name": "silent", "arguments": {}}),
        ),
        legacy(
            &stage,
            DEVICE,
            "tools/call",
            json!({"name": "silent", "arguments": {}}),
        ),
    ] {
        let calls = stage.edge.seen.lock().len();
        let mut waiting = tokio::task::JoinSet::new();
        waiting.spawn(request.send());
        until(|| stage.edge.seen.lock().len() > calls).await;
        waiting.abort_all();
        until(|| *stage.edge.seen.lock() == *stage.edge.cancelled.lock()).await;
    }
}

fn silent_call(tool: &str, id: i64) -> Value {
    let params = json!({"name": tool, "arguments": {}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

fn take_back(id: i64) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

#[tokio::test]
async fn a_client_with_a_handshake_takes_its_own_request_back() {
    let stage = Stage::set().await;
    stage.connect_with("toy-1", TOOLS).await;
    stage.connect_with("toy-2", TOOLS).await;
    let other_key = stage.add_key(&[Scope::Call]).await;
    let own = |path: &str, session: &str, message: &Value| {
        post(&stage, path, LEGACY, message).header("mcp-session-id", session)
    };
    let outcome = |call: &Exchange| call.result()["structuredContent"]["outcome"].clone();
    for (path, tool, elsewhere) in [
        (DEVICE, "silent", "/mcp"),
        ("/mcp", "toy-1__silent", "/mcp/devices/toy-2"),
    ] {
        let before = stage.edge.cancelled.lock().len();
        let mut kept = tokio::task::JoinSet::new();
        kept.spawn(exchange(own(path, "one", &silent_call(tool, 7))));
        let (kept_id, kept_reply) = stage.edge.next_unanswered().await;
        let mut taken_back = tokio::task::JoinSet::new();
        taken_back.spawn(exchange(own(path, "one", &silent_call(tool, 8))));
        let (taken_back_id, _) = stage.edge.next_unanswered().await;
        // Of another session, another request, another endpoint, another key, the newest revision.
        let stranger = stage.request_as(&other_key, Method::POST, path).build();
        let stranger = own(path, "one", &take_back(7)).headers(stranger.unwrap().headers().clone());
        for wrong in [
            own(path, "two", &take_back(7)),
            own(path, "one", &take_back(9)),
            own(elsewhere, "one", &take_back(7)),
            stranger,
            post(&stage, path, MODERN, &take_back(7)).header("mcp-session-id", "one"),
            // What comes last is heard, so all before it was.
            own(path, "one", &take_back(8)),
        ] {
            exchange(wrong).await;
        }
        let ended = taken_back.join_next().await.unwrap().unwrap();
        assert_eq!(outcome(&ended), "cancelled");
        until(|| stage.edge.cancelled.lock().len() > before).await;
        let answer = Answer::result(true, Bytes::from_static(b"{\"success\":true}"));
        stage.edge.bus.answer(&kept_reply, answer);
        let ended = kept.join_next().await.unwrap().unwrap();
        assert_eq!(outcome(&ended), "succeeded");
        let cancelled = stage.edge.cancelled.lock();
        assert_eq!(cancelled[before..], [taken_back_id]);
        assert_ne!(kept_id, taken_back_id);
    }
}

#[tokio::test]
async fn an_id_is_under_way_once_in_a_session() {
    let stage = Stage::set().await;
    stage.connect_with("toy-1", TOOLS).await;
    let seen = || stage.edge.seen.lock().len();
    let call = |session: &str, tool: &str| {
        let message = silent_call(tool, 7);
        post(&stage, DEVICE, LEGACY, &message).header("mcp-session-id", session)
    };
    let mut first = tokio::task::JoinSet::new();
    first.spawn(exchange(call("one", "silent")));
    let (_, reply) = stage.edge.next_unanswered().await;
    let again = exchange(call("one", "echo")).await;
    assert_eq!((again.error_code(), seen()), (-32600, 1));
    // Another session's, and that of a revision without sessions, is another request.
    assert_eq!(
        exchange(call("two", "echo")).await.result()["isError"],
        false
    );
    let params = || json!({"name": "echo", "arguments": {}});
    let modern = modern(&stage, DEVICE, "tools/call", params()).header("mcp-session-id", "one");
    assert_eq!(exchange(modern).await.result()["isError"], false);
    // The first is still the one that is under way, and can be taken back.
    let cancel = post(&stage, DEVICE, LEGACY, &take_back(7)).header("mcp-session-id", "one");
    assert_eq!(exchange(cancel).await.status, 202);
    let ended = first.join_next().await.unwrap().unwrap();
    let outcome = &ended.result()["structuredContent"]["outcome"];
    assert_eq!(outcome, "cancelled");
    stage
        .edge
        .bus
        .answer(&reply, Answer::result(true, Bytes::new()));
    // What has ended does not keep its id.
    assert_eq!(
        exchange(call("one", "echo")).await.result()["isError"],
        false
    );
}
