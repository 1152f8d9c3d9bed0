//! Idempotency keys of calls in a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::time::Duration;

use switchboard_protocol::{
    id::{ApiKeyId, CallId, OrgId},
    token::Scope,
};
use switchboard_store::{CallKey, NewApiKey, NewCall, Store, StoredOutcome, testing::TestDatabase};
use uuid::Uuid;

const KEY_TTL: Duration = Duration::from_secs(24 * 3600);

async fn new_key(store: &Store) -> CallKey {
    let org = OrgId::from_uuid(Uuid::now_v7());
    let first = NewApiKey {
        id: ApiKeyId::from_uuid(Uuid::now_v7()),
        name: "first".to_owned(),
        prefix: "sb_abcdefgh".to_owned(),
        secret_hash: [1; 32],
        scopes: [Scope::Admin].into_iter().collect(),
    };
    store.create_org(org, "an org", &first).await.unwrap();
    CallKey { org, hash: [7; 32] }
}

fn new_call(retention: Duration) -> NewCall {
    NewCall {
        id: CallId::from_uuid(Uuid::now_v7()),
        fingerprint: [8; 32],
        timeout: Duration::from_millis(1),
        retention,
    }
}

fn outcome(body: &[u8]) -> StoredOutcome {
    StoredOutcome {
        status: 200,
        body: body.to_vec(),
    }
}

#[tokio::test]
async fn key_belongs_to_one_call_until_released() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let key = new_key(&store).await;
    let (first, second) = (new_call(KEY_TTL), new_call(KEY_TTL));
    assert_eq!(store.reserve_call(&key, &first).await.unwrap(), None);
    let existing = store.reserve_call(&key, &second).await.unwrap().unwrap();
    assert_eq!((existing.id, &existing.outcome), (first.id, &None));
    assert_eq!(existing.fingerprint, first.fingerprint);
    assert!(existing.created_at < existing.deadline && existing.created_at <= existing.read_at);

    // Only the call that the key belongs to may write its outcome.
    let written = outcome(b"{ \"a\": 1.0 }");
    assert!(!store.finish_call(&key, second.id, &written).await.unwrap());
    assert!(!store.release_call(&key, second.id).await.unwrap());
    assert!(store.finish_call(&key, first.id, &written).await.unwrap());
    let existing = store.reserve_call(&key, &second).await.unwrap().unwrap();
    assert_eq!(existing.outcome, Some(written));

    // An outcome is final.
    let other = outcome(b"{}");
    assert!(!store.finish_call(&key, first.id, &other).await.unwrap());
    assert!(!store.release_call(&key, first.id).await.unwrap());

    let free = CallKey {
        hash: [9; 32],
        ..key
    };
    assert_eq!(store.reserve_call(&free, &second).await.unwrap(), None);
    assert!(store.release_call(&free, second.id).await.unwrap());
    assert_eq!(store.reserve_call(&free, &first).await.unwrap(), None);
}

#[tokio::test]
async fn concurrent_reservations_yield_one_call() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let key = new_key(&store).await;
    let mut racers = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (store, key) = (store.clone(), key.clone());
        racers.spawn(async move { store.reserve_call(&key, &new_call(KEY_TTL)).await.unwrap() });
    }
    let seen = racers.join_all().await;
    assert_eq!(seen.iter().filter(|existing| existing.is_none()).count(), 1);
}

#[tokio::test]
async fn expired_call_frees_its_key_and_is_purged() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let key = new_key(&store).await;
    let short = new_call(Duration::from_millis(2));
    assert_eq!(store.reserve_call(&key, &short).await.unwrap(), None);
    store
        .finish_call(&key, short.id, &outcome(b"{}"))
        .await
        .unwrap();
    let expire = "UPDATE idempotent_calls SET deadline = now() - interval '2 s', expires_at = now() - interval '1 s'";
    database.execute(expire).await.unwrap();
    let next = new_call(KEY_TTL);
    assert_eq!(store.reserve_call(&key, &next).await.unwrap(), None);
    let existing = store.reserve_call(&key, &short).await.unwrap().unwrap();
    assert_eq!((existing.id, existing.outcome), (next.id, None));
    assert_eq!(store.purge_calls().await.unwrap(), 0);
    database.execute(expire).await.unwrap();
    assert_eq!(store.purge_calls().await.unwrap(), 1);
}

#[tokio::test]
async fn keys_are_scoped_to_their_org() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let key = new_key(&store).await;
    assert_eq!(
        store.reserve_call(&key, &new_call(KEY_TTL)).await.unwrap(),
        None
    );
    let stranger = CallKey {
        org: OrgId::from_uuid(Uuid::now_v7()),
        ..key
    };
    let refused = store.reserve_call(&stranger, &new_call(KEY_TTL)).await;
    assert_eq!(refused.unwrap_err().kind(), "refused");
}
