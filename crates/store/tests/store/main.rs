//! The store in a real PostgreSQL, with a database per test.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod devices;

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use secrecy::{ExposeSecret, SecretBox};
use switchboard_protocol::{
    id::{ApiKeyId, OrgId, TokenId},
    token::{Scope, Scopes},
};
use switchboard_runtime::quota::Quota;
use switchboard_store::{
    ApiKeyLimits, IssuedToken, KeyRevocation, NewApiKey, NewSigningKey, Store,
    testing::TestDatabase,
};
use uuid::Uuid;

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

    // The key was found before it was recorded that this is a use of it.
    assert_eq!(found.last_used_at, None);
    let mut listed = store.api_keys(org, None, 10).await.unwrap();
    assert!(listed[0].last_used_at.take().is_some());
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
async fn revoked_and_expired_keys_are_deleted_by_age_and_number() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let (org, other) = (new_org(&store, 1).await, new_org(&store, 2).await);
    let mut keys = Vec::new();
    for byte in 3..6 {
        let key = store.create_api_key(org, &new_key(byte)).await.unwrap();
        store.revoke_api_key(org, key.id).await.unwrap();
        keys.push(key.id);
    }
    let expired = ApiKeyLimits {
        expires_at: Some(Utc::now() - TimeDelta::days(2)),
        ..ApiKeyLimits::default()
    };
    let mut creation = store.begin(other).await.unwrap();
    let expired = creation.create_api_key(other, &new_key(6), &expired).await;
    let expired = expired.unwrap().id;
    creation.commit().await.unwrap();
    let is_stored = async |org, id| store.api_key(org, id).await.unwrap().is_some();

    let before = Utc::now() - TimeDelta::days(30);
    assert_eq!(store.purge_api_keys(before, 3).await.unwrap(), 0);
    assert_eq!(store.purge_api_keys(before, 1).await.unwrap(), 2);
    assert!(!is_stored(org, keys[1]).await && is_stored(org, keys[2]).await);
    assert!(is_stored(other, expired).await);
    let before = Utc::now() - TimeDelta::days(1);
    assert_eq!(store.purge_api_keys(before, 1).await.unwrap(), 1);
    assert!(!is_stored(other, expired).await && is_stored(org, keys[2]).await);
    assert_eq!(store.purge_api_keys(Utc::now(), 1).await.unwrap(), 1);
    for byte in 1..3 {
        assert!(store.api_key_by_hash(&[byte; 32]).await.unwrap().is_some());
    }
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
    let listed = async |since| store.revocations(since).await.unwrap();
    let before = listed(None).await;
    assert!(before.tokens.is_empty());
    let measure = async |org| {
        let quotas = [Quota::LiveTokens];
        let measured = store.measure_quotas(org, &quotas).await.unwrap();
        measured.get(&Quota::LiveTokens).copied()
    };
    assert_eq!(measure(org).await, Some(1));
    assert_eq!(measure(stranger).await, Some(0));

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
    assert_eq!(listed(None).await.tokens, [revoked]);
    assert_eq!(listed(Some(before.read_at)).await.tokens, [revoked]);
    let after = listed(None).await.read_at + TimeDelta::seconds(1);
    assert!(listed(Some(after)).await.tokens.is_empty());
    assert_eq!(store.count_revocations().await.unwrap(), 1);

    assert_eq!(store.purge_tokens(Utc::now()).await.unwrap(), 1);
    assert_eq!(store.revoke_token(org, expired.id).await.unwrap(), None);
    assert_eq!(listed(None).await.tokens, [revoked]);
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
