//! Background work: device events are stored, and token keys are published.

use std::time::Duration;

use bytes::Bytes;
use chrono::{TimeDelta, Utc};
use switchboard_bus::{Bus, BusConfig, DisconnectReason};
use switchboard_control::{Config, Deps};
use switchboard_protocol::{
    id::{DeviceKey, OrgId, TokenId},
    schema::Digest,
    token::Scope,
};
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::{IssuedToken, StoredDevice};
use switchboard_test_support::eventually::{eventually_some, eventually_true};
use uuid::Uuid;

use crate::installation::{Installation, OPERATOR_KEY, config};

impl Installation {
    async fn recorded(
        &self,
        key: &DeviceKey,
        what: &str,
        is: impl Fn(&StoredDevice) -> bool,
    ) -> StoredDevice {
        let device = async || self.store.device(key.org, &key.device).await.ok().flatten();
        eventually_some(what, async || device().await.filter(|device| is(device))).await
    }
}

fn key(org: OrgId, device: &str) -> DeviceKey {
    DeviceKey {
        org,
        device: device.parse().unwrap(),
    }
}

#[tokio::test]
async fn device_events_are_stored() {
    let installation = Installation::start().await;
    let device = key(installation.new_org("Toys").await.id(), "toy-1");
    let epoch = installation.bus.claim(&device).await.unwrap().epoch;
    let known = installation
        .recorded(&device, "it connected", |_| true)
        .await;
    assert_eq!((known.left_reason, known.digest), (None, None));

    let services = Bytes::from_static("{\"唱歌\": {\"description\":  \"sings\"}}".as_bytes());
    let digest = Digest::compute(&services);
    installation
        .bus
        .register(&device, epoch, None, (digest, &services))
        .await
        .unwrap();
    let known = installation
        .recorded(&device, "it registered", |known| known.digest.is_some())
        .await;
    assert_eq!(known.digest, Some(digest));
    let store = &installation.store;
    let stored = store.services(device.org, &[digest]).await.unwrap();
    assert_eq!(stored[0].as_ref().unwrap().get().as_bytes(), services);

    installation.bus.release(
        device.clone(),
        epoch,
        Some(digest),
        DisconnectReason::IdleTimeout,
    );
    let known = installation
        .recorded(&device, "it left", |known| known.left_reason.is_some())
        .await;
    assert_eq!(known.left_reason.as_deref(), Some("idle_timeout"));
    assert_eq!(known.digest, Some(digest), "of a disconnected device");
    eventually_true("all events are counted", || {
        installation.metric("switchboard_control_facts_written_total") >= 3.0
    })
    .await;
}

#[tokio::test]
async fn events_are_written_when_the_database_is_back() {
    let installation = Installation::start().await;
    let device = key(installation.new_org("Toys").await.id(), "toy-1");
    installation.database.set_unavailable(true).await.unwrap();
    installation.bus.claim(&device).await.unwrap();
    assert!(
        installation
            .store
            .device(device.org, &device.device)
            .await
            .is_err()
    );
    installation.database.set_unavailable(false).await.unwrap();
    installation
        .recorded(&device, "the fact survived", |_| true)
        .await;
}

#[tokio::test]
async fn event_that_cannot_be_stored_blocks_no_other() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let org = installation.new_org("Toys").await.id();
    let unknown_org = OrgId::from_uuid(Uuid::now_v7());
    for device in ["a", "b", "c"] {
        installation.bus.claim(&key(org, device)).await.unwrap();
    }
    installation
        .bus
        .claim(&key(unknown_org, "ghost"))
        .await
        .unwrap();
    for device in ["d", "e"] {
        installation.bus.claim(&key(org, device)).await.unwrap();
    }
    installation.start_workers();
    for device in ["a", "b", "c", "d", "e"] {
        installation
            .recorded(&key(org, device), device, |_| true)
            .await;
    }
    eventually_true("the skipped event is counted", || {
        installation.metric("switchboard_control_facts_skipped_total") >= 1.0
    })
    .await;
}

#[tokio::test]
async fn events_of_an_organisation_do_not_wait_behind_those_of_another() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let noisy = key(installation.new_org("Noisy").await.id(), "toy-1");
    let epoch = installation.bus.claim(&noisy).await.unwrap().epoch;
    for _ in 0..2_000 {
        let event = Bytes::from_static(br#"{"name": "button"}"#);
        installation
            .bus
            .record_custom_event(noisy.clone(), epoch, event);
    }
    // While the database creates it, those are written to the bus.
    let quiet = key(installation.new_org("Quiet").await.id(), "toy-1");
    installation.bus.claim(&quiet).await.unwrap();
    let one_by_one = Config {
        facts_batch: 1,
        ..config()
    };
    installation.start_workers_with(&one_by_one);
    installation
        .recorded(&quiet, "its event is written", |_| true)
        .await;
    let written = installation.metric("switchboard_control_facts_written_total");
    assert!(written < 200.0, "{written} events were written first");
}

#[tokio::test]
async fn pending_events_are_written_while_draining() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let device = key(installation.new_org("Toys").await.id(), "toy-1");
    let background = Shutdown::new();
    let deps = installation.deps(&installation.registry);
    switchboard_control::start_workers(&config(), &deps, &background).unwrap();
    let epoch = installation.bus.claim(&device).await.unwrap().epoch;
    installation
        .bus
        .release(device.clone(), epoch, None, DisconnectReason::Drain);
    background.drain();
    assert!(background.finished(Duration::from_secs(10)).await);
    let known = installation
        .store
        .device(device.org, &device.device)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(known.left_reason.as_deref(), Some("drain"));
}

#[tokio::test]
async fn draining_does_not_wait_for_new_events() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let background = Shutdown::new();
    let deps = installation.deps(&installation.registry);
    switchboard_control::start_workers(&config(), &deps, &background).unwrap();
    // The workers start together: once the keys are published, the read of events is in flight.
    installation.trusted().await;
    background.drain();
    assert!(background.finished(Duration::from_secs(1)).await);
}

#[tokio::test]
async fn keys_are_published_when_the_database_is_back() {
    let installation = Installation::idle(None).await;
    installation.database.set_unavailable(true).await.unwrap();
    installation.start_workers();
    assert!(installation.store.signing_keys().await.is_err());
    assert!(!installation.bus.has_keys());
    installation.database.set_unavailable(false).await.unwrap();
    installation.trusted().await;
    eventually_true("the publication is counted", || {
        installation.metric("switchboard_control_trust_published") > 0.0
    })
    .await;
}

#[tokio::test]
async fn lost_revocation_is_published_within_five_seconds() {
    let installation = Installation::start().await;
    installation.trusted().await;
    let org = installation.new_org("Toys").await.id();
    let token = IssuedToken {
        id: TokenId::from_uuid(Uuid::now_v7()),
        org,
        subject: "client:app".to_owned(),
        scopes: [Scope::Call].into_iter().collect(),
        issued_at: Utc::now(),
        expires_at: Utc::now() + TimeDelta::hours(1),
    };
    installation.store.add_token(&token).await.unwrap();
    installation
        .store
        .revoke_token(org, token.id)
        .await
        .unwrap()
        .unwrap();
    let spread = eventually_true("the revocation reaches the node", || {
        installation.bus.is_revoked(token.id)
    });
    tokio::time::timeout(Duration::from_secs(5), spread)
        .await
        .unwrap();
}

#[tokio::test]
async fn replicas_share_one_signing_key() {
    let installation = Installation::idle(None).await;
    let registry = prometheus::Registry::new();
    let node = BusConfig::local(&installation.hub, "second");
    let second = Bus::start(node, &registry, &installation.shutdown).unwrap();
    let deps = Deps {
        bus: second.clone(),
        ..installation.deps(&registry)
    };
    switchboard_control::start_workers(&config(), &deps, &installation.shutdown).unwrap();
    installation.start_workers();
    installation.trusted().await;
    eventually_true("the second node has the keys", || second.has_keys()).await;
    assert_eq!(installation.store.signing_keys().await.unwrap().len(), 1);
}
