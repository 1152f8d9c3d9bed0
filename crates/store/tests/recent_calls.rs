//! The journal of synchronous calls in a real PostgreSQL: batches, texts and retention.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::time::Duration;

use prometheus::{IntCounter, Registry};
use switchboard_protocol::{
    id::{ApiKeyId, CallId, DeviceKey, JournalEntryId, OrgId},
    outcome::Delivered,
    token::Scope,
};
use switchboard_runtime::{budget::Budgets, shutdown::Shutdown};
use switchboard_store::{
    CallCaller, CallJournal, CallVia, EndedCall, MAX_JOURNALED_CALLS, NewApiKey, OrgSettings,
    OrgWrite, RecentCall, RecentCallFilter, Store, testing::TestDatabase,
};
use uuid::Uuid;

async fn new_org(store: &Store, byte: u8) -> OrgId {
    let org = OrgId::from_uuid(Uuid::now_v7());
    let key = NewApiKey {
        id: ApiKeyId::from_uuid(Uuid::now_v7()),
        name: "key".to_owned(),
        prefix: "sb_abcdefgh".to_owned(),
        secret_hash: [byte; 32],
        scopes: [Scope::Admin].into_iter().collect(),
    };
    store.create_org(org, "an org", &key).await.unwrap();
    org
}

async fn want_params(store: &Store, org: OrgId, wants: bool) {
    let known = store.org(org).await.unwrap().unwrap();
    let settings = OrgSettings {
        journal_params: wants,
        ..known.settings
    };
    let written = store.replace_org(org, known.version, &settings).await;
    assert!(matches!(written, Ok(OrgWrite::Written(_))), "{written:?}");
}

/// Records calls with params, and writes them.
async fn record(store: &Store, orgs: &[OrgId], service: &str) {
    let budgets = Budgets::new(&Registry::new()).unwrap();
    let journal = CallJournal::new(&budgets, IntCounter::new("left_out", "calls").unwrap());
    for org in orgs {
        let device = DeviceKey {
            org: *org,
            device: "toy-1".parse().unwrap(),
        };
        let ended = EndedCall {
            id: JournalEntryId::from_uuid(Uuid::now_v7()),
            call: CallId::from_uuid(Uuid::now_v7()),
            device: &device,
            service,
            via: CallVia::Chat,
            caller: &CallCaller::Assistant,
            outcome: "failed",
            delivered: Delivered::Yes,
            elapsed: Duration::from_micros(1_500),
            params: b"{\"a\":1}",
            result: b"{\"success\":false}",
        };
        journal.record(&ended, true);
    }
    let shutdown = Shutdown::new();
    shutdown.drain();
    journal.run(|| false, store.clone(), shutdown).await;
}

async fn recent(store: &Store, org: OrgId) -> Vec<RecentCall> {
    let filter = RecentCallFilter::default();
    store.recent_calls(org, filter, None, 20_000).await.unwrap()
}

#[tokio::test]
async fn calls_of_an_organisation_are_its_own_and_have_texts_only_if_it_wants_them() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let [plain, open] = [new_org(&store, 1).await, new_org(&store, 2).await];
    want_params(&store, open, true).await;
    // Nodes may know the setting later than the database. The last organisation has been deleted.
    let gone = OrgId::from_uuid(Uuid::now_v7());
    record(&store, &[plain, open, gone, plain], "wa\0ve").await;
    let calls = recent(&store, plain).await;
    assert_eq!(calls.len(), 2);
    assert!(calls[0].id > calls[1].id, "newest first");
    assert_eq!(calls[0].service, "wa?ve");
    assert_eq!(calls[0].elapsed, Duration::from_micros(1_500));
    assert_eq!((&calls[0].params, &calls[0].result), (&None, &None));
    let calls = recent(&store, open).await;
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].params.as_deref(), Some("{\"a\":1}"));
    assert_eq!(calls[0].result.as_deref(), Some("{\"success\":false}"));
    want_params(&store, open, false).await;
    want_params(&store, open, true).await;
    let calls = recent(&store, open).await;
    assert_eq!((&calls[0].params, &calls[0].result), (&None, &None));
}

#[tokio::test]
async fn journal_keeps_a_day_and_the_newest_calls() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let [busy, quiet] = [new_org(&store, 1).await, new_org(&store, 2).await];
    let insert = |org: OrgId, count: i64, age: &str| {
        format!(
            "INSERT INTO recent_calls (org_id, id, call_id, ended_at, device_id, service, outcome, delivered, microseconds,
                                       via, caller_kind, params_bytes, result_bytes)
             SELECT '{}', gen_random_uuid(), gen_random_uuid(), now() - interval '{age}', 'toy-1', 's', 'failed', 'yes', 1,
                    'rest', 'assistant', 2, 2
             FROM generate_series(1, {count})",
            org.uuid()
        )
    };
    for sql in [
        insert(busy, MAX_JOURNALED_CALLS + 7, "1 hour"),
        insert(quiet, 3, "23 hours"),
        insert(quiet, 4, "25 hours"),
        format!(
            "INSERT INTO left_out_calls VALUES ('{0}', date_trunc('hour', now()), 5),
             ('{0}', date_trunc('hour', now()) - interval '26 hours', 6)",
            quiet.uuid()
        ),
    ] {
        database.execute(&sql).await.unwrap();
    }
    let counts = async || {
        (
            recent(&store, busy).await.len(),
            recent(&store, quiet).await.len(),
        )
    };
    let max = usize::try_from(MAX_JOURNALED_CALLS).unwrap();
    assert_eq!(counts().await, (max + 7, 3), "older ones are not listed");
    assert_eq!(store.purge_recent_calls().await.unwrap(), 7 + 4);
    assert_eq!(counts().await, (max, 3));
    assert_eq!(store.left_out_calls(quiet).await.unwrap(), 5);
    assert_eq!(store.left_out_calls(busy).await.unwrap(), 0);
}

#[tokio::test]
async fn texts_are_not_inserted_while_the_organisation_ceases_to_want_them() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let org = new_org(&store, 1).await;
    want_params(&store, org, true).await;
    let change = "UPDATE orgs SET journal_params = false";
    let mut change = database.begin(change).await.unwrap();
    let orgs = [org];
    let recorded = record(&store, &orgs, "wave");
    let changed = async {
        while !change.is_waited_for().await.unwrap() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        change.commit().await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(10), async {
        tokio::join!(recorded, changed)
    })
    .await
    .unwrap();
    want_params(&store, org, true).await;
    let calls = recent(&store, org).await;
    assert_eq!(calls.len(), 1);
    assert_eq!((&calls[0].params, &calls[0].result), (&None, &None));
}

#[tokio::test]
async fn call_that_cannot_be_stored_is_left_out_and_no_other() {
    let database = TestDatabase::create().await.unwrap();
    let store = database.store();
    let [one, other] = [new_org(&store, 1).await, new_org(&store, 2).await];
    let refuse = format!(
        "ALTER TABLE recent_calls ADD CHECK (org_id <> '{}')",
        one.uuid()
    );
    database.execute(&refuse).await.unwrap();
    record(&store, &[other, other, one, other, one], "wave").await;
    assert_eq!(recent(&store, other).await.len(), 3);
    assert_eq!(store.left_out_calls(other).await.unwrap(), 0);
    assert_eq!(store.left_out_calls(one).await.unwrap(), 2);
}
