//! Published quotas reach every node, and bound the connected devices of an organisation.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use switchboard_bus::{Bus, BusError, DisconnectReason, PublishedKeys, QuotaLimits};
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    token::SigningKey,
};
use switchboard_runtime::quota::{Limits, Quota, QuotaExceeded};
use switchboard_test_support::eventually::eventually;
use tracing::{Event, Level, Metadata, Subscriber, span};
use uuid::Uuid;

use crate::{
    for_each_backend,
    test_edge::{TestSystem, org},
};

/// Within this, every node has what was published.
const TEST_TIMEOUT: Duration = Duration::from_secs(5);

fn devices(limit: u64) -> Limits {
    Limits(BTreeMap::from([(Quota::DevicesConnected, limit)]))
}

fn device(org: OrgId, number: u32) -> DeviceKey {
    DeviceKey {
        org,
        device: format!("toy-{number}").parse().unwrap(),
    }
}

async fn publish(control: &Bus, edges: &[&Bus], own: Option<u64>, default: u64) {
    let quotas = QuotaLimits {
        defaults: devices(default),
        orgs: own.map(|own| (org(), devices(own))).into_iter().collect(),
        locales: vec![(org(), "de".to_owned())],
        journal_params: vec![org()],
        approving: Some(vec![org()]),
    };
    control.publish_quotas(&quotas).await.unwrap();
    let expected = Some(own.unwrap_or(default)).filter(|limit| *limit > 0);
    for edge in edges {
        let limit = async || edge.quota_limit(org(), Quota::DevicesConnected);
        let seen = eventually(TEST_TIMEOUT, limit, |limit| *limit == expected).await;
        assert_eq!(seen, expected);
        let other = OrgId::from_uuid(Uuid::from_u128(0xabc));
        let locales = (
            edge.org_locale(org(), str::to_owned),
            edge.org_locale(other, str::to_owned),
        );
        assert_eq!(locales, (Some("de".to_owned()), None));
        let journals = (edge.journals_params(org()), edge.journals_params(other));
        assert_eq!(journals, (true, false));
        let approving = (
            edge.requires_approvals(org()),
            edge.requires_approvals(other),
        );
        assert_eq!(approving, (Some(true), Some(false)));
    }
    assert_eq!(control.published_quotas().await.unwrap(), Some(quotas));
}

#[tokio::test]
async fn policy_that_a_control_of_a_former_release_does_not_publish_is_unknown() {
    for_each_backend(|system| async move {
        let (one, two) = system.start_nodes("one", "two").await;
        publish(&one, &[&two], None, 3).await;
        let former = QuotaLimits {
            defaults: devices(4),
            ..QuotaLimits::default()
        };
        one.publish_quotas(&former).await.unwrap();
        let policy = async || two.requires_approvals(org());
        eventually(TEST_TIMEOUT, policy, Option::is_none).await;
    })
    .await;
}

#[tokio::test]
async fn connected_devices_of_an_organisation_are_limited() {
    for_each_backend(|system| async move {
        let (one, two) = system.start_nodes("one", "two").await;
        let other = OrgId::from_uuid(Uuid::now_v7());
        publish(&one, &[&one, &two], None, 3).await;
        let mut newest = None;
        for number in 0..3 {
            let edge = if number == 1 { &two } else { &one };
            newest = Some(edge.claim(&device(org(), number)).await.unwrap());
        }
        let refused = |limit| QuotaExceeded {
            quota: Quota::DevicesConnected,
            used: 3,
            limit,
        };
        for edge in [&one, &two] {
            match edge.claim(&device(org(), 9)).await {
                Err(BusError::Quota(exceeded)) => assert_eq!(exceeded, refused(3)),
                other => panic!("{other:?}"),
            }
        }
        // Neither another organisation nor a takeover is affected, at the quota and above it.
        two.claim(&device(other, 1)).await.unwrap();
        two.claim(&device(org(), 0)).await.unwrap();
        publish(&one, &[&one, &two], Some(2), 3).await;
        one.claim(&device(org(), 0)).await.unwrap();
        assert_eq!(two.count_devices(org()).await.unwrap(), 3);
        assert!(matches!(
            one.claim(&device(org(), 9)).await,
            Err(BusError::Quota(exceeded)) if exceeded == refused(2)
        ));
        // Raised by one: one more.
        publish(&one, &[&one, &two], Some(4), 3).await;
        two.claim(&device(org(), 9)).await.unwrap();
        assert!(one.claim(&device(org(), 10)).await.is_err());
        // A disconnected device leaves room.
        let reason = DisconnectReason::Closed;
        one.release(device(org(), 2), newest.unwrap().epoch, None, reason);
        let claim = async || one.claim(&device(org(), 10)).await.is_ok();
        assert!(eventually(TEST_TIMEOUT, claim, |claimed| *claimed).await);
        // 0 is unlimited.
        publish(&one, &[&one, &two], Some(0), 3).await;
        for number in 20..30 {
            two.claim(&device(org(), number)).await.unwrap();
        }
    })
    .await;
}

/// Counts the errors about quotas that are logged.
struct QuotaErrors(Arc<AtomicUsize>);

impl Subscriber for QuotaErrors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR && metadata.target() == "switchboard_bus::quotas"
    }

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn unreadable_quotas_are_reported_once_and_keys_adopted() {
    let errors = Arc::new(AtomicUsize::new(0));
    let _guard = tracing::subscriber::set_default(QuotaErrors(Arc::clone(&errors)));
    let system = TestSystem::redis().await;
    let node = system.start_node("node").await;
    let keys = vec![SigningKey::from_seed(&[7; 32]).verifying_key()];
    let keys = PublishedKeys { keys, signed: None };
    node.publish_keys(keys, vec![]).await.unwrap();
    let mut version = 0;
    for (stored, reported) in [("{", 1), ("[]", 2)] {
        system
            .query::<()>(redis::cmd("SET").arg("test:quotas").arg(stored))
            .await;
        // Each time the node reads the quotas before the key set.
        for _ in 0..4 {
            version += 1;
            let org = OrgId::from_uuid(Uuid::from_u128(u128::from(version)));
            node.publish_suspended_orgs(&[org], version).await.unwrap();
            let adopted = async || node.is_suspended(org);
            eventually(TEST_TIMEOUT, adopted, |adopted| *adopted).await;
        }
        assert_eq!(errors.load(Ordering::Relaxed), reported, "{stored}");
    }
    publish(&node, &[&node], None, 3).await;
    assert_eq!(errors.load(Ordering::Relaxed), 2);
}
