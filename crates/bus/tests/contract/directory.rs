//! The directory: the newest connection wins, and no entry outlives its connection.

use std::time::Duration;

use redis::cmd;
use switchboard_bus::{Bus, DisconnectReason, Epoch, NodeCheck, NodeStatus, Presence};
use switchboard_protocol::{
    id::{DeviceId, DeviceKey, DeviceRange},
    outcome::Outcome,
};
use switchboard_test_support::eventually::eventually;

use crate::{
    catalog_events::{await_event, services},
    for_each_backend,
    test_edge::{TestSystem, call, device, org},
};

const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits until a device has no entry.
async fn await_offline(bus: &Bus, device: &DeviceKey) {
    let found = async || bus.find(device).await.unwrap();
    eventually(EVENT_TIMEOUT, found, Option::is_none).await;
}

/// Waits until the services of an entry are deleted.
async fn await_unregistered(bus: &Bus, presence: &Presence) {
    let services = async || bus.services(org(), presence).await.unwrap();
    eventually(EVENT_TIMEOUT, services, Option::is_none).await;
}

#[tokio::test]
async fn newest_connection_wins_and_old_owner_is_notified() {
    for_each_backend(|system| async move {
        let caller = system.start_node("caller").await;
        let (first, second) = system.start_edges("first", "second").await;
        let lamp = device("toy-1");
        let old = first.connect(&lamp).await;
        call(&caller, &lamp).await.unwrap();
        let new = second.connect(&lamp).await;
        assert!(new > old);
        eventually(EVENT_TIMEOUT, async || first.owns(&lamp), |owns| !owns).await;
        assert_eq!(
            call(&caller, &lamp).await.unwrap().outcome,
            Outcome::Succeeded
        );
        assert_eq!(second.delivered().len(), 1);
        let presence = caller.find(&lamp).await.unwrap().unwrap();
        assert_eq!((&presence.node, presence.epoch), (second.bus.node(), new));
    })
    .await;
}

#[tokio::test]
async fn epochs_of_a_device_without_an_entry_grow_after_the_clock_stepped_back() {
    let system = TestSystem::redis().await;
    let (first, second) = system.start_edges("first", "second").await;
    let lamp = device("toy-1");
    let before = first.connect(&lamp).await;
    // The clock of Redis was an hour ahead when the device connected.
    let former = Epoch(before.0 + 3_600_000_000);
    let live: Vec<String> = system.query(cmd("KEYS").arg("test:*:live")).await;
    let entry = format!("{} {} -", former.0, first.bus.node());
    let mut set = cmd("HSET");
    set.arg(&live[0]).arg("toy-1").arg(entry);
    system.query::<()>(&set).await;
    let last = second.connect(&lamp).await;
    assert!(last > former);
    second.disconnect(&lamp);
    await_offline(&second.bus, &lamp).await;
    assert!(second.connect(&lamp).await > last);
}

#[tokio::test]
async fn registered_connection_is_called_until_the_newer_one_registers() {
    for_each_backend(|system| async move {
        let caller = system.start_node("caller").await;
        let (first, second) = system.start_edges("first", "second").await;
        let lamp = device("toy-1");
        first.connect(&lamp).await;
        let services = first.register(&lamp, "{}").await;
        let new = second.connect(&lamp).await;
        let presence = caller.find(&lamp).await.unwrap().unwrap();
        assert_eq!(
            (&presence.node, presence.digest),
            (first.bus.node(), Some(services))
        );
        let answer = call(&caller, &lamp).await.unwrap();
        assert_eq!(answer.outcome, Outcome::Succeeded);
        assert_eq!((first.delivered().len(), second.delivered().len()), (1, 0));
        assert!(first.owns(&lamp));
        second.register(&lamp, "{}").await;
        eventually(EVENT_TIMEOUT, async || first.owns(&lamp), |owns| !owns).await;
        let presence = caller.find(&lamp).await.unwrap().unwrap();
        assert_eq!((&presence.node, presence.epoch), (second.bus.node(), new));
        call(&caller, &lamp).await.unwrap();
        assert_eq!(second.delivered().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn connection_without_services_can_be_entered() {
    for_each_backend(|system| async move {
        let (first, second) = system.start_edges("first", "second").await;
        let lamp = device("toy-1");
        first.connect(&lamp).await;
        first.register(&lamp, "{}").await;
        let new = second.connect(&lamp).await;
        second.bus.enter(&lamp, new).await.unwrap();
        eventually(EVENT_TIMEOUT, async || first.owns(&lamp), |owns| !owns).await;
        let presence = second.bus.find(&lamp).await.unwrap().unwrap();
        assert_eq!((presence.epoch, presence.digest), (new, None));
    })
    .await;
}

#[tokio::test]
async fn call_waits_for_a_device_that_was_asked_to_move() {
    for_each_backend(|system| async move {
        let caller = system.start_node("caller").await;
        let (first, second) = system.start_edges("first", "second").await;
        let (lamp, other) = (device("toy-1"), device("toy-2"));
        first.connect(&lamp).await;
        first.connect(&other).await;
        call(&caller, &lamp).await.unwrap();
        first.leave(&lamp, DisconnectReason::Drain);
        first.disconnect(&other);
        await_offline(&caller, &other).await;
        let answer = call(&caller, &other).await.unwrap();
        assert_eq!(answer.outcome, Outcome::Offline);
        let waiting = {
            let (caller, lamp) = (caller.clone(), lamp.clone());
            system
                .shutdown
                .spawn(async move { call(&caller, &lamp).await })
        };
        second.connect(&lamp).await;
        let answer = waiting.await.unwrap().unwrap();
        assert_eq!(answer.outcome, Outcome::Succeeded);
        assert_eq!(second.delivered().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn nodes_know_how_many_others_accept_devices() {
    for_each_backend(|system| async move {
        let (first, second) = system.start_edges("first", "second").await;
        let others = async || [first.bus.other_edges(), second.bus.other_edges()];
        eventually(EVENT_TIMEOUT, others, |others| *others == [1, 1]).await;
        first.bus.set_accepting(false);
        eventually(EVENT_TIMEOUT, others, |others| *others == [1, 0]).await;
    })
    .await;
}

#[tokio::test]
async fn late_release_keeps_the_newer_connection() {
    for_each_backend(|system| async move {
        let (first, second) = system.start_edges("first", "second").await;
        let (lamp, other) = (device("toy-1"), device("toy-2"));
        let old = first.connect(&lamp).await;
        first.connect(&other).await;
        second.connect(&lamp).await;
        first
            .bus
            .release(lamp.clone(), old, None, DisconnectReason::Takeover);
        first.disconnect(&other);
        // Releases are written in order: after the second, the first is written.
        await_offline(&first.bus, &other).await;
        assert!(first.bus.find(&lamp).await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn registration_is_readable_while_device_is_live() {
    for_each_backend(|system| async move {
        let (caller, edge) = system.start_with_edge("caller").await;
        let device = edge.connect_device("toy-1").await;
        assert_eq!(caller.find(&device).await.unwrap().unwrap().digest, None);
        let digest = edge.register(&device, "{\"时间\": {}}").await;
        let presence = caller.find(&device).await.unwrap().unwrap();
        assert_eq!(presence.digest, Some(digest));
        let services = caller.services(org(), &presence).await.unwrap().unwrap();
        assert_eq!(services, "{\"时间\": {}}".as_bytes());
        let newer = edge.register(&device, "{}").await;
        let now = caller.find(&device).await.unwrap().unwrap();
        assert_eq!((now.digest, now.epoch), (Some(newer), presence.epoch));
        assert_eq!(
            caller.services(org(), &now).await.unwrap().unwrap(),
            "{}".as_bytes()
        );
        await_unregistered(&caller, &presence).await;
        edge.disconnect(&device);
        await_offline(&caller, &device).await;
        await_unregistered(&caller, &now).await;
    })
    .await;
}

#[tokio::test]
async fn devices_with_equal_services_share_a_registration() {
    for_each_backend(|system| async move {
        let edge = system.start_edge("edge").await;
        let (one, two) = (device("toy-1"), device("toy-2"));
        edge.connect(&one).await;
        edge.connect(&two).await;
        edge.register(&one, "{}").await;
        edge.register(&two, "{}").await;
        let presence = edge.bus.find(&two).await.unwrap().unwrap();
        edge.disconnect(&one);
        await_offline(&edge.bus, &one).await;
        assert!(
            edge.bus.services(org(), &presence).await.unwrap().is_some(),
            "the other device still uses it"
        );
    })
    .await;
}

#[tokio::test]
async fn live_devices_are_listed_in_order_per_org() {
    for_each_backend(|system| async move {
        let edge = system.start_edge("edge").await;
        for id in ["b", "a", "C", "d:1"] {
            edge.connect(&device(id)).await;
        }
        let mut foreign = device("a");
        foreign.org = switchboard_protocol::id::OrgId::from_uuid(uuid::Uuid::from_u128(2));
        edge.connect(&foreign).await;
        let ids = |page: Vec<(DeviceId, _)>| {
            page.into_iter()
                .map(|(id, _)| id.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            ids(edge.bus.list(org(), None, 10).await.unwrap()),
            ["C", "a", "b", "d:1"]
        );
        assert_eq!(
            ids(edge.bus.list(org(), Some("C"), 2).await.unwrap()),
            ["a", "b"]
        );
        assert_eq!(
            ids(edge.bus.list(org(), Some("d:1"), 2).await.unwrap()),
            Vec::<String>::new()
        );
        for (prefix, after, expected) in [
            ("d", None, &["d:1"][..]),
            ("d:1", None, &["d:1"]),
            ("d:1", Some("d:1"), &[]),
            ("a", Some("C"), &["a"]),
            ("e", None, &[]),
        ] {
            let range = DeviceRange {
                prefix: Some(prefix),
                after,
            };
            let listed = edge.bus.list(org(), range, 10).await.unwrap();
            assert_eq!(ids(listed), expected, "{range:?}");
            let count = edge.bus.count(org(), range).await.unwrap();
            assert_eq!(count, expected.len() as u64, "{range:?}");
        }
        let all = DeviceRange::default();
        assert_eq!(edge.bus.count(org(), all).await.unwrap(), 4);
        let ids: Vec<DeviceId> = ["d:1", "unknown"]
            .iter()
            .map(|id| id.parse().unwrap())
            .collect();
        let found = edge.bus.find_many(org(), &ids).await.unwrap();
        assert!(found[0].is_some() && found[1].is_none());
    })
    .await;
}

#[tokio::test]
async fn leaving_node_removes_its_devices() {
    for_each_backend(|system| async move {
        let (caller, edge) = system.start_with_edge("caller").await;
        edge.connect(&device("toy-1")).await;
        edge.disconnect(&device("toy-1"));
        edge.connect(&device("toy-2")).await;
        edge.disconnect(&device("toy-2"));
        edge.shutdown.stop();
        assert!(edge.shutdown.finished(EVENT_TIMEOUT).await);
        for lamp in [device("toy-1"), device("toy-2")] {
            assert_eq!(caller.find(&lamp).await.unwrap(), None);
        }
        assert!(caller.list(org(), None, 10).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn nodes_share_a_registration() {
    for_each_backend(|system| async move {
        let (first, second) = system.start_edges("first", "second").await;
        let (one, two) = (device("toy-1"), device("toy-2"));
        first.connect(&one).await;
        second.connect(&two).await;
        first.register(&one, "{}").await;
        second.register(&two, "{}").await;
        let presence = second.bus.find(&two).await.unwrap().unwrap();
        first.disconnect(&one);
        await_offline(&first.bus, &one).await;
        let services = first.bus.services(org(), &presence).await.unwrap();
        assert!(services.is_some(), "the other node's device still uses it");
        // A newer connection of the device, which does not register, replaces its entry.
        let newer = second.connect(&two).await;
        second.bus.enter(&two, newer).await.unwrap();
        await_unregistered(&first.bus, &presence).await;
    })
    .await;
}

#[tokio::test]
async fn services_registered_again_stay_readable() {
    for_each_backend(|system| async move {
        let edge = system.start_edge("edge").await;
        for round in 0..20 {
            let lamp = device(&format!("toy-{round}"));
            edge.connect(&lamp).await;
            edge.register(&lamp, "{}").await;
            // The services are deleted in the background while the next device registers.
            edge.disconnect(&lamp);
        }
        let last = edge.connect_device("last").await;
        edge.register(&last, "{}").await;
        let first = device("toy-19");
        await_offline(&edge.bus, &first).await;
        let presence = edge.bus.find(&last).await.unwrap().unwrap();
        let services = async || edge.bus.services(org(), &presence).await.unwrap();
        eventually(EVENT_TIMEOUT, services, Option::is_some).await;
    })
    .await;
}

/// The former node cannot report that the device has left, so that a cached entry must not name it.
#[tokio::test]
async fn i8_device_that_left_a_node_is_called_while_that_stands_still() {
    for_each_backend(|system| async move {
        let caller = system.start_watcher("caller").await;
        let (former, next) = system.start_edges("former", "next").await;
        let lamp = former.connect_device("toy-1").await;
        former.register(&lamp, "{}").await;
        let outcome = call(&caller, &lamp).await.unwrap().outcome;
        assert_eq!(outcome, Outcome::Succeeded, "the entry is cached");
        former.disconnect(&lamp);
        await_offline(&caller, &lamp).await;
        former.go_dark();
        let mut events = caller.watch_catalog().unwrap();
        next.connect(&lamp).await;
        let digest = next.register(&lamp, "{}").await;
        await_event(&mut events, &services(&lamp, Some(digest)), EVENT_TIMEOUT).await;
        let outcome = call(&caller, &lamp).await.unwrap().outcome;
        assert_eq!(outcome, Outcome::Succeeded);
        assert_eq!(next.delivered().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn nodes_are_listed_with_what_they_publish() {
    for_each_backend(|system| async move {
        let (caller, edge) = system.start_with_edge("caller").await;
        edge.connect(&device("toy-1")).await;
        let status = NodeStatus {
            role: Some("edge".to_owned()),
            draining: Some(false),
            ready: Some(true),
            checks: vec![NodeCheck {
                name: "redis".to_owned(),
                ok: true,
                detail: None,
            }],
            ..NodeStatus::default()
        };
        edge.bus.publish_status(status.clone()).await.unwrap();
        let nodes = caller.nodes().await.unwrap();
        let published: Vec<_> = nodes.iter().map(|(_, status)| status.clone()).collect();
        let expected = NodeStatus {
            devices: Some(1),
            ..status
        };
        assert_eq!(published, [None, Some(expected)]);
        assert!(nodes[1].0.as_str().starts_with("edge"), "{nodes:?}");
        edge.shutdown.stop();
        assert!(edge.shutdown.finished(EVENT_TIMEOUT).await);
        let left = caller.nodes().await.unwrap();
        assert_eq!(left.len(), 1, "{left:?}");
    })
    .await;
}
