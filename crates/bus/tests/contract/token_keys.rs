//! Token keys, revocations and suspended organisations reach every node.

use std::time::Duration;

use switchboard_bus::{Bus, TokenError};
use switchboard_protocol::{
    id::TokenId,
    token::{AccessError, Claims, Scope, SigningKey, Subject},
};
use switchboard_runtime::clock::unix_time;
use switchboard_test_support::eventually::eventually;
use uuid::Uuid;

use crate::{
    for_each_backend,
    test_edge::{TestSystem, org},
};

/// Within this, every node has what was published.
const TEST_TIMEOUT: Duration = Duration::from_secs(5);

pub fn claims(number: u128) -> Claims {
    let now = unix_time().as_secs();
    Claims {
        id: TokenId::from_uuid(Uuid::from_u128(number)),
        org: org(),
        subject: Subject::Device("toy-1".parse().unwrap()),
        scopes: [Scope::Device].into_iter().collect(),
        restrictions: None,
        issued_at: now,
        expires_at: now + 3_600,
    }
}

/// Waits until a node verifies a token with this result.
pub async fn await_verification(node: &Bus, token: &str, expected: Result<Claims, TokenError>) {
    let verify = async || node.verify(token);
    let verified = eventually(TEST_TIMEOUT, verify, |result| *result == expected).await;
    assert_eq!(verified, expected);
}

#[tokio::test]
async fn i11_keys_and_revocations_reach_all_nodes_in_5_s() {
    for_each_backend(|system| async move {
        let (control, edge) = system.start_nodes("control", "edge").await;
        let key = SigningKey::from_seed(&[7; 32]);
        let (good, bad) = (claims(1), claims(2));
        let (good_token, bad_token) = (key.sign(&good).unwrap(), key.sign(&bad).unwrap());
        assert_eq!(edge.verify(&good_token), Err(TokenError::NoKeys));
        control
            .publish_keys(vec![key.verifying_key()], vec![])
            .await
            .unwrap();
        await_verification(&edge, &good_token, Ok(good.clone())).await;
        let mut revocations = edge.revocations();
        control.revoke(bad.id, bad.expires_at).await.unwrap();
        await_verification(&edge, &bad_token, Err(AccessError::Revoked.into())).await;
        assert!(revocations.changed().await.is_ok());
        // A node that starts later receives the same. A publication without the revocation does
        // not revert it.
        control
            .publish_keys(vec![key.verifying_key()], vec![])
            .await
            .unwrap();
        let late = system.start_node("late").await;
        await_verification(&late, &good_token, Ok(good)).await;
        await_verification(&late, &bad_token, Err(AccessError::Revoked.into())).await;
        assert!(late.is_revoked(bad.id));
    })
    .await;
}

#[tokio::test]
async fn token_of_a_deleted_key_is_refused_again() {
    for_each_backend(|system| async move {
        let (control, edge) = system.start_nodes("control", "edge").await;
        let (leaked, next) = (
            SigningKey::from_seed(&[7; 32]),
            SigningKey::from_seed(&[8; 32]),
        );
        let (claims, keys) = (
            claims(1),
            vec![leaked.verifying_key(), next.verifying_key()],
        );
        let token = leaked.sign(&claims).unwrap();
        control.publish_keys(keys, vec![]).await.unwrap();
        await_verification(&edge, &token, Ok(claims)).await;
        let (_, check) = edge.verify_for_connection(&token).unwrap();
        let mut revocations = edge.revocations();
        control
            .publish_keys(vec![next.verifying_key()], vec![])
            .await
            .unwrap();
        let changed = tokio::time::timeout(TEST_TIMEOUT, revocations.changed());
        assert!(changed.await.unwrap().is_ok());
        assert_eq!(edge.recheck(&check), Err(AccessError::UnknownKey));
        assert_eq!(edge.verify(&token), Err(AccessError::UnknownKey.into()));
    })
    .await;
}

#[tokio::test]
async fn token_of_an_impossible_lifetime_is_refused() {
    for_each_backend(|system| async move {
        let node = system.start_node("edge").await;
        let key = SigningKey::from_seed(&[7; 32]);
        node.publish_keys(vec![key.verifying_key()], vec![])
            .await
            .unwrap();
        let (good, mut forever, mut future) = (claims(1), claims(2), claims(3));
        let sign = |claims: &Claims| key.sign(claims).unwrap();
        await_verification(&node, &sign(&good), Ok(good.clone())).await;
        forever.expires_at = 250_000_000_000;
        let refused = node.verify(&sign(&forever));
        assert_eq!(refused, Err(AccessError::LifetimeTooLong.into()));
        future.issued_at += 600;
        let at = future.issued_at;
        let refused = node.verify(&sign(&future));
        assert_eq!(refused, Err(AccessError::IssuedInFuture { at }.into()));
    })
    .await;
}

#[tokio::test]
async fn suspended_organisation_is_refused_until_it_is_resumed() {
    for_each_backend(|system| async move {
        let (control, edge) = system.start_nodes("control", "edge").await;
        let key = SigningKey::from_seed(&[7; 32]);
        let (claims, keys) = (claims(1), vec![key.verifying_key()]);
        let token = key.sign(&claims).unwrap();
        control.publish_keys(keys.clone(), vec![]).await.unwrap();
        await_verification(&edge, &token, Ok(claims.clone())).await;
        let (_, check) = edge.verify_for_connection(&token).unwrap();
        let mut revocations = edge.revocations();
        control.publish_suspended_orgs(&[org()], 1).await.unwrap();
        await_verification(&edge, &token, Err(AccessError::OrgSuspended.into())).await;
        assert!(revocations.changed().await.is_ok());
        assert_eq!(edge.recheck(&check), Err(AccessError::OrgSuspended));
        // A publication of keys does not lift it, and a node that starts later has it.
        control.publish_keys(keys.clone(), vec![]).await.unwrap();
        let late = system.start_node("late").await;
        await_verification(&late, &token, Err(AccessError::OrgSuspended.into())).await;
        let set = late.key_set().await.unwrap().unwrap();
        assert_eq!((set.keys, set.suspended), (keys, vec![org()]));
        control.publish_suspended_orgs(&[], 2).await.unwrap();
        await_verification(&edge, &token, Ok(claims)).await;
        assert_eq!(edge.recheck(&check), Ok(()));
    })
    .await;
}

#[tokio::test]
async fn older_list_of_suspended_organisations_replaces_no_newer_one() {
    for_each_backend(|system| async move {
        let (control, edge) = system.start_nodes("control", "edge").await;
        let key = SigningKey::from_seed(&[7; 32]);
        let (claims, keys) = (claims(1), vec![key.verifying_key()]);
        control.publish_suspended_orgs(&[org()], 7).await.unwrap();
        // As of a replica that read the database before the suspension.
        control.publish_suspended_orgs(&[], 6).await.unwrap();
        control.publish_keys(keys, vec![]).await.unwrap();
        let token = key.sign(&claims).unwrap();
        await_verification(&edge, &token, Err(AccessError::OrgSuspended.into())).await;
        let set = control.key_set().await.unwrap().unwrap();
        assert_eq!(
            (set.suspended, set.suspended_version),
            (vec![org()], Some(7))
        );
        control.publish_suspended_orgs(&[], 8).await.unwrap();
        await_verification(&edge, &token, Ok(claims)).await;
    })
    .await;
}

#[tokio::test]
async fn missed_revocation_is_read_from_the_backend() {
    for_each_backend(|system| async move {
        let (control, edge) = system.start_nodes("control", "edge").await;
        let key = SigningKey::from_seed(&[7; 32]);
        let (keys, bad) = (vec![key.verifying_key()], claims(2));
        control.publish_keys(keys.clone(), vec![]).await.unwrap();
        let token = key.sign(&bad).unwrap();
        await_verification(&edge, &token, Ok(bad.clone())).await;
        // Publishing it with the keys sends no broadcast of the token.
        let revoked = vec![(bad.id, bad.expires_at)];
        control.publish_keys(keys, revoked).await.unwrap();
        await_verification(&edge, &token, Err(AccessError::Revoked.into())).await;
        assert_eq!(edge.key_set().await.unwrap().unwrap().revocations, 1);
    })
    .await;
}

/// Such a node has as many revocations as are stored, so their number shows nothing.
#[tokio::test]
async fn i11_revocation_in_place_of_another_is_read_within_a_minute() {
    let system = TestSystem::redis().await;
    let (control, edge) = system.start_nodes("control", "edge").await;
    let key = SigningKey::from_seed(&[7; 32]);
    let (known, missed) = (claims(1), claims(2));
    let sign = |claims: &Claims| key.sign(claims).unwrap();
    let keys = vec![key.verifying_key()];
    control.publish_keys(keys.clone(), vec![]).await.unwrap();
    await_verification(&edge, &sign(&known), Ok(known.clone())).await;
    control.revoke(known.id, known.expires_at).await.unwrap();
    let revoked = Err(AccessError::Revoked.into());
    await_verification(&edge, &sign(&known), revoked.clone()).await;
    // A failover loses the one, and the other is published without a broadcast.
    let mut lose = redis::cmd("ZREM");
    lose.arg("test:{trust}:revoked").arg(known.id.to_string());
    assert_eq!(system.query::<usize>(&lose).await, 1);
    let revocations = vec![(missed.id, missed.expires_at)];
    control.publish_keys(keys, revocations).await.unwrap();
    assert_eq!(edge.verify(&sign(&missed)), Ok(missed.clone()));
    let verify = async || edge.verify(&sign(&missed));
    let verified = eventually(Duration::from_secs(65), verify, |result| *result == revoked).await;
    assert_eq!(verified, revoked);
}
