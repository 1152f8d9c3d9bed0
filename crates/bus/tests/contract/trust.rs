//! Whose tokens are good, on every node.

use std::time::Duration;

use switchboard_bus::{Bus, TrustError};
use switchboard_protocol::{
    access::{AccessError, Claims, Scope, SigningKey, Subject},
    id::TokenId,
};
use uuid::Uuid;

use crate::{eventually::eventually, over_all, station::org};

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

async fn verdict_becomes(node: &Bus, token: &str, wanted: Result<Claims, TrustError>) {
    let verdict = async || node.verify(token);
    let verdict = eventually(Duration::from_secs(5), verdict, |verdict| {
        *verdict == wanted
    })
    .await;
    assert_eq!(verdict, wanted);
}

#[tokio::test]
async fn i11_keys_and_revocations_reach_every_node_within_five_seconds() {
    over_all(|site| async move {
        let (control, edge) = (site.caller("control").await, site.caller("edge").await);
        let key = SigningKey::from_seed(&[7; 32]);
        let (good, bad) = (claims(1), claims(2));
        let (good_token, bad_token) = (key.sign(&good).unwrap(), key.sign(&bad).unwrap());
        assert_eq!(edge.verify(&good_token), Err(TrustError::NoKeys));
        control
            .publish_trust(vec![key.verifying_key()], vec![])
            .await
            .unwrap();
        verdict_becomes(&edge, &good_token, Ok(good.clone())).await;
        let mut told = edge.revocations();
        control.revoke(bad.id, FAR_FUTURE_S).await.unwrap();
        verdict_becomes(&edge, &bad_token, Err(AccessError::Revoked.into())).await;
        assert_eq!(told.recv().await, Ok(bad.id));
        // One that starts later knows as much, and a publication without it does not undo it.
        control
            .publish_trust(vec![key.verifying_key()], vec![])
            .await
            .unwrap();
        let late = site.caller("late").await;
        verdict_becomes(&late, &good_token, Ok(good)).await;
        verdict_becomes(&late, &bad_token, Err(AccessError::Revoked.into())).await;
        assert!(late.is_revoked(bad.id));
    })
    .await;
}
