//! Device events arrive in order, and are delivered again until they are acknowledged.

use std::time::Duration;

use bytes::Bytes;
use switchboard_bus::{Bus, DeviceEvent, DisconnectReason, EventId};
use switchboard_protocol::id::{DeviceKey, OrgId};
use switchboard_test_support::eventually::eventually;

use crate::{
    for_each_backend,
    test_edge::{TestSystem, device},
};

const READ_TIMEOUT: Duration = Duration::from_millis(100);
const TEST_TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn i6_events_are_redelivered_until_acknowledged() {
    for_each_backend(|system| async move {
        let (control, edge) = system.start_with_edge("control").await;
        let lamp = device("toy-1");
        let at = edge.connect(&lamp).await;
        let digest = edge.register(&lamp, "{}").await;
        edge.disconnect(&lamp);
        let mut events: Vec<(EventId, DeviceEvent)> = Vec::new();
        while events.len() < 3 {
            events.extend(
                control
                    .read_events("one", 100, Duration::from_secs(5))
                    .await
                    .unwrap(),
            );
        }
        let story: Vec<DeviceEvent> = events.iter().map(|(_, event)| event.clone()).collect();
        assert!(
            matches!(
                &story[0],
                DeviceEvent::Connected { device, epoch, .. } if *device == lamp && *epoch == at
            ),
            "{story:?}"
        );
        assert!(matches!(
            &story[1],
            DeviceEvent::Registered { digest: registered, json: Some(json), .. }
                if *registered == digest && **json == *b"{}"
        ));
        let closed = DisconnectReason::Closed;
        assert!(matches!(&story[2], DeviceEvent::Disconnected { reason, .. } if *reason == closed));
        control
            .ack_events(std::slice::from_ref(&events[0].0))
            .await
            .unwrap();
        // The reader dies with the other two: another one receives them.
        let again = async || control.read_events("two", 100, READ_TIMEOUT).await.unwrap();
        let again = eventually(Duration::from_secs(20), again, |events| !events.is_empty()).await;
        let again: Vec<DeviceEvent> = again.into_iter().map(|(_, event)| event).collect();
        assert_eq!(again, story[1..]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i8_device_that_leaves_during_resync_has_left() {
    let system = TestSystem::redis().await;
    let edge = system.start_edge("edge").await;
    let mut kill = redis::cmd("CLIENT");
    kill.arg(&["KILL", "TYPE", "pubsub"]);
    // Connections are also listed for a comparison. Then the device is not entered again, and the
    // next round may succeed.
    for round in 0..20 {
        let (lamp, last) = (device(&format!("toy-{round}")), device("last"));
        let epoch = edge.connect(&lamp).await;
        edge.disconnect_after_listing(&lamp);
        system.query::<i64>(&kill).await;
        eventually(TEST_TIMEOUT, async || edge.owns(&lamp), |holds| !holds).await;
        // The connections are listed once more after the device was entered, if it was.
        let listings = edge.listings();
        eventually(
            TEST_TIMEOUT,
            async || edge.listings(),
            |now| *now > listings,
        )
        .await;
        edge.bus.wait_ready(TEST_TIMEOUT).await.unwrap();
        edge.connect(&last).await;
        let events = events_until(&system.start_node("control").await, &last).await;
        edge.disconnect(&last);
        let connected = events.iter().filter_map(|event| match event {
            DeviceEvent::Connected {
                device,
                epoch: at,
                at_ms,
            } if *device == lamp && *at == epoch => Some(*at_ms),
            _ => None,
        });
        let left = events.iter().find_map(|event| match event {
            DeviceEvent::Disconnected { device, at_ms, .. } if *device == lamp => Some(*at_ms),
            _ => None,
        });
        let connected: Vec<u64> = connected.collect();
        assert!(
            connected.last() <= left.as_ref(),
            "{connected:?}, left {left:?}"
        );
        if connected.len() > 1 {
            let entry = async || edge.bus.find(&lamp).await.ok();
            eventually(TEST_TIMEOUT, entry, |entry| *entry == Some(None)).await;
            return;
        }
    }
    panic!("no device was entered in a resync");
}

/// Acknowledges events until this device connects, and returns the earlier ones.
async fn events_until(reader: &Bus, last: &DeviceKey) -> Vec<DeviceEvent> {
    let mut events = Vec::new();
    loop {
        for (id, event) in reader.read_events("one", 100, TEST_TIMEOUT).await.unwrap() {
            reader.ack_events(&[id]).await.unwrap();
            if matches!(&event, DeviceEvent::Connected { device, .. } if device == last) {
                return events;
            }
            events.push(event);
        }
    }
}

/// More than what the control plane writes at the same time: none reads here.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_one_organisation_leave_room_for_others() {
    let system = TestSystem::redis().await;
    let (edge, control) = (
        system.start_edge("edge").await,
        system.start_node("control").await,
    );
    let hostile = edge.connect_device("hostile").await;
    let epoch = edge.bus.find(&hostile).await.unwrap().unwrap().epoch;
    let event = |bytes| Bytes::from(format!("{{\"name\":\"{}\"}}", "x".repeat(bytes)));
    let length = async || {
        let mut length = redis::cmd("XLEN");
        system.query::<usize>(length.arg("test:facts")).await
    };
    // 51 MB, less than the buffer of the node; the small ones fill what the large ones leave.
    let (large, small) = (event(507_000), event(0));
    for json in vec![large; 100].into_iter().chain(vec![small; 300]) {
        edge.bus.record_custom_event(hostile.clone(), epoch, json);
    }
    eventually(TEST_TIMEOUT, length, |length| *length > 100).await;
    // At most one of these has a place.
    for id in ["missed-1", "missed-2", "missed-3"] {
        edge.connect_device(id).await;
    }
    let missed = edge.connect_device("missed").await;
    let mut lamp = device("lamp");
    lamp.org = OrgId::from_uuid(uuid::Uuid::from_u128(2));
    edge.connect(&lamp).await;
    let events = events_until(&control, &lamp).await;
    let is_large = |event: &&DeviceEvent| matches!(event, DeviceEvent::Custom { json, .. } if json.len() > 1000);
    let kept = events.iter().filter(is_large).count();
    assert_eq!(kept, 33, "events of 507 kB in 16 MiB");
    assert!(events.iter().all(|event| *event.device() != missed));
    // The events of this device were refused: they are recorded again.
    let events = events_until(&control, &missed).await;
    assert!(!events.iter().any(|event| *event.device() == lamp));
}
