//! Devices, their events and their services.

use chrono::{DateTime, Utc};
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    schema::Digest,
};
use switchboard_store::{DeviceEvent, DeviceEventKind, Store, StoredDevice, testing::TestDatabase};
use uuid::Uuid;

use super::new_org;

fn timestamp(second: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000 + second, 0).unwrap()
}

fn event(org: OrgId, device: &str, epoch: u64, second: i64, kind: DeviceEventKind) -> DeviceEvent {
    DeviceEvent {
        device: DeviceKey {
            org,
            device: device.parse().unwrap(),
        },
        epoch,
        at: timestamp(second),
        kind,
    }
}

fn registered(services: &str, with_services: bool) -> DeviceEventKind {
    DeviceEventKind::Registered {
        digest: Digest::compute(services.as_bytes()),
        services: with_services.then(|| services.to_owned()),
    }
}

/// The services object that a device registered last.
async fn services(store: &Store, org: OrgId, device: &StoredDevice) -> Option<String> {
    let digest = device.digest?;
    let mut found = store.services(org, &[digest]).await.unwrap();
    assert_eq!(found.len(), 1);
    Some(found.remove(0)?.get().to_owned())
}

async fn device(store: &Store, org: OrgId, id: &str) -> StoredDevice {
    store
        .device(org, &id.parse().unwrap())
        .await
        .unwrap()
        .unwrap()
}

#[tokio::test]
async fn repeated_device_events_are_idempotent() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let org = new_org(&store, 1).await;
    // Key order, white space, a repeated key and an escape: all must be returned as they were sent.
    let registration = "{\"讲故事\":  {\"b\":1,\"a\":\"\\u0000\"}, \"x\":{}}";
    let events = [
        event(org, "toy-1", 1, 0, DeviceEventKind::Connected),
        event(org, "toy-1", 1, 1, registered(registration, true)),
        event(org, "toy-2", 2, 2, DeviceEventKind::Connected),
        event(org, "toy-2", 2, 3, registered(registration, false)),
        event(
            org,
            "toy-1",
            1,
            9,
            DeviceEventKind::Disconnected { reason: "closed" },
        ),
    ];
    for _ in 0..2 {
        store.record_device_events(&events).await.unwrap();
        let lamp = device(&store, org, "toy-1").await;
        assert_eq!(
            (lamp.first_seen, lamp.last_seen),
            (timestamp(0), timestamp(9))
        );
        assert_eq!(lamp.left_reason.as_deref(), Some("closed"));
        let stored = services(&store, org, &lamp).await;
        assert_eq!(stored.as_deref(), Some(registration));
        assert_eq!(lamp.registered_at, Some(timestamp(1)));
        let other = device(&store, org, "toy-2").await;
        assert_eq!((other.left_reason, other.digest), (None, lamp.digest));
    }
    // The first event alone, late: the end is not undone.
    store.record_device_events(&events[..1]).await.unwrap();
    assert_eq!(
        device(&store, org, "toy-1").await.left_reason.as_deref(),
        Some("closed")
    );
    // The same connection again, later: its node had only been considered lost.
    store
        .record_device_events(&[event(org, "toy-1", 1, 10, DeviceEventKind::Connected)])
        .await
        .unwrap();
    assert_eq!(device(&store, org, "toy-1").await.left_reason, None);
}

#[tokio::test]
async fn older_connection_does_not_overwrite_newer() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let org = new_org(&store, 1).await;
    store
        .record_device_events(&[event(org, "toy", 5, 10, registered("{\"new\":{}}", true))])
        .await
        .unwrap();
    let old = [
        event(org, "toy", 4, 1, DeviceEventKind::Connected),
        event(org, "toy", 4, 11, registered("{\"old\":{}}", true)),
        event(
            org,
            "toy",
            4,
            12,
            DeviceEventKind::Disconnected { reason: "takeover" },
        ),
    ];
    store.record_device_events(&old).await.unwrap();
    let lamp = device(&store, org, "toy").await;
    let stored = services(&store, org, &lamp).await;
    assert_eq!(
        (lamp.left_reason, stored.as_deref()),
        (None, Some("{\"new\":{}}"))
    );
    assert_eq!(
        (lamp.first_seen, lamp.last_seen),
        (timestamp(1), timestamp(10))
    );

    store
        .record_device_events(&[event(
            org,
            "toy",
            5,
            13,
            DeviceEventKind::Disconnected { reason: "drain" },
        )])
        .await
        .unwrap();
    assert_eq!(
        device(&store, org, "toy").await.left_reason.as_deref(),
        Some("drain")
    );
    store
        .record_device_events(&[event(org, "toy", 6, 14, DeviceEventKind::Connected)])
        .await
        .unwrap();
    let lamp = device(&store, org, "toy").await;
    let stored = services(&store, org, &lamp).await;
    assert_eq!(
        (lamp.left_reason, stored.as_deref()),
        (None, Some("{\"new\":{}}"))
    );
}

#[tokio::test]
async fn services_registered_again_keep_their_row() {
    const OLD: &str = "{\"old\":{}}";
    const NEW: &str = "{\"new\":{}}";
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let org = new_org(&store, 1).await;
    let record = async |events: &[DeviceEvent]| {
        store.record_device_events(events).await.unwrap();
        let toy = device(&store, org, "toy").await;
        let services = services(&store, org, &toy).await;
        (toy.epoch, toy.registered_at, services)
    };
    // An epoch is the time at which its connection begins.
    let epoch = |begin: i64| timestamp(begin).timestamp_micros();
    let registers = |begin, second, services| {
        let registered = registered(services, true);
        event(org, "toy", epoch(begin).unsigned_abs(), second, registered)
    };
    let connects = |begin| {
        let epoch = epoch(begin).unsigned_abs();
        event(org, "toy", epoch, begin, DeviceEventKind::Connected)
    };
    let stored = |begin, second, services: &str| {
        let services = services.to_owned();
        (epoch(begin), Some(timestamp(second)), Some(services))
    };
    // The first registration counts, even of an older connection.
    record(&[connects(20)]).await;
    let first = record(&[registers(10, 21, OLD)]).await;
    assert_eq!(first, stored(20, 21, OLD));
    let returns = [connects(40), registers(40, 41, OLD)];
    assert_eq!(record(&returns).await, stored(40, 21, OLD));
    // Late: a newer connection has registered the former services again.
    let late = [connects(30), registers(30, 31, NEW)];
    assert_eq!(record(&late).await, stored(40, 21, OLD));
    let other = record(&[registers(40, 50, NEW)]).await;
    assert_eq!(other, stored(40, 50, NEW));
    // Late: the connection itself has registered its services again.
    let again = record(&[registers(40, 52, NEW)]).await;
    assert_eq!(again, stored(40, 52, NEW));
    let late = record(&[registers(40, 51, OLD)]).await;
    assert_eq!(late, stored(40, 52, NEW));
    // The next connection begins before its registration arrives.
    let moves = [registers(54, 55, OLD), connects(60)];
    assert_eq!(record(&moves).await, stored(60, 55, OLD));
}

#[tokio::test]
async fn contents_written_after_registration_are_found() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let org = new_org(&store, 1).await;
    store
        .record_device_events(&[event(org, "second", 2, 2, registered("{\"s\":{}}", false))])
        .await
        .unwrap();
    let known = device(&store, org, "second").await;
    assert!(known.digest.is_some() && known.registered_at.is_some());
    assert_eq!(services(&store, org, &known).await, None);
    store
        .record_device_events(&[event(org, "first", 1, 1, registered("{\"s\":{}}", true))])
        .await
        .unwrap();
    assert_eq!(
        services(&store, org, &known).await.as_deref(),
        Some("{\"s\":{}}")
    );
}

#[tokio::test]
async fn services_are_read_in_order_up_to_a_page() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let org = new_org(&store, 1).await;
    let mebibytes = [3, 1, 0, 1];
    let texts: Vec<String> = (0..)
        .zip(mebibytes)
        .map(|(at, size)| format!("{{\"{at}\":\"{}\"}}", "x".repeat(size << 20)))
        .collect();
    let mut events = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let id = format!("toy-{at}");
        events.push(event(org, &id, 1, 1, DeviceEventKind::Connected));
        events.push(event(org, &id, 1, 2, registered(text, true)));
    }
    store.record_device_events(&events).await.unwrap();
    let digests: Vec<Digest> = texts
        .iter()
        .map(|text| Digest::compute(text.as_bytes()))
        .collect();
    let unknown = Digest::compute(b"unknown");
    let check = async |asked: &[Digest], expected: &[Option<&String>]| {
        let read = store.services(org, asked).await.unwrap();
        let read: Vec<Option<&str>> = read
            .iter()
            .map(|services| services.as_ref().map(|services| services.get()))
            .collect();
        let expected: Vec<Option<&str>> = expected
            .iter()
            .map(|text| text.map(String::as_str))
            .collect();
        assert!(read == expected, "{} are read", read.len());
    };
    check(&[], &[]).await;
    check(&[unknown], &[None]).await;
    check(
        &[digests[2], unknown, digests[0]],
        &[Some(&texts[2]), None, Some(&texts[0])],
    )
    .await;
    // 3 MiB and 1 MiB with the JSON around them are more than a page.
    check(&digests, &[Some(&texts[0])]).await;
    let foreign = new_org(&store, 2).await;
    let read = store.services(foreign, &digests[2..]).await.unwrap();
    assert!(read.iter().all(Option::is_none), "{read:?}");
}

#[tokio::test]
async fn device_is_found_by_the_hash_of_its_id() {
    use sha2::{Digest as _, Sha256};
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let (org, foreign) = (new_org(&store, 1).await, new_org(&store, 2).await);
    let ids = ["a.b:c_d-e", "toy-1"];
    let events = ids.map(|id| event(org, id, 1, 1, DeviceEventKind::Connected));
    store.record_device_events(&events).await.unwrap();
    for id in ids {
        let hash: [u8; 32] = Sha256::digest(id).into();
        let [a, b, c, d, ..] = hash;
        let hash = [a, b, c, d];
        let found = store.devices_by_name_hash(org, hash, 9).await.unwrap();
        assert_eq!(found, [id.parse().unwrap()]);
        let found = store.devices_by_name_hash(foreign, hash, 9).await.unwrap();
        assert!(found.is_empty());
    }
    let found = store.devices_by_name_hash(org, [0; 4], 9).await.unwrap();
    assert!(found.is_empty());
}

#[tokio::test]
async fn batch_with_invalid_event_is_rejected() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let org = new_org(&store, 1).await;
    let unknown_org = OrgId::from_uuid(Uuid::now_v7());
    let poison = [
        event(unknown_org, "ghost", 1, 1, DeviceEventKind::Connected),
        event(org, "toy", 1, 1, registered("{", true)),
    ];
    for bad in poison {
        let batch = [event(org, "good", 1, 1, DeviceEventKind::Connected), bad];
        let error = store.record_device_events(&batch).await.unwrap_err();
        assert_eq!(error.kind(), "refused", "{}", error.report());
        assert!(store.devices(org, None, 10).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn devices_are_listed_in_byte_order() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let org = new_org(&store, 1).await;
    let stranger = new_org(&store, 2).await;
    let connect = |org, id| event(org, id, 1, 1, DeviceEventKind::Connected);
    let ids = ["b", "B", "a-1", "a.1", "_"];
    let mut events: Vec<DeviceEvent> = ids.iter().map(|id| connect(org, id)).collect();
    events.push(connect(stranger, "a-2"));
    store.record_device_events(&events).await.unwrap();

    let names = |devices: Vec<StoredDevice>| -> Vec<String> {
        devices
            .into_iter()
            .map(|device| device.id.to_string())
            .collect()
    };
    let first = names(store.devices(org, None, 3).await.unwrap());
    assert_eq!(first, ["B", "_", "a-1"]);
    let rest = names(store.devices(org, Some("a-1"), 3).await.unwrap());
    assert_eq!(rest, ["a.1", "b"]);
    assert!(
        store
            .device(stranger, &"b".parse().unwrap())
            .await
            .unwrap()
            .is_none()
    );
}
