//! Which devices are accepted, and what the others receive.

use switchboard_bus::QuotaLimits;
use switchboard_edge::Config;
use switchboard_protocol::{
    frame::{Kind, TaskId},
    token::{Scope, SigningKey, Subject},
};
use switchboard_runtime::quota::{Limits, Quota};
use switchboard_test_support::eventually::eventually_true;

use crate::{
    device::Device,
    node::{Node, now_s},
};

#[tokio::test]
async fn valid_token_is_answered_with_the_limits() {
    let node = Node::start(Config::default()).await;
    let mut device = Device::connect(node.addr).await;
    let answer = device.auth(&node.token("toy-1")).await;
    let data = &answer["data"];
    assert_eq!(answer["type"], "auth");
    assert_eq!(data["success"], true);
    assert_eq!(data["device_id"], "toy-1");
    assert_eq!(data["heartbeat_s"], 30);
    assert_eq!(data["max_frame_bytes"], 262_144);
    assert!(data["session"].is_string());
    let presence = node
        .caller
        .find(&node.device_key("toy-1"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(presence.node, *node.bus.node());
}

#[tokio::test]
async fn invalid_token_is_refused_with_a_code() {
    async fn check(node: &Node, token: &str, code: &str) {
        let mut device = Device::connect(node.addr).await;
        let answer = device.auth(token).await;
        assert_eq!(answer["data"]["success"], false, "{answer}");
        assert_eq!(answer["data"]["code"], code, "{answer}");
        assert!(answer["data"]["error"].is_string(), "{answer}");
        device.expect_end().await;
        node.metric_is("refused_total", Some(code), 1.0).await;
    }
    let node = Node::start(Config::default()).await;
    check(&node, "nonsense", "token_malformed").await;

    let stranger = SigningKey::from_seed(&[8; 32])
        .sign(&node.claims("toy"))
        .unwrap();
    check(&node, &stranger, "token_unknown_key").await;

    let mut claims = node.claims("toy");
    claims.expires_at = now_s() - 1;
    check(&node, &node.sign(&claims), "token_expired").await;

    let claims = node.claims("toy");
    node.caller
        .revoke(claims.id, claims.expires_at)
        .await
        .unwrap();
    eventually_true("the revocation arrived", || node.bus.is_revoked(claims.id)).await;
    check(&node, &node.sign(&claims), "token_revoked").await;

    let mut claims = node.claims("toy");
    claims.expires_at = 250_000_000_000;
    check(&node, &node.sign(&claims), "token_lifetime_too_long").await;

    let mut claims = node.claims("toy");
    claims.issued_at = now_s() + 600;
    check(&node, &node.sign(&claims), "token_issued_in_future").await;

    let mut claims = node.claims("toy");
    claims.scopes = [Scope::Call].into_iter().collect();
    check(&node, &node.sign(&claims), "not_a_device").await;
    assert!(
        node.caller
            .find(&node.device_key("toy"))
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn client_token_is_not_a_device() {
    let node = Node::start(Config::default()).await;
    let mut claims = node.claims("toy");
    claims.subject = Subject::Client("toy".parse().unwrap());
    let mut device = Device::connect(node.addr).await;
    let answer = device.auth(&node.sign(&claims)).await;
    assert_eq!(answer["data"]["code"], "not_a_device");
}

#[tokio::test]
async fn edge_without_keys_refuses_devices() {
    let node = Node::start_with(Config::default(), None, false).await;
    let mut device = Device::connect(node.addr).await;
    let payload = format!(r#"{{"token":"{}"}}"#, node.token("toy"));
    device
        .send(Kind::Auth, TaskId::MCP, 0, payload.as_bytes())
        .await;
    // The token is not at fault: the device is asked to retry.
    let error = device.expect(Kind::Error).await;
    assert_eq!(error.json()["code"], "no_keys");
    device.expect_goaway("no_keys").await;
    node.publish_keys().await;
    node.device("toy").await;
}

#[tokio::test]
async fn device_beyond_the_quota_of_its_organisation_is_refused() {
    let node = Node::start(Config::default()).await;
    let limit = |limit| QuotaLimits {
        orgs: vec![(
            node.org,
            Limits([(Quota::DevicesConnected, limit)].into_iter().collect()),
        )],
        ..QuotaLimits::default()
    };
    let publish = async |quotas: QuotaLimits| {
        node.caller.publish_quotas(&quotas).await.unwrap();
        let expected = quotas.orgs[0].1.0[&Quota::DevicesConnected];
        eventually_true("the edge has the quota", || {
            node.bus.quota_limit(node.org, Quota::DevicesConnected) == Some(expected)
        })
        .await;
    };
    publish(limit(1)).await;
    let mut first = node.device("first").await;
    let refused = async || {
        let mut device = Device::connect(node.addr).await;
        let payload = format!(r#"{{"token":"{}"}}"#, node.token("second"));
        device
            .send(Kind::Auth, TaskId::MCP, 0, payload.as_bytes())
            .await;
        let error = device.expect(Kind::Error).await.json();
        assert_eq!(error["code"], "quota_exceeded", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("`devices_connected` is 1"), "{error}");
        device.expect_goaway("quota_exceeded").await;
    };
    refused().await;
    node.metric_is("refused_total", Some("quota_exceeded"), 1.0)
        .await;
    // Those that are connected stay, and may reconnect.
    first.sync().await;
    let mut again = node.device("first").await;
    first.expect_goaway("takeover").await;
    publish(limit(2)).await;
    node.device("second").await.sync().await;
    again.sync().await;
}

#[tokio::test]
async fn frame_before_auth_is_refused() {
    let node = Node::start(Config::default()).await;
    for kind in [Kind::Control, Kind::Ping, Kind::Text, Kind::End] {
        let mut device = Device::connect(node.addr).await;
        device.send(kind, TaskId::MCP, 0, b"{}").await;
        device.expect_error("not_authenticated").await;
    }
}

#[tokio::test]
async fn second_auth_is_refused() {
    let node = Node::start(Config::default()).await;
    let mut device = node.device("toy").await;
    device
        .send(Kind::Auth, TaskId::MCP, 0, br#"{"token":"again"}"#)
        .await;
    device.expect_error("already_authenticated").await;
}

#[tokio::test]
async fn missing_auth_times_out() {
    let config = Config {
        device_auth_timeout_ms: 50,
        ..Config::default()
    };
    let node = Node::start(config).await;
    let mut silent = Device::connect(node.addr).await;
    silent.expect_error("auth_timeout").await;
    let mut partial = Device::connect(node.addr).await;
    partial.send_raw(b"##START\x10mcp").await;
    partial.expect_error("auth_timeout").await;
    node.metric_is("connections", None, 0.0).await;
    node.metric_is("unauthenticated", None, 0.0).await;
}

#[tokio::test]
async fn frames_right_after_auth_are_handled() {
    let node = Node::start(Config::default()).await;
    let mut device = Device::connect(node.addr).await;
    let mut bytes = Vec::new();
    for (kind, payload) in [
        (
            Kind::Auth,
            format!(r#"{{"token":"{}"}}"#, node.token("toy")),
        ),
        (
            Kind::Control,
            format!(
                r#"{{"type":"register","data":{{"services":{}}}}}"#,
                crate::device::LIGHT
            ),
        ),
        (Kind::Ping, "behind".to_owned()),
    ] {
        let plain = switchboard_protocol::frame::SeqFormat::Plain;
        switchboard_protocol::frame::encode(
            &mut bytes,
            kind,
            TaskId::MCP,
            0,
            plain,
            payload.as_bytes(),
        );
    }
    device.send_raw(&bytes).await;
    device.expect(Kind::Auth).await;
    device.expect(Kind::Control).await;
    assert_eq!(device.expect(Kind::Pong).await.payload, b"behind");
}

#[tokio::test]
async fn frame_may_arrive_byte_by_byte() {
    let node = Node::start(Config::default()).await;
    let mut device = Device::connect(node.addr).await;
    let mut bytes = b"  \r\n".to_vec();
    let payload = format!(r#"{{"token":"{}"}}"#, node.token("toy"));
    let plain = switchboard_protocol::frame::SeqFormat::Plain;
    switchboard_protocol::frame::encode(
        &mut bytes,
        Kind::Auth,
        TaskId::MCP,
        0,
        plain,
        payload.as_bytes(),
    );
    for byte in bytes {
        device.send_raw(&[byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(
        device.expect(Kind::Auth).await.json()["data"]["success"],
        true
    );
}

#[tokio::test]
async fn connection_limit_sends_goaway() {
    let config = Config {
        device_max_connections: 1,
        ..Config::default()
    };
    let node = Node::start(config).await;
    let first = node.device("toy-1").await;
    let mut second = Device::connect(node.addr).await;
    second.expect_goaway("overload").await;
    node.metric_is("shed_total", Some("max_connections"), 1.0)
        .await;
    drop(first);
    node.metric_is("connections", None, 0.0).await;
    node.device("toy-2").await;
}

#[tokio::test]
async fn address_rate_is_limited() {
    let config = Config {
        device_accepts_per_address_per_s: 1,
        ..Config::default()
    };
    let node = Node::start(config).await;
    let _two = (node.device("toy-1").await, node.device("toy-2").await);
    Device::connect(node.addr)
        .await
        .expect_goaway("overload")
        .await;
    assert!(node.metric("shed_total", Some("accepts_per_address")) > 0.5);
}
