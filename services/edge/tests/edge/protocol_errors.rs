//! Protocol violations: one ERROR frame, then the end. Other devices are not affected.

use serde_json::json;
use switchboard_bus::DeviceEvent;
use switchboard_edge::Config;
use switchboard_protocol::frame::{Kind, TaskId};

use crate::{device::Device, node::Node};

#[tokio::test]
async fn invalid_frame_closes_the_connection() {
    async fn check(node: &Node, authenticated: bool, bytes: &[u8], code: &str) {
        let mut device = if authenticated {
            node.device("toy").await
        } else {
            Device::connect(node.addr).await
        };
        // The edge may close before the last byte is sent.
        let _ = tokio::io::AsyncWriteExt::write_all(&mut device.stream, bytes).await;
        device.expect_error(code).await;
    }
    let node = Node::start(Config::default()).await;
    let bystander = node.lamp("bystander").await;
    let long =
        |length: usize| [b"##START\x06mcp000010000".as_slice(), &vec![b'x'; length]].concat();
    for authenticated in [false, true] {
        check(&node, authenticated, b"GET / HTTP/1.1\r\n\r\n", "bad_start").await;
        check(
            &node,
            authenticated,
            b"##START\x01mcp000010000##END",
            "bad_type",
        )
        .await;
        check(
            &node,
            authenticated,
            b"##START\x06mcp0000100x0{}##END",
            "bad_seq",
        )
        .await;
    }
    check(&node, false, &long(4_096), "frame_too_long").await;
    check(&node, true, &long(262_144), "frame_too_long").await;
    let between = b"##START\x11mcp000010000##END garbage";
    let mut device = node.device("toy").await;
    device.send_raw(between).await;
    device.expect(Kind::Pong).await;
    device.expect_error("bad_start").await;
    drop(bystander);
}

#[tokio::test]
async fn invalid_turn_frames_close_the_connection() {
    async fn check(node: &Node, frames: &[(Kind, u16, &[u8])], code: &str) {
        let mut device = node.device("toy").await;
        for (kind, seq, payload) in frames {
            device
                .send(*kind, TaskId(*b"turn0001"), *seq, payload)
                .await;
        }
        device.expect_error(code).await;
    }
    let node = Node::start(Config {
        device_max_open_tasks: 1,
        ..Config::default()
    })
    .await;
    check(&node, &[(Kind::Text, 1, b"no beginning")], "seq_gap").await;
    check(
        &node,
        &[(Kind::Text, 0, b"a"), (Kind::Text, 2, b"b")],
        "seq_gap",
    )
    .await;
    check(&node, &[(Kind::Text, 0, b"\xff")], "bad_text").await;
    check(&node, &[(Kind::End, 0, b"")], "nothing_to_end").await;
    check(&node, &[(Kind::Goaway, 0, b"{}")], "unexpected_kind").await;
    let mut device = node.device("toy").await;
    device.send(Kind::Text, TaskId(*b"turn0001"), 0, b"a").await;
    device.send(Kind::Text, TaskId(*b"turn0002"), 0, b"a").await;
    device.expect_error("too_many_tasks").await;
}

#[tokio::test]
async fn invalid_message_is_answered_and_the_device_stays() {
    let node = Node::start(Config::default()).await;
    let mut device = node.device("toy").await;
    for message in [
        &br#"{"type":"register","data":{"services":{"#[..],
        br#"{"type":"dance","data":{}}"#,
        b"not json",
        br#"{"type":"result","data":{"result":{}}}"#,
    ] {
        device.send(Kind::Control, TaskId::MCP, 0, message).await;
        let answer = device.expect(Kind::Control).await.json();
        assert_eq!(answer["type"], "result", "{answer}");
        assert_eq!(answer["data"]["result"]["success"], false, "{answer}");
        assert!(answer["data"]["result"]["error"].is_string(), "{answer}");
    }
    device.sync().await;
    node.metric_is("notes_total", Some("rejected"), 4.0).await;
}

#[tokio::test]
async fn messages_without_effect_are_counted() {
    let node = Node::start(Config::default()).await;
    let mut device = node.device("toy").await;
    device
        .message(&json!({"type": "progress", "data": {"call_id": "x", "progress": 0.5}}))
        .await;
    device
        .message(&json!({"type": "log", "data": {"level": "info", "message": "hello"}}))
        .await;
    device
        .send(
            Kind::Event,
            TaskId::MCP,
            0,
            br#"{"name":"button","data":1}"#,
        )
        .await;
    device
        .send(Kind::Cancel, TaskId(*b"task1234"), 0, b"")
        .await;
    device.sync().await;
    for kind in ["progress", "log", "event", "cancel"] {
        node.metric_is("notes_total", Some(kind), 1.0).await;
    }
}

#[tokio::test]
async fn events_are_published_within_rate_and_size() {
    let config = Config {
        device_event_burst: 2,
        // No third token is added during the test.
        device_event_every_ms: u32::MAX,
        ..Config::default()
    };
    let node = Node::start(config).await;
    let mut device = node.device("toy-1").await;
    let long = format!("{{\"name\":\"long\",\"data\":\"{}\"}}", "x".repeat(16_384));
    for event in [
        r#"{"name":"one","data":{"a":  1}}"#,
        &long,
        r#"{"name":"two"}"#,
        r#"{"name":"three"}"#,
    ] {
        device
            .send(Kind::Event, TaskId::MCP, 0, event.as_bytes())
            .await;
    }
    device.sync().await;
    node.metric_is("notes_total", Some("event"), 4.0).await;
    node.metric_is("notes_total", Some("event_dropped"), 2.0)
        .await;
    let mut events = Vec::new();
    while events.len() < 2 {
        let facts = node
            .bus
            .read_events("test", 100, std::time::Duration::from_secs(5))
            .await;
        for (_, fact) in facts.unwrap() {
            if let DeviceEvent::Custom { device, json, .. } = fact {
                assert_eq!(device.device.as_str(), "toy-1");
                events.push(json);
            }
        }
    }
    assert_eq!(
        events,
        [
            &br#"{"name":"one","data":{"a":  1}}"#[..],
            br#"{"name":"two"}"#
        ]
    );
}
