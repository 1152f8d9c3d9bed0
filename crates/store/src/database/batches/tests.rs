//! Batches of items that record their statements.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::time::Duration;

use sqlx::AssertSqlSafe;
use switchboard_test_support::eventually::eventually_true;
use uuid::Uuid;

use super::{
    queue::{MAX_BYTES, MAX_EXAMINED, MAX_ITEMS, MAX_WAITING_BYTES},
    *,
};
use crate::testing::TestDatabase;

const ORG: OrgId = OrgId::from_uuid(Uuid::nil());

/// What an item does in its statement.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Effect {
    Succeed,
    /// Has no output in the first statement.
    Repeat,
    Panic,
    /// Raises this condition.
    Fail(&'static str),
}

#[derive(Debug, Default)]
struct Record {
    executed: Mutex<Vec<Vec<u8>>>,
    undone: Mutex<Vec<u8>>,
    /// Statements wait for it.
    gate: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Fake {
    key: [u8; 32],
    bytes: usize,
    effect: Effect,
    record: Arc<Record>,
}

impl Item for Fake {
    type Output = ();

    fn key(&self) -> &[u8; 32] {
        &self.key
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    async fn execute(
        connection: &mut PgConnection,
        _: OrgId,
        items: &[&Self],
    ) -> Result<Vec<Option<()>>, sqlx::Error> {
        let record = &items[0].record;
        let is_first = record.executed.lock().is_empty();
        let keys = items.iter().map(|item| item.key[0]).collect();
        record.executed.lock().push(keys);
        drop(record.gate.lock().await);
        for item in items {
            assert_ne!(item.effect, Effect::Panic, "as in a bug");
            if let Effect::Fail(condition) = item.effect {
                let sql = AssertSqlSafe(format!("DO $$ BEGIN RAISE {condition}; END $$"));
                sqlx::raw_sql(sql).execute(&mut *connection).await?;
            }
        }
        let outputs = items.iter().map(|item| match item.effect {
            Effect::Repeat if is_first => None,
            _ => Some(()),
        });
        Ok(outputs.collect())
    }

    async fn undo(_: &mut PgConnection, _: OrgId, items: &[&Self]) -> Result<(), sqlx::Error> {
        let keys = items.iter().map(|item| item.key[0]);
        items[0].record.undone.lock().extend(keys);
        Ok(())
    }
}

struct Fixture {
    _database: TestDatabase,
    store: Store,
    batches: Arc<Batches<Fake>>,
    record: Arc<Record>,
}

impl Fixture {
    async fn new() -> Self {
        let database = TestDatabase::create().await.unwrap();
        Self {
            store: database.store(),
            _database: database,
            batches: Batches::new(),
            record: Arc::default(),
        }
    }

    async fn execute(&self, key: u8, effect: Effect) -> Result<(), StoreError> {
        self.execute_bytes(key, effect, 0).await
    }

    async fn execute_bytes(&self, key: u8, effect: Effect, bytes: usize) -> Result<(), StoreError> {
        let item = Fake {
            key: [key; 32],
            bytes,
            effect,
            record: Arc::clone(&self.record),
        };
        self.batches.execute(&self.store, ORG, item).await
    }

    async fn wait_for(&self, executed: &[&[u8]]) {
        let is_executed = || *self.record.executed.lock() == *executed;
        eventually_true("the statements are executed", is_executed).await;
    }

    async fn wait_for_undone(&self, undone: &[u8]) {
        let is_undone = || *self.record.undone.lock() == *undone;
        eventually_true("the items are undone", is_undone).await;
    }
}

#[tokio::test]
async fn panic_fails_who_waits_and_leaves_no_queue() {
    let fixture = Fixture::new().await;
    let (panic, succeed) = (Effect::Panic, Effect::Succeed);
    let (first, second) = tokio::join!(fixture.execute(1, panic), fixture.execute(1, succeed));
    assert!(first.unwrap_err().is_unavailable());
    assert!(second.unwrap_err().is_unavailable());
    fixture.execute(1, succeed).await.unwrap();
    eventually_true("the organisation is idle", || {
        fixture.batches.queues.lock().is_empty()
    })
    .await;
}

#[tokio::test]
async fn item_without_output_is_executed_again() {
    let fixture = Fixture::new().await;
    let (repeat, succeed) = (Effect::Repeat, Effect::Succeed);
    let (first, second) = tokio::join!(fixture.execute(1, repeat), fixture.execute(2, succeed));
    assert!(first.is_ok() && second.is_ok());
    fixture.wait_for(&[&[1, 2], &[1]]).await;
}

#[tokio::test]
async fn only_failure_because_of_a_row_leads_to_single_execution() {
    let mut fixture = Fixture::new().await;
    let mut check = async |condition: &'static str, kind: &str, is_single: bool| {
        fixture.record = Arc::default();
        let (fail, succeed) = (Effect::Fail(condition), Effect::Succeed);
        let (first, second) = tokio::join!(fixture.execute(1, fail), fixture.execute(2, succeed));
        assert_eq!(first.unwrap_err().kind(), kind, "{condition}");
        assert_eq!(second.is_ok(), is_single, "{condition}");
        let single: &[&[u8]] = &[&[1, 2], &[1], &[2]];
        let expected = if is_single { single } else { &single[..1] };
        assert_eq!(*fixture.record.executed.lock(), expected, "{condition}");
    };
    check("check_violation", "refused", true).await;
    check("unique_violation", "conflict", true).await;
    check("deadlock_detected", "unavailable", true).await;
    check("lock_not_available", "unavailable", true).await;
    check("query_canceled", "unavailable", false).await;
    check("undefined_table", "not_migrated", false).await;
    check("syntax_error", "unexpected", false).await;
}

#[tokio::test]
async fn item_beyond_the_bytes_of_the_queue_is_refused_at_once() {
    let fixture = Fixture::new().await;
    let execute = |key, bytes| fixture.execute_bytes(key, Effect::Succeed, bytes);
    let (only, next) = tokio::join!(execute(1, MAX_WAITING_BYTES + 1), execute(2, 0));
    assert!(only.is_ok());
    assert!(next.unwrap_err().is_unavailable());
    execute(3, MAX_WAITING_BYTES).await.unwrap();
    fixture.wait_for(&[&[1], &[3]]).await;
}

#[tokio::test]
async fn item_whose_caller_goes_before_there_is_a_connection_is_not_executed() {
    let fixture = Fixture::new().await;
    let mut share = Vec::new();
    for _ in 0..8 {
        share.push(fixture.store.tenant_conn(ORG).await.unwrap());
    }
    let left = fixture.execute(1, Effect::Succeed);
    let left = tokio::time::timeout(Duration::from_millis(50), left);
    assert!(left.await.is_err());
    let free = async { drop(share) };
    let (next, ()) = tokio::join!(fixture.execute(2, Effect::Succeed), free);
    next.unwrap();
    fixture.wait_for(&[&[2]]).await;
}

#[tokio::test]
async fn item_whose_caller_goes_during_its_statement_is_undone() {
    let fixture = Fixture::new().await;
    let gate = fixture.record.gate.lock().await;
    let (first, second) = (
        fixture.execute(1, Effect::Succeed),
        fixture.execute(2, Effect::Succeed),
    );
    let leave = async {
        tokio::select! {
            _ = first => panic!("the gate is closed"),
            () = fixture.wait_for(&[&[1, 2]]) => drop(gate),
        }
    };
    let (second, ()) = tokio::join!(second, leave);
    second.unwrap();
    fixture.wait_for_undone(&[1]).await;
}

#[tokio::test]
async fn statement_whose_callers_have_gone_is_undone_and_delays_no_other() {
    let fixture = Fixture::new().await;
    let gate = fixture.record.gate.lock().await;
    let executed: [&[u8]; 2] = [&[1], &[2]];
    for (key, executed) in [(1, &executed[..1]), (2, &executed[..])] {
        tokio::select! {
            _ = fixture.execute(key, Effect::Succeed) => panic!("the gate is closed"),
            () = fixture.wait_for(executed) => {}
        }
    }
    assert!(fixture.record.undone.lock().is_empty());
    drop(gate);
    fixture.wait_for_undone(&[1, 2]).await;
}

/// A queue of items with these keys and bytes. Their tickets are their indices.
fn queue(items: &[(u8, usize)]) -> Queue<Fake> {
    let mut queue = Queue::default();
    for (ticket, &(key, bytes)) in (0..).zip(items) {
        let item = Fake {
            key: [key; 32],
            bytes,
            effect: Effect::Succeed,
            record: Arc::default(),
        };
        queue.insert(Waiting {
            ticket,
            item: Arc::new(item),
            reply: oneshot::channel().0,
        });
    }
    queue
}

fn take(queue: &mut Queue<Fake>) -> Vec<u64> {
    let batch = queue.take(MAX_ITEMS);
    batch.iter().map(|waiting| waiting.ticket).collect()
}

#[test]
fn items_with_equal_keys_or_too_many_bytes_are_split() {
    fn check(items: &[(u8, usize)], first: &[u64], second: &[u64]) {
        let mut queue = queue(items);
        assert_eq!((&*take(&mut queue), &*take(&mut queue)), (first, second));
        assert!(queue.has_room(MAX_WAITING_BYTES + 1), "it is empty");
    }
    check(&[(1, 0), (2, 0), (1, 0), (3, 0)], &[0, 1, 3], &[2]);
    check(&[(1, MAX_BYTES + 1), (2, 0)], &[0], &[1]);
    let half = MAX_BYTES / 2;
    let large = [(1, half), (2, half + 1), (3, half), (4, 0)];
    check(&large, &[0, 2, 3], &[1]);
}

#[test]
fn statement_examines_a_bounded_number_of_items() {
    let mut items = vec![(1, 0); MAX_EXAMINED];
    items.push((2, 0));
    let mut queue = queue(&items);
    assert_eq!(take(&mut queue), [0]);
    assert_eq!(take(&mut queue), [1, 256]);
}
