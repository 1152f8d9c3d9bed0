//! A catalog watch receives every change, or a notice that it lagged.

use std::time::Duration;

use switchboard_bus::{CatalogEvent, CatalogWatch};
use switchboard_protocol::{id::DeviceKey, schema::Digest};
use tokio::{task::JoinSet, time::timeout};

use crate::{
    for_each_backend,
    test_edge::{TestSystem, device},
};

/// The longest that an event may take; usually it arrives within milliseconds.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

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
async fn moved_device_has_no_services_until_it_registers() {
    for_each_backend(|system| async move {
        let (from, to) = system.start_edges("from", "to").await;
        let watcher = system.start_watcher("watcher").await;
        let mut events = watcher.watch_catalog().unwrap();
        let device = from.connect_device("toy-1").await;
        let digest = from.register(&device, "{}").await;
        assert_eq!(next(&mut events).await, services(&device, Some(digest)));
        to.connect(&device).await;
        assert_eq!(next(&mut events).await, services(&device, None));
        to.register(&device, "{}").await;
        assert_eq!(next(&mut events).await, services(&device, Some(digest)));
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
