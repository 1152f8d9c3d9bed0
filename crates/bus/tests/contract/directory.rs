//! The directory: the newest connection wins, and no entry outlives its connection.

use std::time::Duration;

use switchboard_bus::{Bus, Presence};
use switchboard_protocol::{
    id::{DeviceId, DeviceKey},
    outcome::Outcome,
};
use switchboard_test_support::eventually::eventually;

use crate::{
    for_each_backend,
    test_edge::{call, device, org},
};

const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits until a device has no entry.
async fn await_offline(bus: &Bus, device: &DeviceKey) {
    let found = async || bus.find(device).await.unwrap();
    eventually(EVENT_TIMEOUT, found, Option::is_none).await;
}

/// Waits until the services of an entry are deleted.
async fn await_unregistered(bus: &Bus, presence: &Presence) {
    let services = async || bus.services(presence).await.unwrap();
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
async fn late_release_keeps_the_newer_connection() {
    for_each_backend(|system| async move {
        let (first, second) = system.start_edges("first", "second").await;
        let (lamp, other) = (device("toy-1"), device("toy-2"));
        let old = first.connect(&lamp).await;
        first.connect(&other).await;
        second.connect(&lamp).await;
        first.bus.release(
            lamp.clone(),
            old,
            None,
            switchboard_bus::DisconnectReason::Takeover,
        );
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
        let services = caller.services(&presence).await.unwrap().unwrap();
        assert_eq!(services, "{\"时间\": {}}".as_bytes());
        let newer = edge.register(&device, "{}").await;
        let now = caller.find(&device).await.unwrap().unwrap();
        assert_eq!((now.digest, now.epoch), (Some(newer), presence.epoch));
        assert_eq!(
            caller.services(&now).await.unwrap().unwrap(),
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
            edge.bus.services(&presence).await.unwrap().is_some(),
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
        let services = async || edge.bus.services(&presence).await.unwrap();
        eventually(EVENT_TIMEOUT, services, Option::is_some).await;
    })
    .await;
}
