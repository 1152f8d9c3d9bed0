//! A catalog watch receives every change, or a notice that it lagged.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use switchboard_bus::{CatalogEvent, CatalogWatch};
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    schema::Digest,
};
use tokio::{task::JoinSet, time::timeout};
use uuid::Uuid;

use crate::{
    for_each_backend,
    test_edge::{TestSystem, device},
};

/// The longest that an event may take; usually it arrives within milliseconds.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a task was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Woken {
    fn is_woken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

pub fn services(device: &DeviceKey, digest: Option<Digest>) -> CatalogEvent {
    let device = device.clone();
    CatalogEvent::Services { device, digest }
}

async fn next(events: &mut CatalogWatch) -> CatalogEvent {
    timeout(EVENT_TIMEOUT, events.next())
        .await
        .expect("an event")
}

/// Reads events until this one.
pub async fn await_event(events: &mut CatalogWatch, wanted: &CatalogEvent, within: Duration) {
    let found = async { while events.next().await != *wanted {} };
    let found = timeout(within, found).await;
    assert!(found.is_ok(), "{wanted:?} did not come within {within:?}");
}

#[tokio::test]
async fn every_watcher_receives_changes_of_services() {
    for_each_backend(|system| async move {
        let edge = system.start_edge("edge").await;
        let (one, two) = (
            system.start_watcher("one").await,
            system.start_watcher("two").await,
        );
        assert!(
            edge.bus.watch_catalog().is_none(),
            "the edge does not watch the catalog"
        );
        let lamp = device("toy-1");
        let (mut one, mut two) = (one.watch_catalog().unwrap(), two.watch_catalog().unwrap());
        edge.connect(&lamp).await;
        let first = edge.register(&lamp, "{\"a\":{}}").await;
        // A device without services, or the same services again, is no change.
        edge.connect(&device("bare")).await;
        edge.disconnect(&device("bare"));
        edge.register(&lamp, "{\"a\":{}}").await;
        let second = edge.register(&lamp, "{\"b\":{}}").await;
        edge.disconnect(&lamp);
        for events in [&mut one, &mut two] {
            assert_eq!(next(events).await, services(&lamp, Some(first)));
            assert_eq!(next(events).await, services(&lamp, Some(second)));
            assert_eq!(next(events).await, services(&lamp, None));
        }
        let new_epoch = edge.connect(&lamp).await;
        let third = edge.register(&lamp, "{\"b\":{}}").await;
        assert_eq!(third, second);
        for events in [&mut one, &mut two] {
            assert_eq!(next(events).await, services(&lamp, Some(third)));
        }
        // The directory already has what the event reports.
        let presence = edge.bus.find(&lamp).await.unwrap().unwrap();
        assert_eq!((presence.epoch, presence.digest), (new_epoch, Some(third)));
    })
    .await;
}

#[tokio::test]
async fn events_of_another_org_do_not_wake_its_watchers() {
    for_each_backend(|system| async move {
        let edge = system.start_edge("edge").await;
        let watcher = system.start_watcher("watcher").await;
        let own = device("toy-1");
        let other = DeviceKey {
            org: OrgId::from_uuid(Uuid::from_u128(9)),
            ..own.clone()
        };
        let mut watch = watcher.watch_catalog_of(own.org).unwrap();
        let mut witness = watcher.watch_catalog().unwrap();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        {
            let mut next_own = pin!(watch.next());
            let polled = next_own.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            edge.connect(&other).await;
            let first = edge.register(&other, "{\"a\":{}}").await;
            await_event(&mut witness, &services(&other, Some(first)), EVENT_TIMEOUT).await;
            for org in [other.org, own.org] {
                let event = CatalogEvent::Prompts { org: Some(org) };
                edge.bus.publish_catalog_event(event.clone()).await.unwrap();
                await_event(&mut witness, &event, EVENT_TIMEOUT).await;
                assert_eq!(woken.is_woken(), org == own.org);
            }
        }
        let event = CatalogEvent::Prompts { org: Some(own.org) };
        assert_eq!(next(&mut watch).await, event);
        let event = CatalogEvent::Prompts { org: None };
        edge.bus.publish_catalog_event(event.clone()).await.unwrap();
        assert_eq!(next(&mut watch).await, event);
    })
    .await;
}

#[tokio::test]
async fn moved_device_keeps_its_services_until_it_registers() {
    for_each_backend(|system| async move {
        let (from, to) = system.start_edges("from", "to").await;
        let watcher = system.start_watcher("watcher").await;
        let mut events = watcher.watch_catalog().unwrap();
        let device = from.connect_device("toy-1").await;
        let digest = from.register(&device, "{}").await;
        assert_eq!(next(&mut events).await, services(&device, Some(digest)));
        to.connect(&device).await;
        to.register(&device, "{}").await;
        let other = to.register(&device, "{\"a\":{}}").await;
        assert_eq!(next(&mut events).await, services(&device, Some(other)));
    })
    .await;
}

#[tokio::test]
async fn devices_of_a_leaving_node_cause_events() {
    for_each_backend(|system| async move {
        let edge = system.start_edge("edge").await;
        let watcher = system.start_watcher("watcher").await;
        let mut events = watcher.watch_catalog().unwrap();
        let device = edge.connect_device("toy-1").await;
        let digest = edge.register(&device, "{}").await;
        edge.disconnect(&device);
        edge.shutdown.stop();
        assert_eq!(next(&mut events).await, services(&device, Some(digest)));
        assert_eq!(next(&mut events).await, services(&device, None));
    })
    .await;
}

#[tokio::test]
async fn slow_watch_lags() {
    for_each_backend(|system| async move {
        let edge = system.start_edge("edge").await;
        let watcher = system.start_watcher("watcher").await;
        let mut events = watcher.watch_catalog().unwrap();
        let device = edge.connect_device("toy-1").await;
        let wanted = services(&device, Some(Digest::compute(b"{\"c\":{}}")));
        let mut witness = watcher.watch_catalog().unwrap();
        let mut witnesses = JoinSet::from_iter([{
            let wanted = wanted.clone();
            async move { await_event(&mut witness, &wanted, 2 * EVENT_TIMEOUT).await }
        }]);
        for _ in 0..600 {
            edge.register(&device, "{\"a\":{}}").await;
            edge.register(&device, "{\"b\":{}}").await;
        }
        edge.register(&device, "{\"c\":{}}").await;
        // All events have arrived; the earliest were dropped.
        witnesses.join_next().await.unwrap().unwrap();
        assert_eq!(next(&mut events).await, CatalogEvent::Lagged);
        await_event(&mut events, &wanted, EVENT_TIMEOUT).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_lags_after_a_redis_outage() {
    let mut system = TestSystem::redis().await;
    let edge = system.start_edge("edge").await;
    let watcher = system.start_watcher("watcher").await;
    let mut events = watcher.watch_catalog().unwrap();
    let device = edge.connect_device("toy-1").await;
    let digest = edge.register(&device, "{}").await;
    assert_eq!(next(&mut events).await, services(&device, Some(digest)));
    system.server().kill();
    system.server().restart();
    await_event(&mut events, &CatalogEvent::Lagged, EVENT_TIMEOUT).await;
    // From now on all events arrive again.
    edge.bus.wait_ready(EVENT_TIMEOUT).await.unwrap();
    let newer = edge.register(&device, "{\"b\":{}}").await;
    await_event(&mut events, &services(&device, Some(newer)), EVENT_TIMEOUT).await;
}

/// The entries were not visible for a while, and are again without a write.
#[tokio::test]
async fn watch_lags_when_an_expired_redis_lease_is_renewed() {
    let system = TestSystem::redis().await;
    let node = system.start_watcher("node").await;
    let mut events = node.watch_catalog().unwrap();
    system.expire_lease(node.node()).await;
    assert_eq!(next(&mut events).await, CatalogEvent::Lagged);
}
