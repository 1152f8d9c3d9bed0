//! Nodes that adopt token keys only with the signature of the control plane.

use std::time::Duration;

use prometheus::Registry;
use redis::cmd;
use switchboard_bus::{Bus, BusError, PublishedKeys, TokenError};
use switchboard_protocol::token::{AccessError, KeySetError, SignedKeySet, SigningKey};
use switchboard_runtime::clock::unix_time;
use switchboard_test_support::eventually::eventually;

use crate::{
    for_each_backend,
    test_edge::TestSystem,
    token_keys::{await_verification, claims},
};

const TEST_TIMEOUT: Duration = Duration::from_secs(5);
const UNKNOWN_KEY: TokenError = TokenError::Access(AccessError::UnknownKey);

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32])
}

/// A set of these keys, signed by another one.
pub fn signed(signer: u8, keys: &[u8], sequence: u64) -> PublishedKeys {
    let keys = keys.iter().map(|seed| key(*seed).verifying_key());
    let set = SignedKeySet {
        keys: keys.collect(),
        sequence,
        expires_at: unix_time().as_secs() + 60,
    };
    PublishedKeys {
        signed: Some(key(signer).sign_key_set(&set).unwrap()),
        keys: set.keys,
    }
}

/// A node that trusts what these keys have signed.
async fn pinned(system: &TestSystem, signers: &[u8], registry: &Registry) -> Bus {
    let signers = signers.iter().map(|seed| key(*seed).verifying_key());
    let config = system.config("pinned");
    let config = config.pinning(&signers.collect::<Vec<_>>());
    let node = Bus::start(config, registry, &system.shutdown).unwrap();
    node.wait_ready(Duration::from_secs(10)).await.unwrap();
    node
}

async fn await_refusal(node: &Bus, expected: Option<KeySetError>) {
    let refusal = async || node.key_set_refusal();
    let found = eventually(TEST_TIMEOUT, refusal, |refusal| *refusal == expected).await;
    assert_eq!(found, expected);
}

/// What a program with access to Redis writes there, as a control plane does.
async fn inject(system: &TestSystem, keys: &PublishedKeys, version: u64) {
    let list = serde_json::to_string(&keys.keys).unwrap();
    let signed = keys.signed.as_deref();
    for (name, value) in [("keys", Some(list.as_str())), ("signed-keys", signed)] {
        let name = stored_at(name);
        match value {
            Some(value) => system.query::<()>(cmd("SET").arg(name).arg(value)).await,
            None => system.query::<()>(cmd("DEL").arg(name)).await,
        }
    }
    let mut set = cmd("SET");
    set.arg(stored_at("version")).arg(version);
    system.query::<()>(&set).await;
}

fn stored_at(name: &str) -> String {
    format!("test:{{trust}}:{name}")
}

#[tokio::test]
async fn injected_key_is_refused_by_a_pinned_node() {
    let system = TestSystem::redis().await;
    let (control, open) = system.start_nodes("control", "open").await;
    let registry = Registry::new();
    let node = pinned(&system, &[9], &registry).await;
    let (good, forged) = (claims(1), claims(2));
    let token = key(1).sign(&good).unwrap();
    let forged_token = key(6).sign(&forged).unwrap();
    control
        .publish_keys(signed(9, &[1], 10), vec![])
        .await
        .unwrap();
    await_verification(&node, &token, Ok(good.clone())).await;
    await_verification(&open, &token, Ok(good.clone())).await;

    // A foreign key beside the good one: without a signature, with a foreign one, and with the
    // signature of the former set.
    let former = control.key_set().await.unwrap().unwrap().signed;
    let mut unsigned = signed(9, &[1, 6], 11);
    unsigned.signed = None;
    inject(&system, &unsigned, 1).await;
    await_verification(&open, &forged_token, Ok(forged.clone())).await;
    await_refusal(&node, Some(KeySetError::Unsigned)).await;
    inject(&system, &signed(6, &[1, 6], 12), 2).await;
    await_refusal(&node, Some(KeySetError::UnknownKey)).await;
    assert_eq!(node.verify(&forged_token), Err(UNKNOWN_KEY));
    assert_eq!(node.verify(&token), Ok(good.clone()));
    let mut mixed = signed(9, &[1, 6], 13);
    mixed.signed = former;
    inject(&system, &mixed, 3).await;
    await_refusal(&node, None).await;
    assert_eq!(node.verify(&forged_token), Err(UNKNOWN_KEY));
    let refused = registry.gather();
    let refused = refused
        .iter()
        .find(|family| family.name() == "switchboard_bus_key_sets_refused_total");
    assert!(refused.unwrap().get_metric()[0].get_counter().get_value() >= 2.0);

    // The keys of the control plane continue to be adopted: the first one is retired and deleted.
    let next = claims(3);
    let next_token = key(2).sign(&next).unwrap();
    control
        .publish_keys(signed(9, &[2], 20), vec![])
        .await
        .unwrap();
    await_verification(&node, &next_token, Ok(next.clone())).await;
    assert_eq!(node.verify(&token), Err(UNKNOWN_KEY));

    // A former set, with the deleted key, is not adopted again.
    inject(&system, &signed(9, &[1], 10), 4).await;
    await_refusal(&node, Some(KeySetError::Outdated)).await;
    await_verification(&open, &token, Ok(good)).await;
    assert_eq!(node.verify(&token), Err(UNKNOWN_KEY));
    assert_eq!(node.verify(&next_token), Ok(next));
}

#[tokio::test]
async fn pinned_node_has_no_keys_until_they_are_signed() {
    for_each_backend(|system| async move {
        let control = system.start_node("control").await;
        let node = pinned(&system, &[9], &Registry::new()).await;
        let claims = claims(1);
        let token = key(1).sign(&claims).unwrap();
        let keys = vec![key(1).verifying_key()];
        control.publish_keys(keys, vec![]).await.unwrap();
        await_refusal(&node, Some(KeySetError::Unsigned)).await;
        assert_eq!(node.verify(&token), Err(TokenError::NoKeys));
        let waited = node.wait_for_keys(Duration::from_millis(50)).await;
        assert!(matches!(waited, Err(BusError::Timeout(_))), "{waited:?}");
        control
            .publish_keys(signed(9, &[1], 1), vec![])
            .await
            .unwrap();
        await_verification(&node, &token, Ok(claims)).await;
        await_refusal(&node, None).await;
    })
    .await;
}

#[tokio::test]
async fn two_keys_are_trusted_during_a_rotation() {
    for_each_backend(|system| async move {
        let control = system.start_node("control").await;
        let node = pinned(&system, &[8, 9], &Registry::new()).await;
        for (signer, seed) in [(9, 1), (8, 2)] {
            let claims = claims(1);
            let token = key(seed).sign(&claims).unwrap();
            let keys = signed(signer, &[seed], u64::from(seed));
            control.publish_keys(keys, vec![]).await.unwrap();
            await_verification(&node, &token, Ok(claims)).await;
        }
    })
    .await;
}
