//! Devices as MCP servers, in both revisions.

use std::time::Instant;

use bytes::Bytes;
use reqwest::Method;
use serde_json::{Value, json};
use switchboard_bus::{Answer, Notice, NoticeKind};
use switchboard_protocol::{access::Scope, mcp::flat};

use crate::{
    mcp_client::{Exchange, LEGACY, MODERN, Stream, exchange, legacy, modern, modern_with, post},
    stage::{LONG, Stage, until},
};

const DEVICE: &str = "/mcp/devices/toy-1";
const TOOLS: &str = r#"{
    "echo": {"description": "回声", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
    "现在几点": {"description": "时间", "output": {"type": "string"}},
    "fail": {}, "invalid": {}, "talk": {}, "picture": {}, "silent": {}, "lost": {}
}"#;

fn names(result: &Value) -> Vec<&str> {
    let tools = result["tools"].as_array().unwrap();
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn the_newest_revision_needs_no_handshake() {
    let stage = Stage::set().await;
    stage.connect_with("toy-1", TOOLS).await;
    let found = exchange(modern(&stage, DEVICE, "server/discover", json!({}))).await;
    let versions = found.result()["supportedVersions"].to_string();
    assert!(
        versions.contains("2026-07-28") && versions.contains("2025-11-25"),
        "{versions}"
    );
    assert_eq!(found.result()["capabilities"]["tools"]["listChanged"], true);

    let listed = exchange(modern(&stage, DEVICE, "tools/list", json!({}))).await;
    let result = listed.result();
    assert_eq!(
        names(result),
        [
            "_ea99d70f",
            "echo",
            "fail",
            "invalid",
            "lost",
            "picture",
            "silent",
            "talk"
        ]
    );
    assert_eq!(
        (&result["cacheScope"], &result["resultType"]),
        (&json!("private"), &json!("complete"))
    );
    assert!(result["ttlMs"].is_u64());
    assert_eq!(result["tools"][0]["title"], "现在几点");
    assert_eq!(
        result["tools"][0]["outputSchema"]["properties"]["data"]["type"],
        "string"
    );
    assert_eq!(
        result["tools"][1]["inputSchema"]["properties"]["a"]["type"],
        "string"
    );

    let params = json!({"name": "echo", "arguments": {"a": "你好"}});
    let called = exchange(modern(&stage, DEVICE, "tools/call", params)).await;
    let result = called.result();
    assert_eq!(called.headers["content-type"], "application/json");
    assert_eq!(
        result["content"],
        json!([{"type": "text", "text": "{\"a\":\"你好\"}"}])
    );
    assert_eq!(result["isError"], false);
    let structured = &result["structuredContent"];
    assert_eq!(
        (&structured["outcome"], &structured["delivered"]),
        (&json!("succeeded"), &json!("yes"))
    );
    assert_eq!(structured["data"], json!({"a": "你好"}));
}

#[tokio::test]
async fn the_revision_before_shakes_hands_and_keeps_no_session() {
    let stage = Stage::set().await;
    stage.connect_with("toy-1", TOOLS).await;
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let begun = exchange(legacy(&stage, DEVICE, "initialize", hello)).await;
    assert_eq!(begun.result()["protocolVersion"], "2025-11-25");
    assert_eq!(begun.result()["serverInfo"]["name"], "switchboard");
    // A name to take requests back under; nothing is kept for it, and nobody has to send it.
    assert!(begun.headers.contains_key("mcp-session-id"));
    for method in ["ping", "tools/list"] {
        assert_eq!(
            exchange(legacy(&stage, DEVICE, method, json!({})))
                .await
                .status,
            200
        );
    }
    let params = json!({"name": "_ea99d70f", "arguments": {}});
    let called = exchange(legacy(&stage, DEVICE, "tools/call", params)).await;
    assert_eq!(called.result()["isError"], false);
    assert!(called.result().get("resultType").is_none());
}

#[tokio::test]
async fn every_end_of_a_call_is_told() {
    let stage = Stage::set().await;
    stage.connect_with("toy-1", TOOLS).await;
    stage.remember("asleep").await;
    let check = async |device: &str, tool: &str, outcome: &str, delivered: &str| {
        let path = format!("/mcp/devices/{device}");
        let params = json!({"name": tool, "arguments": {}});
        let called = exchange(modern(&stage, &path, "tools/call", params)).await;
        let result = called.result();
        assert_eq!(result["isError"], outcome != "succeeded", "{result}");
        assert_eq!(result["structuredContent"]["outcome"], outcome, "{result}");
        assert_eq!(
            result["structuredContent"]["delivered"], delivered,
            "{result}"
        );
        assert!(!result["content"][0]["text"].as_str().unwrap().is_empty());
    };
    check("toy-1", "echo", "succeeded", "yes").await;
    check("toy-1", "fail", "failed", "yes").await;
    check("toy-1", "invalid", "invalid", "no").await;
    check("toy-1", "lost", "lost", "unknown").await;
    check("asleep", "echo", "offline", "no").await;

    let refuse = async |path: &str, tool: &str| {
        let params = json!({"name": tool, "arguments": {}});
        let called = exchange(modern(&stage, path, "tools/call", params)).await;
        assert_eq!(called.error_code(), -32602, "{called:?}");
    };
    refuse(DEVICE, "no_such_tool").await;
    refuse("/mcp/devices/nobody", "echo").await;
    let listed = exchange(modern(
        &stage,
        "/mcp/devices/nobody",
        "tools/list",
        json!({}),
    ))
    .await;
    assert_eq!(listed.error_code(), -32602);
}

#[tokio::test]
async fn a_call_is_answered_the_same_whichever_way_it_is_read() {
    let stage = Stage::set().await;
    stage.connect_with("toy-1", TOOLS).await;
    for (tool, arguments) in [
        ("echo", json!({"a": "你好 \"\\\u{1F600}"})),
        ("echo", json!({})),
        ("fail", json!({})),
        ("invalid", json!({})),
        ("lost", json!({})),
        ("picture", json!({})),
        ("nothing", json!({})),
    ] {
        let params = json!({"name": tool, "arguments": arguments});
        let request = modern(&stage, DEVICE, "tools/call", params.clone());
        let plain = exchange(request).await;
        // Who listens for logs may be sent a stream; this device says nothing.
        let listening = json!({"io.modelcontextprotocol/logLevel": "emergency"});
        let request = modern_with(&stage, DEVICE, "tools/call", params, listening);
        let other = exchange(request).await;
        let head =
            |exchange: &Exchange| (exchange.status, exchange.headers["content-type"].clone());
        assert_eq!(head(&plain), head(&other), "{tool}");
        assert_eq!(repeatable(plain.last()), repeatable(other.last()), "{tool}");
    }
}

/// An answer without what no two calls have in common.
fn repeatable(answer: &Value) -> Value {
    let mut answer = answer.clone();
    let structured = answer["result"]["structuredContent"].as_object_mut();
    if let Some(structured) = structured {
        structured.remove("call_id").unwrap();
        structured.remove("elapsed_ms").unwrap();
    }
    answer
}

#[tokio::test]
async fn a_sleeping_device_shows_what_it_registered() {
    let stage = Stage::set().await;
    stage.remember("toy-1").await;
    let listed = exchange(modern(&stage, DEVICE, "tools/list", json!({}))).await;
    assert_eq!(names(listed.result()), ["echo"]);
    assert!(listed.result()["tools"][0]["description"] == "回声");
}

#[tokio::test]
async fn content_blocks_pass_through() {
    let stage = Stage::set().await;
    stage.connect_with("toy-1", TOOLS).await;
    let called = exchange(modern(
        &stage,
        DEVICE,
        "tools/call",
        json!({"name": "picture", "arguments": {}}),
    ))
    .await;
    assert_eq!(
        called.result()["content"],
        json!([{"type": "text", "text": "看"}, {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}])
    );
}

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

/// A device that never stops talking, and a client that listens or does not: the call ends in its time.
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
async fn listeners_hear_that_a_device_registered_again() {
    let stage = Stage::set().await;
    let epoch = stage.connect_with("toy-1", TOOLS).await;
    stage.connect("toy-2").await;
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let mut modern = Stream::open(modern(&stage, DEVICE, "subscriptions/listen", wanted)).await;
    let begun = modern.next().await;
    assert_eq!(begun["method"], "notifications/subscriptions/acknowledged");
    let get = |path: &str| {
        stage
            .request(Method::GET, path)
            .header("accept", "text/event-stream")
            .header("mcp-protocol-version", "2025-11-25")
    };
    let mut legacy = Stream::open(get(DEVICE)).await;
    let mut all = Stream::open(get("/mcp")).await;

    // What stays the same is not told, nor what is another device's: the first word is about the change.
    stage.register("toy-1", epoch, TOOLS).await;
    stage.connect("toy-3").await;
    assert_eq!(
        all.next().await["method"],
        "notifications/tools/list_changed"
    );
    stage.register("toy-1", epoch, r#"{"new":{}}"#).await;
    let told = modern.next().await;
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(
        told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        7
    );
    assert_eq!(
        legacy.next().await["method"],
        "notifications/tools/list_changed"
    );
    assert_eq!(
        all.next().await["method"],
        "notifications/tools/list_changed"
    );
}

#[tokio::test]
async fn all_devices_are_one_server() {
    let stage = Stage::set().await;
    stage.connect("toy-1").await;
    stage.connect("a.device:with-a-long-name").await;
    stage.remember("asleep").await;
    let listed = exchange(modern(&stage, "/mcp", "tools/list", json!({}))).await;
    let tools = names(listed.result());
    assert_eq!(tools.len(), 3);
    assert!(
        tools[0].starts_with("a_devic-") && tools[0].ends_with("__echo"),
        "{tools:?}"
    );
    assert_eq!(tools[1..], ["asleep__echo", "toy-1__echo"]);
    assert_eq!(
        listed.result()["tools"][0]["title"],
        "a.device:with-a-long-name: echo"
    );
    for (tool, outcome) in [
        (tools[0], "succeeded"),
        (tools[1], "offline"),
        (tools[2], "succeeded"),
    ] {
        let params = json!({"name": tool, "arguments": {}});
        let called = exchange(modern(&stage, "/mcp", "tools/call", params)).await;
        assert_eq!(
            called.result()["structuredContent"]["outcome"],
            outcome,
            "{tool}"
        );
    }
    for tool in ["echo", "toy-1__other", "nobody__echo"] {
        let params = json!({"name": tool, "arguments": {}});
        let called = exchange(modern(&stage, "/mcp", "tools/call", params)).await;
        assert_eq!(called.error_code(), -32602, "{tool}");
    }
}

#[tokio::test]
async fn a_device_may_be_called_like_the_made_name_of_another() {
    let stage = Stage::set().await;
    for id in ["a.b", "a_b-2e7336dc", "toy-12345678"] {
        stage.connect(id).await;
    }
    let listed = exchange(modern(&stage, "/mcp", "tools/list", json!({}))).await;
    let tools = listed.result()["tools"].as_array().unwrap();
    assert!(
        tools
            .iter()
            .any(|tool| tool["name"] == "a_b-2e7336dc__echo" && tool["title"] == "a.b: echo"),
        "{tools:?}"
    );
    let mut seen = Vec::new();
    // Twice: the second time the gateway knows whose name it is.
    for tool in tools.iter().chain(tools) {
        let params = json!({"name": tool["name"], "arguments": {}});
        let called = exchange(modern(&stage, "/mcp", "tools/call", params)).await;
        assert_eq!(called.result()["isError"], false, "{tool}");
        seen.push(tool["name"].as_str().unwrap());
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 3, "{seen:?}");
    let was_called = stage.edge.called.lock().clone();
    let titled: Vec<&str> = tools
        .iter()
        .map(|tool| tool["title"].as_str().unwrap().trim_end_matches(": echo"))
        .collect();
    assert_eq!(was_called, [titled.clone(), titled].concat());
}

#[tokio::test]
async fn without_the_record_no_tool_is_said_not_to_be() {
    let stage = Stage::set().await;
    stage.connect("live.one").await;
    stage.remember("asleep.one").await;
    let listed = exchange(modern(&stage, "/mcp", "tools/list", json!({}))).await;
    let names: Vec<String> = names(listed.result())
        .into_iter()
        .map(str::to_owned)
        .collect();
    assert!(
        listed
            .result()
            .get("_meta")
            .is_none_or(|meta| meta.get("switchboard/incomplete").is_none())
    );
    stage.database.set_away(true).await.unwrap();
    let listed = exchange(modern(&stage, "/mcp", "tools/list", json!({}))).await;
    let result = listed.result();
    assert_eq!(result["tools"].as_array().unwrap().len(), 1, "{result}");
    assert_eq!(result["_meta"]["switchboard/incomplete"], true);
    assert_eq!(result["ttlMs"], 0);
    let call = async |tool: &str| {
        let params = json!({"name": tool, "arguments": {}});
        exchange(modern(&stage, "/mcp", "tools/call", params)).await
    };
    assert_eq!(
        call(&names[1]).await.result()["structuredContent"]["outcome"],
        "succeeded"
    );
    assert_eq!(call(&names[0]).await.error_code(), -32603);
    assert_eq!(call("asleep__echo").await.error_code(), -32603);
    stage.database.set_away(false).await.unwrap();
    assert_eq!(
        call(&names[0]).await.result()["structuredContent"]["outcome"],
        "offline"
    );
}

#[tokio::test]
async fn many_devices_are_listed_by_pages() {
    let stage = Stage::set().await;
    for at in 0..30 {
        stage.connect(&format!("toy-{at:02}")).await;
    }
    let first = exchange(modern(&stage, "/mcp", "tools/list", json!({}))).await;
    let cursor = first.result()["nextCursor"].as_str().unwrap();
    let second = exchange(modern(
        &stage,
        "/mcp",
        "tools/list",
        json!({"cursor": cursor}),
    ))
    .await;
    assert!(second.result().get("nextCursor").is_none());
    let mut all = names(first.result());
    all.extend(names(second.result()));
    let expected: Vec<String> = (0..30).map(|at| format!("toy-{at:02}__echo")).collect();
    assert_eq!(all, expected);
    let wrong = exchange(modern(
        &stage,
        "/mcp",
        "tools/list",
        json!({"cursor": "no/id"}),
    ))
    .await;
    assert_eq!(wrong.error_code(), -32602);
}

#[tokio::test]
async fn messages_travel_as_flatbuffers_where_the_client_says_so() {
    let stage = Stage::set().await;
    stage.connect_with("toy-1", TOOLS).await;
    let send = async |message: Vec<u8>, accept: &str| {
        let request = stage
            .request(Method::POST, DEVICE)
            .header("mcp-protocol-version", "2025-11-25")
            .header("content-type", flat::CONTENT_TYPE)
            .header("accept", accept)
            .body(message);
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let kind = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        (status, kind, response.bytes().await.unwrap())
    };
    let call = |tool: &str| {
        let params =
            json!({"name": tool, "arguments": {"a": "你好"}, "_meta": {"progressToken": 1}});
        let message = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params});
        flat::encode(message.to_string().as_bytes()).unwrap()
    };
    for tool in ["echo", "talk"] {
        let (status, kind, answer) = send(call(tool), flat::CONTENT_TYPE).await;
        assert_eq!((status, kind.as_str()), (200, flat::CONTENT_TYPE));
        let answer = flat::decode(&answer).unwrap();
        assert_eq!(
            (&answer["id"], &answer["result"]["isError"]),
            (&json!(3), &json!(false))
        );
    }
    let both = "application/json, text/event-stream";
    let (status, kind, answer) = send(call("echo"), both).await;
    assert_eq!((status, kind.as_str()), (200, "application/json"));
    assert!(std::str::from_utf8(&answer).unwrap().contains("你好"));

    let (status, kind, answer) = send(b"no buffer".to_vec(), flat::CONTENT_TYPE).await;
    assert_eq!((status, kind.as_str()), (400, flat::CONTENT_TYPE));
    assert_eq!(flat::decode(&answer).unwrap()["error"]["code"], -32700);
}

/// Calls a tool that asks, for a client that can do this much.
async fn call_ask(stage: &Stage, able: Value, more: Value) -> Exchange {
    let mut params = json!({"name": "ask", "arguments": {}});
    let members = params.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    let meta = json!({"io.modelcontextprotocol/clientCapabilities": able});
    exchange(modern_with(stage, DEVICE, "tools/call", params, meta)).await
}

#[tokio::test]
async fn only_a_state_shows_that_a_device_asked() {
    let stage = Stage::set().await;
    stage.connect_with("toy-1", r#"{"ask":{}}"#).await;
    // The device was asked before it was known that the client cannot answer.
    let refused = call_ask(&stage, json!({}), json!({})).await;
    assert_eq!(refused.error_code(), -32021);
    let data = &refused.last()["error"]["data"];
    let ended = (&data["outcome"], &data["delivered"]);
    assert_eq!(ended, (&json!("failed"), &json!("yes")));
    let call = stage.edge.seen.lock()[0].to_string();
    assert_eq!(data["call_id"], call);
    assert!(data["requiredCapabilities"]["elicitation"].is_object());

    // Answers to no question are the client's word and no more, and the device sees that.
    let answer = json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    let unasked = json!({"inputResponses": answer});
    let done = call_ask(&stage, json!({}), unasked).await;
    let data = &done.result()["structuredContent"]["data"];
    assert_eq!(*data, json!({"responses": answer, "state": null}));
}

#[tokio::test]
async fn a_client_that_reads_no_stream_is_not_kept_waiting_by_one() {
    let stage = Stage::set().await;
    let listen = |path: &str, accept: &'static str| {
        let wanted = json!({"notifications": {"toolsListChanged": true}});
        let request = modern(&stage, path, "subscriptions/listen", wanted).build();
        let mut request = request.unwrap();
        let accept = reqwest::header::HeaderValue::from_static(accept);
        request.headers_mut().insert("accept", accept);
        request
    };
    let client = reqwest::Client::new();
    for path in [DEVICE, "/mcp"] {
        let refused = client.execute(listen(path, flat::CONTENT_TYPE)).await;
        let refused = refused.unwrap();
        assert_eq!(
            (
                refused.status().as_u16(),
                &refused.headers()["content-type"]
            ),
            (406, &"application/problem+json".parse().unwrap()),
            "{path}"
        );
        let both = "application/vnd.mcp+flatbuffers, text/event-stream";
        let taken = client.execute(listen(path, both)).await.unwrap();
        assert_eq!(taken.headers()["content-type"], "text/event-stream");
    }
}

#[tokio::test]
async fn a_device_may_ask_before_it_goes_on() {
    let stage = Stage::set().await;
    stage.connect_with("toy-1", r#"{"ask":{}}"#).await;
    let call = |able: Value, more: Value| call_ask(&stage, able, more);
    let asked = call(json!({"elicitation": {}}), json!({})).await;
    let result = asked.result();
    assert_eq!(result["resultType"], "input_required");
    let requests = result["inputRequests"].as_object().unwrap();
    assert_eq!(
        requests.keys().collect::<Vec<_>>(),
        ["name"],
        "no roots for a client without any"
    );
    assert_eq!(requests["name"]["params"]["message"], "Who?");

    let answer = json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    let state = result["requestState"].as_str().unwrap();
    let again = json!({"inputResponses": answer, "requestState": state});
    let done = call(json!({"elicitation": {}}), again.clone()).await;
    let data = &done.result()["structuredContent"]["data"];
    assert_eq!(*data, json!({"responses": answer, "state": {"step": 1}}));

    let refuse = async |able: Value, more: Value, code: i64| {
        let refused = call(able, more).await;
        assert_eq!(refused.error_code(), code, "{refused:?}");
    };
    let forged = json!({"inputResponses": answer, "requestState": format!("{state}x")});
    refuse(json!({"elicitation": {}}), forged, -32602).await;
    let elsewhere = json!({"inputResponses": answer, "requestState": state, "arguments": {"a": 1}});
    refuse(json!({"elicitation": {}}), elsewhere, -32602).await;
    refuse(
        json!({"elicitation": {}}),
        json!({"inputResponses": {"name": 7}}),
        -32602,
    )
    .await;
    refuse(json!({}), json!({}), -32021).await;

    // Another key of the same organisation has not been asked anything.
    let other = stage.add_key(&[Scope::Call]).await;
    let params =
        json!({"name": "ask", "arguments": {}, "inputResponses": answer, "requestState": state});
    let own = stage
        .request_as(&other, Method::POST, DEVICE)
        .build()
        .unwrap();
    let stolen = modern(&stage, DEVICE, "tools/call", params).headers(own.headers().clone());
    assert_eq!(exchange(stolen).await.error_code(), -32602);

    // The revision before knows no questions: the call has failed, and says why.
    let legacy = exchange(legacy(
        &stage,
        DEVICE,
        "tools/call",
        json!({"name": "ask", "arguments": {}}),
    ))
    .await;
    assert_eq!(legacy.result()["isError"], true);
    let rest = stage.call("toy-1", r#"{"service":"ask"}"#).await;
    assert_eq!(rest.json["outcome"], "failed");
    let rest = stage
        .call("toy-1", r#"{"service":"ask","input":{"responses":{}}}"#)
        .await;
    assert_eq!(rest.json["result"]["data"], json!({"responses": {}}));
}
