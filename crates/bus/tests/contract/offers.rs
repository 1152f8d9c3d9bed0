//! Who follows registrations hears of every change, or that some were missed.

use std::time::Duration;

use switchboard_bus::{OfferChange, OfferChanges};
use switchboard_protocol::{id::DeviceKey, schema::Digest};
use tokio::{task::JoinSet, time::timeout};

use crate::{
    over_all,
    station::{Site, device},
};

/// How long an event may take when nothing is wrong, with much to spare.
const SHORTLY: Duration = Duration::from_secs(5);

pub fn services(device: &DeviceKey, digest: Option<Digest>) -> OfferChange {
    let device = device.clone();
    OfferChange::Services { device, digest }
}

async fn next(events: &mut OfferChanges) -> OfferChange {
    timeout(SHORTLY, events.next()).await.expect("an event")
}

/// Reads on until this event comes.
pub async fn await_event(events: &mut OfferChanges, wanted: &OfferChange, within: Duration) {
    let found = async { while events.next().await != *wanted {} };
    let found = timeout(within, found).await;
    assert!(found.is_ok(), "{wanted:?} did not come within {within:?}");
}

#[tokio::test]
async fn what_devices_offer_is_told_to_every_node_that_follows() {
    over_all(|site| async move {
        let edge = site.station("edge").await;
        let (one, two) = (site.follower("one").await, site.follower("two").await);
        assert!(edge.bus.offer_changes().is_none(), "it does not follow");
        let toy = device("toy-1");
        let (mut one, mut two) = (one.offer_changes().unwrap(), two.offer_changes().unwrap());
        edge.connect(&toy).await;
        let first = edge.register(&toy, "{\"a\":{}}").await;
        // Neither a device without services nor the same set once more is a change.
        edge.connect(&device("bare")).await;
        edge.disconnect(&device("bare"));
        edge.register(&toy, "{\"a\":{}}").await;
        let second = edge.register(&toy, "{\"b\":{}}").await;
        edge.disconnect(&toy);
        for events in [&mut one, &mut two] {
            assert_eq!(next(events).await, services(&toy, Some(first)));
            assert_eq!(next(events).await, services(&toy, Some(second)));
            assert_eq!(next(events).await, services(&toy, None));
        }
        let again = edge.connect(&toy).await;
        let third = edge.register(&toy, "{\"b\":{}}").await;
        assert_eq!(third, second);
        for events in [&mut one, &mut two] {
            assert_eq!(next(events).await, services(&toy, Some(third)));
        }
        // What was told can be read by then.
        let presence = edge.bus.find(&toy).await.unwrap().unwrap();
        assert_eq!((presence.epoch, presence.digest), (again, Some(third)));
    })
    .await;
}

#[tokio::test]
async fn a_device_that_moves_has_no_services_until_it_registers_there() {
    over_all(|site| async move {
        let (from, to) = (site.station("from").await, site.station("to").await);
        let follower = site.follower("follower").await;
        let mut events = follower.offer_changes().unwrap();
        let toy = device("toy-1");
        from.connect(&toy).await;
        let digest = from.register(&toy, "{}").await;
        assert_eq!(next(&mut events).await, services(&toy, Some(digest)));
        to.connect(&toy).await;
        assert_eq!(next(&mut events).await, services(&toy, None));
        to.register(&toy, "{}").await;
        assert_eq!(next(&mut events).await, services(&toy, Some(digest)));
    })
    .await;
}

#[tokio::test]
async fn the_devices_of_a_node_that_leaves_are_told() {
    over_all(|site| async move {
        let edge = site.station("edge").await;
        let follower = site.follower("follower").await;
        let mut events = follower.offer_changes().unwrap();
        let toy = device("toy-1");
        edge.connect(&toy).await;
        let digest = edge.register(&toy, "{}").await;
        edge.disconnect(&toy);
        edge.shutdown.stop();
        assert_eq!(next(&mut events).await, services(&toy, Some(digest)));
        assert_eq!(next(&mut events).await, services(&toy, None));
    })
    .await;
}

#[tokio::test]
async fn a_follower_that_reads_too_slowly_is_told_that_it_missed_some() {
    over_all(|site| async move {
        let edge = site.station("edge").await;
        let follower = site.follower("follower").await;
        let mut events = follower.offer_changes().unwrap();
        let toy = device("toy-1");
        edge.connect(&toy).await;
        let wanted = services(&toy, Some(Digest::of(b"{\"c\":{}}")));
        let mut witness = follower.offer_changes().unwrap();
        let mut witnesses = JoinSet::from_iter([{
            let wanted = wanted.clone();
            async move { await_event(&mut witness, &wanted, 2 * SHORTLY).await }
        }]);
        for _ in 0..600 {
            edge.register(&toy, "{\"a\":{}}").await;
            edge.register(&toy, "{\"b\":{}}").await;
        }
        edge.register(&toy, "{\"c\":{}}").await;
        // All has come to the node; what came first has given way.
        witnesses.join_next().await.unwrap().unwrap();
        assert_eq!(next(&mut events).await, OfferChange::Missed);
        await_event(&mut events, &wanted, SHORTLY).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_is_told_that_it_missed_some_while_redis_was_away() {
    let mut site = Site::redis().await;
    let edge = site.station("edge").await;
    let follower = site.follower("follower").await;
    let mut events = follower.offer_changes().unwrap();
    let toy = device("toy-1");
    edge.connect(&toy).await;
    let digest = edge.register(&toy, "{}").await;
    assert_eq!(next(&mut events).await, services(&toy, Some(digest)));
    site.server().kill();
    site.server().restart();
    await_event(&mut events, &OfferChange::Missed, SHORTLY).await;
    // From here on everything is told again.
    edge.bus.ready(SHORTLY).await.unwrap();
    let newer = edge.register(&toy, "{\"b\":{}}").await;
    await_event(&mut events, &services(&toy, Some(newer)), SHORTLY).await;
}

/// Its entries were not to be found for a while, and are again without having been written.
#[tokio::test]
async fn a_node_whose_lease_had_ended_makes_followers_read_again() {
    let site = Site::redis().await;
    let node = site.follower("node").await;
    let mut events = node.offer_changes().unwrap();
    site.end_lease(node.node()).await;
    assert_eq!(next(&mut events).await, OfferChange::Missed);
}
