//! Nodes that own connections agree on the keys of resume tickets.

use std::time::Duration;

use switchboard_bus::{Bus, TicketError, TicketHolder, TokenDigest, TokenError};
use switchboard_protocol::{
    id::DeviceKey,
    message::ResumeTicket,
    token::{AccessError, SigningKey},
};
use switchboard_test_support::eventually::eventually;

use crate::{
    for_each_backend,
    pinned_keys::signed,
    test_edge::{TestSystem, org},
    token_keys::{await_verification, claims},
};

const TEST_TIMEOUT: Duration = Duration::from_secs(10);

fn key() -> SigningKey {
    SigningKey::from_seed(&[7; 32])
}

/// What a ticket of the device `toy-1` is for, once the node verifies its token.
async fn holder(node: &Bus, number: u128) -> TicketHolder {
    let claims = claims(number);
    let token = key().sign(&claims).unwrap();
    await_verification(node, &token, Ok(claims)).await;
    let (_, check) = node.verify_for_connection(&token).unwrap();
    TicketHolder {
        device: DeviceKey {
            org: org(),
            device: "toy-1".parse().unwrap(),
        },
        token: check,
        digest: TokenDigest::compute(&token),
    }
}

async fn issue(node: &Bus, holder: &TicketHolder) -> ResumeTicket {
    let issue = async || node.issue_ticket(holder);
    let issued = eventually(TEST_TIMEOUT, issue, Option::is_some).await;
    issued.unwrap().0
}

async fn await_ticket(
    node: &Bus,
    ticket: &ResumeTicket,
    expected: Result<TicketHolder, TicketError>,
) {
    let verify = async || node.verify_ticket(ticket.expose());
    let verified = eventually(TEST_TIMEOUT, verify, |result| *result == expected).await;
    assert_eq!(verified, expected);
}

#[tokio::test]
async fn ticket_is_accepted_by_nodes_with_connections_until_its_token_is_revoked() {
    for_each_backend(|system| async move {
        let control = system.start_node("control").await;
        let keys = vec![key().verifying_key()];
        control.publish_keys(keys, vec![]).await.unwrap();
        let (one, other) = system.start_edges("one", "other").await;
        let holder = holder(&one.bus, 1).await;
        let ticket = issue(&one.bus, &holder).await;
        await_ticket(&other.bus, &ticket, Ok(holder.clone())).await;
        // A node without connections has no keys.
        assert_eq!(control.issue_ticket(&holder), None);
        let refused = control.verify_ticket(ticket.expose());
        assert_eq!(refused, Err(TicketError::Unusable));
        let revoked = control.revoke(holder.token.id, holder.token.expires_at);
        revoked.await.unwrap();
        let revoked = TicketError::Token(TokenError::Access(AccessError::Revoked));
        await_ticket(&other.bus, &ticket, Err(revoked)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_survive_the_loss_of_redis_and_end_with_their_nodes() {
    let mut system = TestSystem::redis().await;
    let control = system.start_node("control").await;
    let keys = vec![key().verifying_key()];
    control.publish_keys(keys.clone(), vec![]).await.unwrap();
    let (one, other) = system.start_edges("one", "other").await;
    let holder = holder(&one.bus, 1).await;
    let ticket = issue(&one.bus, &holder).await;
    await_ticket(&other.bus, &ticket, Ok(holder.clone())).await;
    system.server().kill();
    system.server().restart();
    // The nodes have stored their keys again, for those that start later.
    let mut names = redis::cmd("KEYS");
    names.arg("test:{trust}:ticket-key:*");
    let stored = async || system.query::<Vec<String>>(&names).await;
    let stored = eventually(TEST_TIMEOUT, stored, |names| names.len() == 3).await;
    assert_eq!(stored.len(), 3);
    let republish = async || control.publish_keys(keys.clone(), vec![]).await;
    let published = eventually(TEST_TIMEOUT, republish, Result::is_ok).await;
    published.unwrap();
    await_ticket(&one.bus, &ticket, Ok(holder.clone())).await;
    let late = system.start_edge("late").await;
    await_ticket(&late.bus, &ticket, Ok(holder.clone())).await;
    // Where all nodes and Redis have lost them, the ticket is not accepted.
    let next = TestSystem::redis().await;
    let edge = next.start_edge("edge").await;
    edge.bus.publish_keys(keys, vec![]).await.unwrap();
    issue(&edge.bus, &holder).await;
    await_ticket(&edge.bus, &ticket, Err(TicketError::Unusable)).await;
}

#[tokio::test]
async fn pinned_node_trusts_no_key_of_tickets_in_redis() {
    let system = TestSystem::redis().await;
    let (control, open) = system.start_with_edge("control").await;
    let set = signed(9, &[7], 1);
    control.publish_keys(set, vec![]).await.unwrap();
    let holder = holder(&open.bus, 1).await;
    let foreign = issue(&open.bus, &holder).await;
    let signer = SigningKey::from_seed(&[9; 32]).verifying_key();
    let pinned = system.start_edge_with(system.config("pinned").pinning(&[signer]));
    let pinned = pinned.await;
    let own = issue(&pinned.bus, &holder).await;
    await_ticket(&pinned.bus, &own, Ok(holder)).await;
    let refused = Err(TicketError::Unusable);
    assert_eq!(pinned.bus.verify_ticket(foreign.expose()), refused);
    assert_eq!(open.bus.verify_ticket(own.expose()), refused);
}
