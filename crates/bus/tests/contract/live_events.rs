//! Who watches an organisation sees what happens in it, once and in order, or that something is missing.

use std::time::Duration;

use switchboard_bus::{Bus, LiveEvent, LivePosition, LiveWatch, Seen};
use switchboard_protocol::id::{DeviceKey, OrgId};
use switchboard_test_support::eventually::eventually;
use tokio::time::timeout;
use uuid::Uuid;

use crate::{
    for_each_backend,
    test_edge::{device, org},
};

const TEST_TIMEOUT: Duration = Duration::from_secs(10);
/// More than a log keeps.
const BATCHES: usize = 7;
const BATCH: usize = 200;

async fn next(watch: &mut LiveWatch) -> Seen {
    timeout(TEST_TIMEOUT, watch.next()).await.unwrap()
}

/// The type of the next event, and its device.
async fn next_name(watch: &mut LiveWatch) -> String {
    match next(watch).await {
        Seen::Event(entry) => match &entry.device {
            Some(device) => format!("{} {device}", entry.name),
            None => format!("{} {}", entry.name, entry.data),
        },
        Seen::Gap(_) => "gap".to_owned(),
    }
}

async fn next_names(watch: &mut LiveWatch, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    while names.len() < count {
        names.push(next_name(watch).await);
    }
    names
}

fn setting(number: usize) -> impl FnOnce() -> LiveEvent {
    let id = number.to_string();
    move || LiveEvent::SettingChanged { kind: "npc", id }
}

fn setting_name(number: usize) -> String {
    format!(r#"setting.changed {{"kind":"npc","id":"{number}"}}"#)
}

/// Waits until another node records events of the organisation.
async fn await_recorded(bus: &Bus, org: OrgId) {
    let is_recorded = async || {
        let mut is_called = false;
        bus.record_live(org, || {
            is_called = true;
            setting(0)()
        });
        is_called
    };
    eventually(TEST_TIMEOUT, is_recorded, |called| *called).await;
}

#[tokio::test]
async fn watches_see_their_organisation_and_resume_without_loss_or_repetition() {
    for_each_backend(|system| async move {
        let (gateway, edge) = system.start_with_edge("gateway").await;
        let later = system.start_node("later").await;
        let other = OrgId::from_uuid(Uuid::now_v7());
        let mut watch = gateway.watch_live(org(), None).await.unwrap();
        let mut foreign = gateway.watch_live(other, None).await.unwrap();
        await_recorded(&edge.bus, org()).await;
        assert_eq!(next_name(&mut watch).await, setting_name(0));
        let lamp = device("toy-1");
        edge.connect(&lamp).await;
        assert_eq!(next_name(&mut watch).await, "device.online toy-1");
        let position = watch.position();
        drop(watch);
        edge.register(&lamp, r#"{"blink":{}}"#).await;
        edge.disconnect(&lamp);
        // At another node, as behind a load balancer.
        let mut watch = later.watch_live(org(), Some(position)).await.unwrap();
        assert!(!watch.has_missed());
        assert_eq!(next_name(&mut watch).await, "device.registered toy-1");
        let Seen::Event(offline) = next(&mut watch).await else {
            panic!("nothing is missing");
        };
        assert_eq!(&*offline.name, "device.offline");
        assert!(offline.data.contains(r#""reason":"closed""#), "{offline:?}");
        gateway.record_live(other, setting(1));
        assert_eq!(next_name(&mut foreign).await, setting_name(1));
    })
    .await;
}

#[tokio::test]
async fn device_that_moved_is_not_offline() {
    for_each_backend(|system| async move {
        let (gateway, one) = system.start_with_edge("gateway").await;
        let other = system.start_edge("other").await;
        let mut watch = gateway.watch_live(org(), None).await.unwrap();
        await_recorded(&one.bus, org()).await;
        await_recorded(&other.bus, org()).await;
        next_names(&mut watch, 2).await;
        let lamp: DeviceKey = device("toy-1");
        for edge in [&one, &other] {
            edge.connect(&lamp).await;
            assert_eq!(next_name(&mut watch).await, "device.online toy-1");
        }
        eventually(TEST_TIMEOUT, async || one.owns(&lamp), |owns| !owns).await;
        other.register(&lamp, "{}").await;
        assert_eq!(next_name(&mut watch).await, "device.registered toy-1");
        other.disconnect(&lamp);
        assert_eq!(next_name(&mut watch).await, "device.offline toy-1");
    })
    .await;
}

#[tokio::test]
async fn slow_watch_learns_of_a_gap_and_holds_up_nobody() {
    for_each_backend(|system| async move {
        let gateway = system.start_node("gateway").await;
        let mut slow = gateway.watch_live(org(), None).await.unwrap();
        let mut watch = gateway.watch_live(org(), None).await.unwrap();
        let began = watch.position();
        await_recorded(&gateway, org()).await;
        assert_eq!(next_name(&mut watch).await, setting_name(0));
        assert_eq!(next_name(&mut slow).await, setting_name(0));
        for batch in 0..BATCHES {
            let numbers = batch * BATCH + 1..=(batch + 1) * BATCH;
            numbers
                .clone()
                .for_each(|number| gateway.record_live(org(), setting(number)));
            let expected: Vec<_> = numbers.map(setting_name).collect();
            assert_eq!(next_names(&mut watch, BATCH).await, expected);
            // More than is shared: it reads the log from where it left.
            if batch == 1 {
                assert_eq!(
                    next_names(&mut slow, BATCH + 1).await[BATCH],
                    setting_name(BATCH + 1)
                );
            }
        }
        // It has read a page ahead.
        let mut read_ahead = BATCH + 2..;
        let position = loop {
            match next(&mut slow).await {
                Seen::Event(entry) => {
                    let number = read_ahead.next().unwrap();
                    assert!(entry.data.contains(&format!(r#""{number}""#)), "{entry:?}");
                }
                Seen::Gap(position) => break position,
            }
        };
        assert_eq!(position, watch.position());
        let mut resumed = gateway.watch_live(org(), Some(began)).await.unwrap();
        assert!(resumed.has_missed());
        gateway.record_live(org(), setting(7));
        assert_eq!(next_name(&mut slow).await, setting_name(7));
        assert_eq!(next_name(&mut resumed).await, setting_name(7));
    })
    .await;
}

#[tokio::test]
async fn position_of_another_log_is_a_gap() {
    for_each_backend(|system| async move {
        let gateway = system.start_node("gateway").await;
        gateway.record_live(org(), || panic!("nobody watches"));
        let former: LivePosition = "1789000000000000-5".parse().unwrap();
        let mut watch = gateway.watch_live(org(), Some(former)).await.unwrap();
        assert!(watch.has_missed());
        await_recorded(&gateway, org()).await;
        assert_eq!(next_name(&mut watch).await, setting_name(0));
    })
    .await;
}

#[tokio::test]
async fn events_that_a_node_could_not_write_are_a_gap() {
    for_each_backend(|system| async move {
        let gateway = system.start_node("gateway").await;
        let mut watch = gateway.watch_live(org(), None).await.unwrap();
        await_recorded(&gateway, org()).await;
        assert_eq!(next_name(&mut watch).await, setting_name(0));
        // More than wait at a node. The first of them may be written already.
        for number in 1..=1000 {
            gateway.record_live(org(), setting(number));
        }
        let mut seen = Vec::new();
        while seen.last().is_none_or(|name| name != "gap") {
            seen.push(next_name(&mut watch).await);
        }
        assert!(seen.len() < 1000, "{}", seen.len());
    })
    .await;
}
