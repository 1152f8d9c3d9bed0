//! Idempotency keys of calls in a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::time::Duration;

use secrecy::ExposeSecret as _;
use sqlx::{Connection as _, PgConnection};
use switchboard_protocol::{
    id::{ApiKeyId, CallId, OrgId},
    token::Scope,
};
use switchboard_store::{CallKey, NewApiKey, NewCall, Store, StoredOutcome, testing::TestDatabase};
use switchboard_test_support::eventually::eventually;
use tokio::task::JoinSet;
use uuid::Uuid;

const KEY_TTL: Duration = Duration::from_secs(24 * 3600);

async fn new_key(store: &Store) -> CallKey {
    let org = OrgId::from_uuid(Uuid::now_v7());
    let first = NewApiKey {
        id: ApiKeyId::from_uuid(Uuid::now_v7()),
        name: "first".to_owned(),
        prefix: "sb_abcdefgh".to_owned(),
        secret_hash: [*org.uuid().as_bytes(); 2].concat().try_into().unwrap(),
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

fn with_hash(key: &CallKey, hash: u8) -> CallKey {
    CallKey {
        hash: [hash; 32],
        ..*key
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
    assert!(
        !store
            .finish_call(&key, second.id, written.clone())
            .await
            .unwrap()
    );
    assert!(!store.release_call(&key, second.id).await.unwrap());
    assert!(
        store
            .finish_call(&key, first.id, written.clone())
            .await
            .unwrap()
    );
    let existing = store.reserve_call(&key, &second).await.unwrap().unwrap();
    assert_eq!(existing.outcome, Some(written));

    // An outcome is final.
    let other = outcome(b"{}");
    assert!(!store.finish_call(&key, first.id, other).await.unwrap());
    assert!(!store.release_call(&key, first.id).await.unwrap());

    let free = with_hash(&key, 9);
    assert_eq!(store.reserve_call(&free, &second).await.unwrap(), None);
    assert!(store.release_call(&free, second.id).await.unwrap());
    assert_eq!(store.reserve_call(&free, &first).await.unwrap(), None);
}

#[tokio::test]
async fn concurrent_reservations_yield_one_call_for_each_key() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let key = new_key(&store).await;
    let mut racers = JoinSet::new();
    for racer in 0..40 {
        let (store, key) = (store.clone(), with_hash(&key, racer % 4));
        racers.spawn(async move {
            let existing = store.reserve_call(&key, &new_call(KEY_TTL)).await;
            (key.hash, existing.unwrap().is_none())
        });
    }
    let seen = racers.join_all().await;
    let winners = seen.into_iter().filter(|(_, has_won)| *has_won);
    let mut winners: Vec<_> = winners.map(|(hash, _)| hash).collect();
    winners.sort_unstable();
    assert_eq!(winners, [[0; 32], [1; 32], [2; 32], [3; 32]]);
}

/// How many transactions wrote the rows last.
async fn transactions(database: &TestDatabase) -> i64 {
    let url = database.url().expose_secret();
    let mut connection = PgConnection::connect(url).await.unwrap();
    let query = sqlx::query_scalar("SELECT count(DISTINCT xmin::text) FROM idempotent_calls");
    query.fetch_one(&mut connection).await.unwrap()
}

#[tokio::test]
async fn concurrent_calls_of_an_org_share_transactions() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let key = new_key(&store).await;
    let (mut reservations, mut endings) = (JoinSet::new(), JoinSet::new());
    for hash in 0..100 {
        let (store, key, call) = (store.clone(), with_hash(&key, hash), new_call(KEY_TTL));
        reservations.spawn(async move {
            assert_eq!(store.reserve_call(&key, &call).await.unwrap(), None);
            (key, call)
        });
    }
    let reserved = reservations.join_all().await;
    assert!(transactions(&database).await < 20);
    for (key, call) in reserved.clone() {
        let (store, written) = (store.clone(), outcome(&key.hash));
        endings.spawn(async move { store.finish_call(&key, call.id, written).await.unwrap() });
    }
    assert!(endings.join_all().await.into_iter().all(|written| written));
    assert!(transactions(&database).await < 20);
    for (key, call) in reserved {
        let existing = store.reserve_call(&key, &new_call(KEY_TTL)).await.unwrap();
        let existing = existing.unwrap();
        let expected = (call.id, Some(outcome(&key.hash)));
        assert_eq!((existing.id, existing.outcome), expected);
    }
}

#[tokio::test]
async fn refused_call_affects_no_other() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let key = new_key(&store).await;
    let stranger = OrgId::from_uuid(Uuid::now_v7());
    let mut calls = JoinSet::new();
    for hash in 0..30 {
        let (store, mut key) = (store.clone(), with_hash(&key, hash));
        // A key must outlive its call, and have an organisation.
        let retention = [KEY_TTL, Duration::ZERO][usize::from(hash % 3 == 1)];
        if hash % 3 == 2 {
            key.org = stranger;
        }
        calls.spawn(async move {
            let reserved = store.reserve_call(&key, &new_call(retention)).await;
            let expected = if hash % 3 == 0 { "reserved" } else { "refused" };
            let found = reserved.map_or_else(|error| error.kind(), |_| "reserved");
            assert_eq!(found, expected, "{hash}");
        });
    }
    calls.join_all().await;
}

#[tokio::test]
async fn locked_row_delays_its_org_while_callers_of_its_statement_wait() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let (key, neighbour) = (new_key(&store).await, new_key(&store).await);
    let call = new_call(KEY_TTL);
    assert_eq!(store.reserve_call(&key, &call).await.unwrap(), None);
    let lock = "SELECT FROM idempotent_calls FOR UPDATE";
    let mut lock = database.begin(lock).await.unwrap();
    let reserve = |hash| {
        let (store, key) = (store.clone(), with_hash(&key, hash));
        async move { store.reserve_call(&key, &new_call(KEY_TTL)).await.unwrap() }
    };
    let mut blocked = JoinSet::new();
    blocked.spawn(reserve(7));
    while !lock.is_waited_for().await.unwrap() {}
    let mut waiting = JoinSet::new();
    waiting.spawn(reserve(8));
    let dropped = tokio::time::timeout(Duration::from_millis(50), reserve(9));
    assert!(dropped.await.is_err(), "it waits for the next statement");
    let reserved = store.reserve_call(&neighbour, &call).await;
    assert_eq!(reserved.unwrap(), None);
    blocked.shutdown().await;
    assert_eq!(waiting.join_all().await, [None]);
    assert_eq!(reserve(9).await, None, "it was not reserved before");
    assert!(lock.is_waited_for().await.unwrap());
    lock.release().await.unwrap();
}

#[tokio::test]
async fn reservation_whose_caller_has_gone_is_released() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let key = new_key(&store).await;
    let mut lock = database.lock("idempotent_calls").await.unwrap();
    let mut left = JoinSet::new();
    let (owned, new) = (store.clone(), key.clone());
    left.spawn(async move { owned.reserve_call(&new, &new_call(KEY_TTL)).await });
    while !lock.is_waited_for().await.unwrap() {}
    left.shutdown().await;
    lock.release().await.unwrap();
    let reserve = || async { store.reserve_call(&key, &new_call(KEY_TTL)).await.unwrap() };
    eventually(Duration::from_secs(10), reserve, Option::is_none).await;
}

#[tokio::test]
async fn expired_call_frees_its_key_and_is_purged() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let key = new_key(&store).await;
    let short = new_call(Duration::from_millis(2));
    assert_eq!(store.reserve_call(&key, &short).await.unwrap(), None);
    store
        .finish_call(&key, short.id, outcome(b"{}"))
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
    let lock = "SELECT FROM idempotent_calls FOR UPDATE";
    let lock = database.begin(lock).await.unwrap();
    assert_eq!(store.purge_calls().await.unwrap(), 0, "the row is locked");
    lock.release().await.unwrap();
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
