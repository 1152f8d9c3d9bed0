//! Devices that come back with a resume ticket.

use serde_json::{Value, json};
use switchboard_edge::Config;
use switchboard_protocol::{
    frame::{Kind, TaskId},
    id::OrgId,
    token::Claims,
};
use switchboard_test_support::{eventually::eventually_true, redis_server::RedisServer};
use uuid::Uuid;

use crate::{
    device::{Device, LIGHT},
    node::{Node, now_s},
};

const NO_TOKEN: &str = "";

/// Connects a device with both, of which empty ones are left out. Returns the `data` of the answer.
async fn auth(node: &Node, token: &str, ticket: &str) -> (Device, Value) {
    let mut device = Device::connect(node.addr).await;
    let mut payload = json!({});
    for (name, value) in [("token", token), ("ticket", ticket)] {
        if !value.is_empty() {
            payload[name] = value.into();
        }
    }
    device
        .send(Kind::Auth, TaskId::MCP, 0, payload.to_string().as_bytes())
        .await;
    let answer = device.expect(Kind::Auth).await.json()["data"].take();
    (device, answer)
}

/// Connects with a token, until the edge has the keys of tickets. Returns the ticket.
async fn ticket(node: &Node, claims: &Claims) -> String {
    loop {
        let (_, answer) = auth(node, &node.sign(claims), "").await;
        assert_eq!(answer["success"], true, "{answer}");
        if let Some(ticket) = answer["ticket"].as_str() {
            assert!((1..=24 * 3600).contains(&answer["ticket_ttl_s"].as_u64().unwrap()));
            return ticket.to_owned();
        }
    }
}

#[track_caller]
fn check_refused(answer: &Value, code: &str) {
    assert_eq!(answer["success"], false, "{answer}");
    assert_eq!(answer["code"], code, "{answer}");
    assert_eq!(answer["ticket"], Value::Null);
}

#[track_caller]
fn check_accepted(answer: &Value, device: &str) {
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(answer["device_id"], device);
}

#[tokio::test]
async fn ticket_of_one_edge_is_accepted_by_another() {
    let redis = RedisServer::start();
    let nodes = [
        Node::start_over(&redis.url(), Config::default()).await,
        Node::start_over(&redis.url(), Config::default()).await,
    ];
    let [one, other] = &nodes;
    let claims = one.claims("toy");
    let first = ticket(one, &claims).await;
    // The other edge reads the same keys when it has issued one.
    ticket(other, &other.claims("another")).await;
    let (mut toy, answer) = auth(other, NO_TOKEN, &first).await;
    check_accepted(&answer, "toy");
    toy.register(LIGHT).await;
    let presence = one.caller.find(&one.device_key("toy")).await;
    assert_eq!(presence.unwrap().unwrap().node, *other.bus.node());
    // The answer has another one, which is accepted in turn.
    let next = answer["ticket"].as_str().unwrap();
    let (_, answer) = auth(one, NO_TOKEN, next).await;
    check_accepted(&answer, "toy");
}

#[tokio::test]
async fn ticket_that_is_not_accepted_leaves_the_decision_to_the_token() {
    let node = Node::start(Config::default()).await;
    let claims = node.claims("toy");
    let good = ticket(&node, &claims).await;
    let mut tampered = good.clone().into_bytes();
    tampered[30] ^= 1;
    let tampered = String::from_utf8(tampered).unwrap();
    for bad in [tampered.as_str(), "nonsense"] {
        let (mut device, answer) = auth(&node, NO_TOKEN, bad).await;
        check_refused(&answer, "ticket_refused");
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains("send the access token"), "{error}");
        device.expect_end().await;
        let (_, answer) = auth(&node, &node.sign(&claims), bad).await;
        check_accepted(&answer, "toy");
        let (_, answer) = auth(&node, "nonsense", bad).await;
        check_refused(&answer, "token_malformed");
    }
    node.metric_is("refused_total", Some("ticket_refused"), 2.0)
        .await;
}

#[tokio::test]
async fn ticket_counts_beside_the_token_that_it_was_issued_for_only() {
    let node = Node::start(Config::default()).await;
    let claims = node.claims("toy");
    let of_toy = ticket(&node, &claims).await;
    let (_, answer) = auth(&node, &node.sign(&claims), &of_toy).await;
    check_accepted(&answer, "toy");
    // Of another device, and of one of another organisation with the same name.
    let (_, answer) = auth(&node, &node.token("another"), &of_toy).await;
    check_accepted(&answer, "another");
    let mut foreign = node.claims("toy");
    foreign.org = OrgId::from_uuid(Uuid::now_v7());
    let (mut device, answer) = auth(&node, &node.sign(&foreign), &of_toy).await;
    check_accepted(&answer, "toy");
    device.register(LIGHT).await;
    let of_org = async |org| {
        let mut key = node.device_key("toy");
        key.org = org;
        let presence = node.caller.find(&key).await.unwrap();
        presence.is_some_and(|presence| presence.digest.is_some())
    };
    assert!(of_org(foreign.org).await && !of_org(node.org).await);
}

#[tokio::test]
async fn ticket_ends_with_its_token() {
    let node = Node::start(Config::default()).await;
    let mut claims = node.claims("toy");
    claims.expires_at = now_s() + 2;
    let ticket = ticket(&node, &claims).await;
    let (mut toy, answer) = auth(&node, NO_TOKEN, &ticket).await;
    check_accepted(&answer, "toy");
    assert!(answer["ticket_ttl_s"].as_u64().unwrap() <= 2, "{answer}");
    toy.expect_error("token_expired").await;
    let (_, answer) = auth(&node, NO_TOKEN, &ticket).await;
    check_refused(&answer, "ticket_refused");
}

#[tokio::test]
async fn i11_revoked_token_ends_its_tickets_and_their_connections() {
    let nodes = Node::start_two(Config::default(), None).await;
    let [one, other] = &nodes;
    let claims = one.claims("toy");
    let first = ticket(one, &claims).await;
    ticket(other, &one.claims("another")).await;
    let (mut toy, answer) = auth(other, NO_TOKEN, &first).await;
    check_accepted(&answer, "toy");
    let next = answer["ticket"].as_str().unwrap().to_owned();
    let revoked = one.caller.revoke(claims.id, claims.expires_at);
    revoked.await.unwrap();
    toy.expect_error("token_revoked").await;
    for node in &nodes {
        eventually_true("the revocation arrived", || node.bus.is_revoked(claims.id)).await;
        for ticket in [&first, &next] {
            let (mut device, answer) = auth(node, NO_TOKEN, ticket).await;
            check_refused(&answer, "token_revoked");
            device.expect_end().await;
            let (_, answer) = auth(node, &one.sign(&claims), ticket).await;
            check_refused(&answer, "token_revoked");
        }
    }
}
