//! The store in a real PostgreSQL, with a database per test.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use secrecy::{ExposeSecret, SecretBox};
use switchboard_protocol::{
    id::{ApiKeyId, DeviceKey, OrgId, TokenId},
    schema::Digest,
    token::{Scope, Scopes},
};
use switchboard_store::{
    DeviceEvent, DeviceEventKind, IssuedToken, KeyRevocation, NewApiKey, NewSigningKey, Store,
    StoredDevice, testing::TestDatabase,
};
use uuid::Uuid;

fn timestamp(second: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000 + second, 0).unwrap()
}

fn new_key(byte: u8) -> NewApiKey {
    NewApiKey {
        id: ApiKeyId::from_uuid(Uuid::now_v7()),
        name: format!("key {byte}"),
        prefix: "sb_abcdefgh".to_owned(),
        secret_hash: [byte; 32],
        scopes: [Scope::Admin, Scope::Call].into_iter().collect(),
    }
}

async fn new_org(store: &Store, key_byte: u8) -> OrgId {
    let org = OrgId::from_uuid(Uuid::now_v7());
    store
        .create_org(org, "an org", &new_key(key_byte))
        .await
        .unwrap();
    org
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

async fn device(store: &Store, org: OrgId, id: &str) -> StoredDevice {
    store
        .device(org, &id.parse().unwrap())
        .await
        .unwrap()
        .unwrap()
}

#[tokio::test]
async fn empty_database_reports_missing_migration() {
    let database = TestDatabase::create_empty().await.unwrap();
    let store = database.store();
    store.ping(Duration::from_secs(5)).await.unwrap();
    let error = store.signing_keys().await.unwrap_err();
    assert!(error.to_string().contains("switchboard migrate"), "{error}");
    let other = Store::open(database.url()).unwrap();
    let (one, two) = tokio::join!(store.migrate(), other.migrate());
    one.unwrap();
    two.unwrap();
    store.migrate().await.unwrap();
    assert!(store.signing_keys().await.unwrap().is_empty());
}

#[tokio::test]
async fn newer_database_is_not_migrated() {
    let database = TestDatabase::create().await.unwrap();
    database
        .execute(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
             VALUES (9999, 'later', true, '', 0)",
        )
        .await
        .unwrap();
    let error = database.store().migrate().await.unwrap_err();
    assert_eq!(error.kind(), "from_the_future");
    assert!(error.to_string().contains("9999"), "{error}");
}

#[tokio::test]
async fn api_key_is_found_by_hash() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let org = new_org(&store, 1).await;
    let stranger = new_org(&store, 2).await;

    let found = store.api_key_by_hash(&[1; 32]).await.unwrap().unwrap();
    assert_eq!(
        (found.org, found.name.as_str(), found.revoked_at),
        (org, "key 1", None)
    );
    assert!(found.scopes.contains(Scope::Call) && !found.scopes.contains(Scope::Device));
    assert_eq!(store.api_key_by_hash(&[9; 32]).await.unwrap(), None);

    let second = store.create_api_key(org, &new_key(3)).await.unwrap();
    assert_eq!(
        store
            .create_api_key(org, &new_key(3))
            .await
            .unwrap_err()
            .kind(),
        "conflict"
    );
    let unknown_org = OrgId::from_uuid(Uuid::now_v7());
    assert_eq!(
        store
            .create_api_key(unknown_org, &new_key(4))
            .await
            .unwrap_err()
            .kind(),
        "refused"
    );

    let listed = store.api_keys(org, None, 10).await.unwrap();
    assert_eq!(listed, [found.clone(), second.clone()]);
    assert_eq!(
        store.api_keys(org, Some(found.id), 10).await.unwrap(),
        std::slice::from_ref(&second)
    );

    let revoke = async |org, key| store.revoke_api_key(org, key).await.unwrap();
    assert_eq!(revoke(stranger, second.id).await, KeyRevocation::Unknown);
    assert_eq!(revoke(org, second.id).await, KeyRevocation::Revoked);
    let revoked = store
        .api_key_by_hash(&[3; 32])
        .await
        .unwrap()
        .unwrap()
        .revoked_at;
    assert!(revoked.is_some());
    assert_eq!(revoke(org, second.id).await, KeyRevocation::Revoked);
    assert_eq!(revoke(org, found.id).await, KeyRevocation::LastAdmin);
    assert_eq!(
        store
            .api_key_by_hash(&[3; 32])
            .await
            .unwrap()
            .unwrap()
            .revoked_at,
        revoked
    );
}

#[tokio::test]
async fn concurrent_revocations_leave_one_admin_key() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let org = new_org(&store, 1).await;
    let first = store.api_key_by_hash(&[1; 32]).await.unwrap().unwrap();
    let second = store.create_api_key(org, &new_key(2)).await.unwrap();
    let both = tokio::join!(
        store.revoke_api_key(org, first.id),
        store.revoke_api_key(org, second.id)
    );
    let both = [both.0.unwrap(), both.1.unwrap()];
    assert!(both.contains(&KeyRevocation::Revoked) && both.contains(&KeyRevocation::LastAdmin));
}

#[tokio::test]
async fn org_and_first_key_are_created_atomically() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    new_org(&store, 1).await;
    let org = OrgId::from_uuid(Uuid::now_v7());
    assert_eq!(
        store
            .create_org(org, "late", &new_key(1))
            .await
            .unwrap_err()
            .kind(),
        "conflict"
    );
    assert_eq!(
        store
            .create_api_key(org, &new_key(2))
            .await
            .unwrap_err()
            .kind(),
        "refused"
    );
}

#[tokio::test]
async fn revoked_tokens_are_listed_until_expiry() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let org = new_org(&store, 1).await;
    let stranger = new_org(&store, 2).await;
    let scopes: Scopes = [Scope::Device].into_iter().collect();
    let issue = |ttl_s: i64| IssuedToken {
        id: TokenId::from_uuid(Uuid::now_v7()),
        org,
        subject: "device:toy-1".to_owned(),
        scopes,
        issued_at: Utc::now() - TimeDelta::hours(1),
        expires_at: Utc::now() + TimeDelta::seconds(ttl_s),
    };
    let (living, expired) = (issue(600), issue(-600));
    store.add_token(&living).await.unwrap();
    store.add_token(&expired).await.unwrap();
    assert!(store.revoked_tokens().await.unwrap().is_empty());

    assert_eq!(store.revoke_token(stranger, living.id).await.unwrap(), None);
    let revoked = store.revoke_token(org, living.id).await.unwrap().unwrap();
    assert_eq!(
        revoked.expires_at.timestamp(),
        living.expires_at.timestamp()
    );
    assert!(store.revoke_token(org, expired.id).await.unwrap().is_some());
    assert_eq!(
        store.revoke_token(org, living.id).await.unwrap(),
        Some(revoked)
    );
    assert_eq!(store.revoked_tokens().await.unwrap(), [revoked]);

    assert_eq!(store.purge_tokens(Utc::now()).await.unwrap(), 1);
    assert_eq!(store.revoke_token(org, expired.id).await.unwrap(), None);
    assert_eq!(store.revoked_tokens().await.unwrap(), [revoked]);
}

#[tokio::test]
async fn concurrent_replicas_agree_on_one_signing_key() {
    let database = TestDatabase::create().await.unwrap();
    let mut replicas = tokio::task::JoinSet::new();
    for byte in 0..5 {
        let store = database.store();
        replicas.spawn(async move {
            let seed = SecretBox::new(Box::new([byte; 32]));
            store
                .add_first_signing_key(&NewSigningKey {
                    kid: format!("kid-{byte}"),
                    seed,
                })
                .await
                .unwrap()
        });
    }
    let created = replicas.join_all().await;
    assert_eq!(created.iter().filter(|created| **created).count(), 1);
    let keys = database.store().signing_keys().await.unwrap();
    let [key] = keys.as_slice() else {
        panic!("{keys:?}")
    };
    assert_eq!(key.kid, format!("kid-{}", key.seed.expose_secret()[0]));
    assert!(!format!("{keys:?}").contains(&format!("{:?}", key.seed.expose_secret())));
}

#[tokio::test]
async fn repeated_device_events_are_idempotent() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let org = new_org(&store, 1).await;
    // Key order, white space, a repeated key and an escape: all must be returned as they were sent.
    let services = "{\"讲故事\":  {\"b\":1,\"a\":\"\\u0000\"}, \"x\":{}}";
    let events = [
        event(org, "toy-1", 1, 0, DeviceEventKind::Connected),
        event(org, "toy-1", 1, 1, registered(services, true)),
        event(org, "toy-2", 2, 2, DeviceEventKind::Connected),
        event(org, "toy-2", 2, 3, registered(services, false)),
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
        assert_eq!(lamp.services.unwrap().get(), services);
        assert_eq!(lamp.registered_at, Some(timestamp(1)));
        let other = device(&store, org, "toy-2").await;
        assert_eq!(
            (other.left_reason, other.services.unwrap().get()),
            (None, services)
        );
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
    assert_eq!(
        (lamp.left_reason, lamp.services.unwrap().get()),
        (None, "{\"new\":{}}")
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
    assert_eq!(
        (lamp.left_reason, lamp.services.unwrap().get()),
        (None, "{\"new\":{}}")
    );
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
    assert!(known.services.is_none() && known.registered_at.is_some());
    store
        .record_device_events(&[event(org, "first", 1, 1, registered("{\"s\":{}}", true))])
        .await
        .unwrap();
    assert_eq!(
        device(&store, org, "second").await.services.unwrap().get(),
        "{\"s\":{}}"
    );
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

#[tokio::test]
async fn store_recovers_from_database_outage() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    store.ping(Duration::from_secs(5)).await.unwrap();
    database.set_unavailable(true).await.unwrap();
    let error = store.signing_keys().await.unwrap_err();
    assert!(error.is_unavailable(), "{}", error.report());
    database.set_unavailable(false).await.unwrap();
    assert!(store.signing_keys().await.unwrap().is_empty());
}

#[tokio::test]
async fn dead_idle_connections_are_replaced() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let key = new_key(1);
    let org = OrgId::from_uuid(Uuid::now_v7());
    store.create_org(org, "an org", &key).await.unwrap();
    let ask = || async {
        let (keys, signing) = tokio::join!(store.api_keys(org, None, 9), store.signing_keys());
        assert_eq!(keys.unwrap().len(), 1);
        signing.unwrap();
    };
    for _ in 0..3 {
        // Several connections are open and idle.
        ask().await;
        database.set_unavailable(true).await.unwrap();
        database.set_unavailable(false).await.unwrap();
        ask().await;
        database.set_unavailable(true).await.unwrap();
        database.set_unavailable(false).await.unwrap();
        store.revoke_api_key(org, key.id).await.unwrap();
    }
}

#[tokio::test]
async fn test_database_is_dropped() {
    let database = TestDatabase::create().await.unwrap();
    let url = database.url().clone();
    drop(database);
    let error = Store::open(&url)
        .unwrap()
        .ping(Duration::from_secs(5))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), "unavailable");
}
