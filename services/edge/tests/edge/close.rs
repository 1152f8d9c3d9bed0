//! How connections close: each with its reason, and without leaving anything behind.

use std::time::Duration;

use switchboard_edge::Config;
use switchboard_protocol::{
    frame::{Kind, TaskId},
    id::OrgId,
    outcome::{Delivered, Outcome},
    token::SigningKey,
};
use switchboard_test_support::eventually::eventually_true;
use uuid::Uuid;

use crate::{
    device::Device,
    node::{Node, TEST_TIMEOUT, check, now_s},
};

const ON: &str = r#"{"on":true}"#;

#[tokio::test]
async fn newest_connection_of_a_device_wins() {
    let node = Node::start(Config::default()).await;
    let mut older = node.lamp("lamp").await;
    let answer = node.call(node.prepare("lamp", ON));
    let id = older.expect(Kind::Control).await.call_id();
    let mut newer = node.lamp("lamp").await;
    older.expect_goaway("takeover").await;
    check(&answer.await.unwrap(), Outcome::Lost, Delivered::Unknown);

    newer.result(&id, "not mine").await;
    newer.sync().await;
    node.metric_is("stray_results_total", Some("foreign"), 1.0)
        .await;
    let answer = node.call(node.prepare("lamp", ON));
    let id = newer.expect(Kind::Control).await.call_id();
    newer.result(&id, "done").await;
    check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    node.metric_is("left_total", Some("takeover"), 1.0).await;
    node.metric_is("connections", None, 1.0).await;
}

#[tokio::test]
async fn concurrent_connections_of_a_device_leave_one() {
    let node = Node::start(Config::default()).await;
    let mut devices = Vec::new();
    for _ in 0..20 {
        let (addr, token) = (node.addr, node.token("toy"));
        devices.push(node.shutdown.spawn(async move {
            let mut device = Device::connect(addr).await;
            let payload = format!(r#"{{"token":"{token}"}}"#);
            device
                .send(Kind::Auth, TaskId::MCP, 0, payload.as_bytes())
                .await;
            device
        }));
    }
    let mut devices_held = Vec::new();
    for device in devices {
        devices_held.push(device.await.unwrap());
    }
    node.metric_is("connections", None, 1.0).await;
    assert!(
        node.caller
            .find(&node.device_key("toy"))
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn revoked_token_closes_its_connection() {
    let node = Node::start(Config::default()).await;
    let claims = node.claims("toy");
    let mut device = Device::connect(node.addr).await;
    device.authenticate(&node.sign(&claims)).await;
    let mut other = node.device("other").await;
    node.caller
        .revoke(claims.id, claims.expires_at)
        .await
        .unwrap();
    device.expect_error("token_revoked").await;
    other.sync().await;
    node.metric_is("left_total", Some("revoked"), 1.0).await;
}

#[tokio::test]
async fn disconnected_device_is_told_so_and_may_return() {
    let node = Node::start(Config::default()).await;
    let mut lamp = node.lamp("lamp").await;
    let mut other = node.device("other").await;
    let answer = node.call(node.prepare("lamp", ON));
    lamp.expect(Kind::Control).await;
    let key = node.device_key("lamp");
    assert!(node.caller.disconnect(&key).await.unwrap());
    assert!(node.caller.find(&key).await.unwrap().is_none());
    lamp.expect_goaway("disconnect_requested").await;
    check(&answer.await.unwrap(), Outcome::Lost, Delivered::Unknown);
    assert!(!node.caller.disconnect(&key).await.unwrap());
    other.sync().await;
    let reason = Some("disconnect_requested");
    node.metric_is("left_total", reason, 1.0).await;

    let mut lamp = node.lamp("lamp").await;
    let answer = node.call(node.prepare("lamp", ON));
    let id = lamp.expect(Kind::Control).await.call_id();
    lamp.result(&id, "done").await;
    check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
}

#[tokio::test]
async fn token_of_a_deleted_key_closes_its_connection() {
    let node = Node::start(Config::default()).await;
    let leaked = SigningKey::from_seed(&[9; 32]);
    let own = node.verifying_key();
    let keys = vec![own.clone(), leaked.verifying_key()];
    node.caller.publish_keys(keys, Vec::new()).await.unwrap();
    let forged = leaked.sign(&node.claims("toy")).unwrap();
    eventually_true("the edge has the key", || node.bus.verify(&forged).is_ok()).await;
    let mut device = Device::connect(node.addr).await;
    device.authenticate(&forged).await;
    let mut other = node.device("other").await;
    node.caller
        .publish_keys(vec![own], Vec::new())
        .await
        .unwrap();
    device.expect_error("token_unknown_key").await;
    other.sync().await;
    node.metric_is("left_total", Some("revoked"), 1.0).await;
}

#[tokio::test]
async fn suspended_organisation_closes_its_connections() {
    let node = Node::start(Config::default()).await;
    let mut device = node.device("toy").await;
    let mut other = Device::connect(node.addr).await;
    let mut claims = node.claims("other");
    claims.org = OrgId::from_uuid(Uuid::now_v7());
    other.authenticate(&node.sign(&claims)).await;
    let caller = &node.caller;
    caller.publish_suspended_orgs(&[node.org], 1).await.unwrap();
    device.expect_error("org_suspended").await;
    other.sync().await;
    let mut again = Device::connect(node.addr).await;
    let answer = again.auth(&node.token("toy")).await;
    assert_eq!(answer["data"]["code"], "org_suspended", "{answer}");
    caller.publish_suspended_orgs(&[], 2).await.unwrap();
    eventually_true("the edge has received it", || {
        !node.bus.is_suspended(node.org)
    })
    .await;
    node.device("toy").await.sync().await;
}

#[tokio::test]
async fn expired_token_closes_its_connection() {
    let node = Node::start(Config::default()).await;
    let mut claims = node.claims("toy");
    claims.expires_at = now_s() + 2;
    let mut device = Device::connect(node.addr).await;
    device.authenticate(&node.sign(&claims)).await;
    device.expect_error("token_expired").await;
}

#[tokio::test]
async fn silent_device_is_closed_after_the_idle_timeout() {
    let node = Node::start(Config {
        device_heartbeat_s: 1,
        ..Config::default()
    })
    .await;
    let (mut silent, mut alive) = (node.device("silent").await, node.device("alive").await);
    let mut gone = std::pin::pin!(async {
        silent.expect(Kind::Ping).await;
        silent.expect_goaway("idle").await;
    });
    loop {
        tokio::select! {
            () = &mut gone => break,
            () = tokio::time::sleep(Duration::from_millis(200)) => alive.sync().await,
        }
    }
    alive.sync().await;
    node.metric_is("left_total", Some("idle_timeout"), 1.0)
        .await;
}

#[tokio::test]
async fn device_that_reads_nothing_is_closed() {
    let config = Config {
        device_write_stall_ms: 200,
        device_max_calls_in_flight: 1_000,
        device_max_calls_waiting: 1_000,
        device_max_waiting_bytes: usize::MAX,
        ..Config::default()
    };
    let node = Node::start(config).await;
    let lamp = node.lamp("lamp").await;
    let large = format!(r#"{{"on":true,"note":"{}"}}"#, "x".repeat(200_000));
    let calls = (0..100).map(|_| (node.caller.clone(), node.prepare("lamp", &large)));
    let answers: Vec<_> = calls
        .map(|(caller, call)| node.shutdown.spawn(async move { caller.call(call).await }))
        .collect();
    let (mut lost, mut not_sent) = (0, 0);
    for answer in answers {
        // The caller's bus may refuse some of so many bytes at once; this test ignores that.
        let Ok(answer) = tokio::time::timeout(TEST_TIMEOUT, answer)
            .await
            .unwrap()
            .unwrap()
        else {
            continue;
        };
        match answer.outcome {
            Outcome::Lost => lost += 1,
            Outcome::Offline => not_sent += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(lost > 0 && not_sent > 0, "{lost} sent, {not_sent} not sent");
    node.metric_is("left_total", Some("slow_reader"), 1.0).await;
    drop(lamp);
}

#[tokio::test]
async fn device_that_pings_without_reading_is_closed() {
    let node = Node::start(Config {
        device_max_unsent_bytes: 4_096,
        ..Config::default()
    })
    .await;
    let mut device = node.device("toy").await;
    let mut pings = Vec::new();
    let plain = switchboard_protocol::frame::SeqFormat::Plain;
    for _ in 0..2_000 {
        let payload = [b'x'; 1_000];
        switchboard_protocol::frame::encode(
            &mut pings,
            Kind::Ping,
            TaskId::MCP,
            0,
            plain,
            &payload,
        );
    }
    let (_reader, mut writer) = device.stream.split();
    let flood = async {
        // Fails as soon as the edge has closed the connection.
        while tokio::io::AsyncWriteExt::write_all(&mut writer, &pings)
            .await
            .is_ok()
        {}
    };
    tokio::time::timeout(TEST_TIMEOUT, flood).await.unwrap();
    node.metric_is("left_total", Some("slow_reader"), 1.0).await;
}

#[tokio::test]
async fn drain_completes_calls_in_flight() {
    let node = Node::start(Config::default()).await;
    let (mut busy, mut idle) = (node.lamp("busy").await, node.lamp("idle").await);
    let answer = node.call(node.prepare("busy", ON));
    let id = busy.expect(Kind::Control).await.call_id();
    node.shutdown.drain();
    idle.expect_goaway("drain").await;
    assert_eq!(busy.expect(Kind::Goaway).await.json()["reason"], "drain");

    // A draining device still receives calls as long as it has one in flight.
    let second = node.call(node.prepare("busy", ON));
    let second_id = busy.expect(Kind::Control).await.call_id();
    busy.result(&id, "done").await;
    check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    busy.result(&second_id, "done").await;
    check(&second.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
    busy.expect_end().await;
    assert!(node.edge.finished(TEST_TIMEOUT).await, "the edge must stop");
    let again = tokio::net::TcpStream::connect(node.addr).await;
    assert!(again.is_err(), "the listener must be closed");
    // A caller with a cached presence receives an answer as long as the node runs.
    let late = node.caller.call(node.prepare("busy", ON)).await;
    check(&late.unwrap(), Outcome::Offline, Delivered::No);
}

#[tokio::test]
async fn drain_handles_frames_already_sent() {
    let node = Node::start(Config::default()).await;
    let mut lamp = node.lamp("lamp").await;
    let event = br#"{"name":"pressed","data":{}}"#;
    lamp.send(Kind::Event, TaskId::MCP, 0, event).await;
    node.shutdown.drain();
    lamp.expect_goaway("drain").await;
    node.metric_is("notes_total", Some("event"), 1.0).await;
}

#[tokio::test]
async fn drain_completes_an_open_turn() {
    let node = Node::start(Config::default()).await;
    let mut lamp = node.lamp("lamp").await;
    let task = TaskId(*b"task0001");
    lamp.send(Kind::Text, task, 0, b"What time ").await;
    node.metric_is("notes_total", Some("text"), 1.0).await;
    node.shutdown.drain();
    assert_eq!(lamp.expect(Kind::Goaway).await.json()["reason"], "drain");
    lamp.send(Kind::Text, task, 1, b"is it?").await;
    lamp.send(Kind::End, task, 2, b"").await;
    let turns = node.caller.claim_turns(1, TEST_TIMEOUT).await.unwrap();
    assert_eq!(turns[0].text, "What time is it?");
    node.caller.send_text(&turns[0], "Noon.");
    node.caller.finish_reply(&turns[0]);
    assert_eq!(lamp.expect(Kind::Text).await.payload, b"Noon.");
    lamp.expect(Kind::End).await;
    lamp.expect_end().await;
}

#[tokio::test]
async fn drain_ends_although_a_device_does_not_answer() {
    let node = Node::start(Config {
        device_drain_timeout_ms: 300,
        ..Config::default()
    })
    .await;
    let mut lamp = node.lamp("lamp").await;
    let answer = node.call(node.prepare("lamp", ON));
    lamp.expect(Kind::Control).await;
    let mut stranger = Device::connect(node.addr).await;
    node.metric_is("unauthenticated", None, 1.0).await;
    node.shutdown.drain();
    stranger.expect_goaway("drain").await;
    lamp.expect_goaway("drain").await;
    check(&answer.await.unwrap(), Outcome::Lost, Delivered::Unknown);
    assert!(node.edge.finished(TEST_TIMEOUT).await, "the edge must stop");
}

#[tokio::test]
async fn stop_closes_at_once() {
    let node = Node::start(Config::default()).await;
    let mut lamp = node.lamp("lamp").await;
    let answer = node.call(node.prepare("lamp", ON));
    lamp.expect(Kind::Control).await;
    node.shutdown.stop();
    lamp.expect_goaway("drain").await;
    drop(answer);
    assert!(node.edge.finished(TEST_TIMEOUT).await, "the edge must stop");
}

#[tokio::test]
async fn silent_device_that_answers_a_ping_stays() {
    let config = Config {
        device_heartbeat_s: 1,
        ..Config::default()
    };
    let node = Node::start(config).await;
    let mut answering = node.lamp("answering").await;
    let mut silent = node.lamp("silent").await;
    for _ in 0..3 {
        answering.expect(Kind::Ping).await;
        answering.send(Kind::Pong, TaskId::MCP, 0, b"").await;
    }
    silent.expect(Kind::Ping).await;
    silent.expect_goaway("idle").await;
    let answer = node.call(node.prepare("answering", ON));
    let id = answering.expect(Kind::Control).await.call_id();
    answering.result(&id, "done").await;
    check(&answer.await.unwrap(), Outcome::Succeeded, Delivered::Yes);
}
