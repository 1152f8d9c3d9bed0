//! Who watches an organisation sees what happens in it, once and in order, or that something is missing.

use std::time::Duration;

use switchboard_bus::{Bus, LiveEvent, LivePosition, LiveWatch, Seen};
use switchboard_protocol::id::{DeviceKey, OrgId};
use switchboard_test_support::{
    eventually::eventually,
    tcp_proxy::{Direction, TcpProxy},
};
use tokio::time::timeout;
use uuid::Uuid;

use crate::{
    for_each_backend,
    test_edge::{TestSystem, device, org},
};

const TEST_TIMEOUT: Duration = Duration::from_secs(10);
/// More than a log keeps.
const BATCHES: usize = 7;
const BATCH: usize = 200;
/// How often what depends on the order of events is tried.
const ROUNDS: usize = 20;

/// Replaces the last entry of the only log by another one of the same number.
const REPLACE_LAST: &str = r"
local key = redis.call('KEYS', '*:log')[1]
local entries = redis.call('XRANGE', key, '-', '+')
redis.call('DEL', key)
for index, entry in ipairs(entries) do
  if index == #entries then entry[2][6] = '{}' end
  redis.call('XADD', key, entry[1], unpack(entry[2]))
end
return 1
";

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

/// Records an event. Returns whether the node knows that the organisation is watched.
fn try_record(bus: &Bus, org: OrgId, number: usize) -> bool {
    let mut is_called = false;
    bus.record_live(org, || {
        is_called = true;
        setting(number)()
    });
    is_called
}

/// Waits until a node records events of the organisation, and reads the first one. What it did not
/// record before is a gap.
async fn await_recorded(bus: &Bus, org: OrgId, watch: &mut LiveWatch) {
    let is_recorded = async || try_record(bus, org, 0);
    eventually(TEST_TIMEOUT, is_recorded, |called| *called).await;
    let mut first = next_name(watch).await;
    if first == "gap" {
        first = next_name(watch).await;
    }
    assert_eq!(first, setting_name(0));
}

#[tokio::test]
async fn watches_see_their_organisation_and_resume_without_loss_or_repetition() {
    for_each_backend(|system| async move {
        let (gateway, edge) = system.start_with_edge("gateway").await;
        let later = system.start_node("later").await;
        let other = OrgId::from_uuid(Uuid::now_v7());
        let mut watch = gateway.watch_live(org(), None).await.unwrap();
        let mut foreign = gateway.watch_live(other, None).await.unwrap();
        await_recorded(&edge.bus, org(), &mut watch).await;
        await_recorded(&gateway, other, &mut foreign).await;
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
        for edge in [&one, &other] {
            await_recorded(&edge.bus, org(), &mut watch).await;
        }
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
        await_recorded(&gateway, org(), &mut watch).await;
        while next_name(&mut slow).await == "gap" {}
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
        let other = OrgId::from_uuid(Uuid::now_v7());
        gateway.record_live(other, || panic!("no watch of it exists"));
        let former: LivePosition = "1789000000000000-5".parse().unwrap();
        let mut watch = gateway.watch_live(org(), Some(former)).await.unwrap();
        assert!(watch.has_missed());
        await_recorded(&gateway, org(), &mut watch).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn device_whose_new_entry_cannot_be_looked_up_is_a_gap() {
    let system = TestSystem::redis().await;
    let (gateway, edge) = system.start_with_edge("gateway").await;
    let mut watch = gateway.watch_live(org(), None).await.unwrap();
    await_recorded(&edge.bus, org(), &mut watch).await;
    let lamp = device("toy-1");
    edge.connect(&lamp).await;
    assert_eq!(next_name(&mut watch).await, "device.online toy-1");
    // Entries are removed; they are not read without the leases of nodes.
    let mut rights = redis::cmd("ACL");
    let keys = ["resetkeys", "~test:{[0-9]*", "~test:[a-z]*"];
    rights.arg(&["SETUSER", "default"]).arg(&keys);
    let _: () = system.query(&rights).await;
    edge.disconnect(&lamp);
    assert_eq!(next_name(&mut watch).await, "gap");
}

#[tokio::test]
async fn events_that_a_node_could_not_write_are_a_gap() {
    for_each_backend(|system| async move {
        let gateway = system.start_node("gateway").await;
        let mut watch = gateway.watch_live(org(), None).await.unwrap();
        await_recorded(&gateway, org(), &mut watch).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn event_of_a_node_that_learns_late_of_a_watch_is_a_gap() {
    let system = TestSystem::redis().await;
    let gateway = system.start_node("gateway").await;
    let proxy = TcpProxy::start(system.redis_address()).await;
    let cut_off = TestSystem::with_url(proxy.redis_url());
    let late = cut_off.start_node("late").await;
    proxy.black_hole(Direction::FromServer);
    let mut watch = gateway.watch_live(org(), None).await.unwrap();
    assert!(!try_record(&late, org(), 1), "the node does not know");
    proxy.pass();
    let is_recorded = async || try_record(&late, org(), 2);
    eventually(TEST_TIMEOUT, is_recorded, |called| *called).await;
    assert_eq!(next_names(&mut watch, 2).await, ["gap", &setting_name(2)]);
}

#[tokio::test]
async fn events_before_a_watch_are_no_gap() {
    for_each_backend(|system| async move {
        let (gateway, edge) = system.start_with_edge("gateway").await;
        for _ in 0..ROUNDS {
            let org = OrgId::from_uuid(Uuid::now_v7());
            assert!(!try_record(&edge.bus, org, 1));
            // Longer than the clocks of nodes may differ, and than a message takes.
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            let mut watch = gateway.watch_live(org, None).await.unwrap();
            // Time for the message: an attempt to record before it has come is an event that is missed.
            tokio::time::sleep(Duration::from_millis(200)).await;
            if try_record(&edge.bus, org, 2) {
                assert_eq!(next_name(&mut watch).await, setting_name(2));
                return;
            }
        }
        panic!("messages take too long");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn log_that_was_replaced_during_a_reconnect_is_a_gap() {
    let system = TestSystem::redis().await;
    let gateway = system.start_node("gateway").await;
    let mut watch = gateway.watch_live(org(), None).await.unwrap();
    await_recorded(&gateway, org(), &mut watch).await;
    gateway.record_live(org(), setting(1));
    assert_eq!(next_name(&mut watch).await, setting_name(1));
    // As at a replica that lacked the last entry and has given its number to another.
    let mut replace = redis::cmd("EVAL");
    replace.arg(REPLACE_LAST).arg(0);
    let replaced: usize = system.query(&replace).await;
    assert_eq!(replaced, 1);
    for kind in ["normal", "pubsub"] {
        let mut kill = redis::cmd("CLIENT");
        kill.arg(&["KILL", "TYPE", kind]);
        let _: usize = system.query(&kill).await;
    }
    assert_eq!(next_name(&mut watch).await, "gap");
    gateway.record_live(org(), setting(2));
    let mut last = next_name(&mut watch).await;
    // What was written while the connection was closed may have been executed or not.
    while last == "gap" {
        last = next_name(&mut watch).await;
    }
    assert_eq!(last, setting_name(2));
}
