//! Token keys and revocations reach every node.

use std::time::Duration;

use switchboard_bus::{Bus, TokenError};
use switchboard_protocol::{
    id::TokenId,
    token::{AccessError, Claims, Scope, SigningKey, Subject},
};
use switchboard_test_support::eventually::eventually;
use uuid::Uuid;

use crate::{for_each_backend, test_edge::org};

const FAR_FUTURE_S: u64 = 4_000_000_000;

fn claims(number: u128) -> Claims {
    Claims {
        id: TokenId::from_uuid(Uuid::from_u128(number)),
        org: org(),
        subject: Subject::Device("toy-1".parse().unwrap()),
        scopes: [Scope::Device].into_iter().collect(),
        issued_at: 1,
        expires_at: FAR_FUTURE_S,
    }
}

/// Waits until a node verifies a token with this result.
async fn await_verification(node: &Bus, token: &str, expected: Result<Claims, TokenError>) {
    let verify = async || node.verify(token);
    let verified = eventually(Duration::from_secs(5), verify, |result| *result == expected).await;
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
        control.revoke(bad.id, FAR_FUTURE_S).await.unwrap();
        await_verification(&edge, &bad_token, Err(AccessError::Revoked.into())).await;
        assert_eq!(revocations.recv().await, Ok(bad.id));
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
