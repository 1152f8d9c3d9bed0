//! What the control plane does without being asked: it keeps the record of devices, and spreads trust.

use std::time::Duration;

use bytes::Bytes;
use chrono::{TimeDelta, Utc};
use switchboard_bus::{Bus, BusConfig, LeftReason};
use switchboard_protocol::{
    access::Scope,
    id::{DeviceKey, OrgId, TokenId},
    schema::Digest,
};
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::{IssuedToken, StoredDevice};
use uuid::Uuid;

use crate::installation::{Installation, OPERATOR_KEY, config, eventually};

impl Installation {
    async fn recorded(
        &self,
        key: &DeviceKey,
        what: &str,
        is: impl Fn(&StoredDevice) -> bool,
    ) -> StoredDevice {
        let device = async || self.store.device(key.org, &key.device).await.ok().flatten();
        eventually(what, async || device().await.filter(|device| is(device))).await
    }
}

fn key(org: OrgId, device: &str) -> DeviceKey {
    DeviceKey {
        org,
        device: device.parse().unwrap(),
    }
}

#[tokio::test]
async fn what_happens_to_a_device_is_on_record() {
    let installation = Installation::start().await;
    let toy = key(installation.new_org("Toys").await.id(), "toy-1");
    let epoch = installation.bus.claim(&toy).await.unwrap();
    let known = installation.recorded(&toy, "it connected", |_| true).await;
    assert_eq!((known.left_reason, known.services.is_none()), (None, true));

    let services = Bytes::from_static("{\"唱歌\": {\"description\":  \"sings\"}}".as_bytes());
    let digest = Digest::of(&services);
    installation
        .bus
        .announce(&toy, epoch, None, (digest, &services))
        .await
        .unwrap();
    let known = installation
        .recorded(&toy, "it registered", |known| known.services.is_some())
        .await;
    assert_eq!(known.services.unwrap().get().as_bytes(), services);

    installation
        .bus
        .release(toy.clone(), epoch, Some(digest), LeftReason::IdleTimeout);
    let known = installation
        .recorded(&toy, "it left", |known| known.left_reason.is_some())
        .await;
    assert_eq!(known.left_reason.as_deref(), Some("idle_timeout"));
    assert!(
        known.services.is_some(),
        "what it offers is known while it sleeps"
    );
    eventually("all are counted", async || {
        (installation.metric("switchboard_control_facts_written_total") >= 3.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn facts_wait_for_the_database() {
    let installation = Installation::start().await;
    let toy = key(installation.new_org("Toys").await.id(), "toy-1");
    installation.database.set_away(true).await.unwrap();
    installation.bus.claim(&toy).await.unwrap();
    assert!(
        installation
            .store
            .device(toy.org, &toy.device)
            .await
            .is_err()
    );
    installation.database.set_away(false).await.unwrap();
    installation
        .recorded(&toy, "the fact survived", |_| true)
        .await;
}

#[tokio::test]
async fn a_fact_that_cannot_be_stored_stops_no_other() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let org = installation.new_org("Toys").await.id();
    let nobody = OrgId::from_uuid(Uuid::now_v7());
    for device in ["a", "b", "c"] {
        installation.bus.claim(&key(org, device)).await.unwrap();
    }
    installation.bus.claim(&key(nobody, "ghost")).await.unwrap();
    for device in ["d", "e"] {
        installation.bus.claim(&key(org, device)).await.unwrap();
    }
    installation.start_background();
    for device in ["a", "b", "c", "d", "e"] {
        installation
            .recorded(&key(org, device), device, |_| true)
            .await;
    }
    eventually("the bad one is counted", async || {
        (installation.metric("switchboard_control_facts_skipped_total") >= 1.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn facts_that_are_there_when_draining_begins_are_written() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let toy = key(installation.new_org("Toys").await.id(), "toy-1");
    let background = Shutdown::new();
    let (store, bus) = (installation.store.clone(), installation.bus.clone());
    switchboard_control::start(&config(), store, bus, &installation.registry, &background).unwrap();
    let epoch = installation.bus.claim(&toy).await.unwrap();
    installation
        .bus
        .release(toy.clone(), epoch, None, LeftReason::Drain);
    background.drain();
    assert!(background.finished(Duration::from_secs(10)).await);
    let known = installation
        .store
        .device(toy.org, &toy.device)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(known.left_reason.as_deref(), Some("drain"));
}

#[tokio::test]
async fn draining_does_not_wait_for_facts_that_may_never_come() {
    let installation = Installation::idle(Some(OPERATOR_KEY)).await;
    let background = Shutdown::new();
    let (store, bus) = (installation.store.clone(), installation.bus.clone());
    switchboard_control::start(&config(), store, bus, &installation.registry, &background).unwrap();
    // Trust and facts are begun at once: with the keys there, the question for facts is under way.
    installation.trusted().await;
    background.drain();
    assert!(background.finished(Duration::from_secs(1)).await);
}

#[tokio::test]
async fn trust_is_published_when_the_database_comes_late() {
    let installation = Installation::idle(None).await;
    installation.database.set_away(true).await.unwrap();
    installation.start_background();
    assert!(installation.store.signing_keys().await.is_err());
    assert!(!installation.bus.has_keys());
    installation.database.set_away(false).await.unwrap();
    installation.trusted().await;
    eventually("it is counted", async || {
        (installation.metric("switchboard_control_trust_published") > 0.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_revocation_that_the_bus_missed_arrives_within_five_seconds() {
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
    let spread = eventually("it is revoked", async || {
        installation.bus.is_revoked(token.id).then_some(())
    });
    tokio::time::timeout(Duration::from_secs(5), spread)
        .await
        .unwrap();
}

#[tokio::test]
async fn replicas_sign_with_one_key() {
    let installation = Installation::idle(None).await;
    let registry = prometheus::Registry::new();
    let node = BusConfig::local(&installation.hub, "second");
    let second = Bus::start(node, &registry, &installation.shutdown).unwrap();
    let store = installation.store.clone();
    switchboard_control::start(
        &config(),
        store,
        second.clone(),
        &registry,
        &installation.shutdown,
    )
    .unwrap();
    installation.start_background();
    installation.trusted().await;
    eventually("the second has them too", async || {
        second.has_keys().then_some(())
    })
    .await;
    assert_eq!(installation.store.signing_keys().await.unwrap().len(), 1);
}
