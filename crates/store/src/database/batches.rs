//! Group commit: items of an organisation that arrive during a statement share the next one.

mod turn;

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use sqlx::PgConnection;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::shutdown::Shutdown;
use tokio::sync::oneshot;
use tracing::Span;

use super::with_timeout;
use crate::{Store, StoreError};
use turn::Turn;

/// What one statement does for several callers of an organisation.
pub(crate) trait Item: Debug + Send + Sync + Sized + 'static {
    /// What its caller receives.
    type Output: Debug + Send + 'static;

    /// The row that it concerns. The items of a statement have different ones.
    fn key(&self) -> &[u8; 32];

    /// How much it adds to the size of a statement.
    fn bytes(&self) -> usize;

    /// Executes items in the order of their keys. Returns the output of each; `None` for one that
    /// must be executed again.
    fn execute(
        connection: &mut PgConnection,
        org: OrgId,
        items: &[&Self],
    ) -> impl Future<Output = Result<Vec<Option<Self::Output>>, sqlx::Error>> + Send;
}

/// Executes items of one kind, those of an organisation together.
///
/// The states of an organisation:
///
/// ```text
/// idle ──item──▶ executing ──statement ends, items wait──▶ executing
///                          ──statement ends, none waits──▶ idle
/// ```
///
/// - *idle*: it has no queue. An item is executed at once.
/// - *executing*: it has a queue, and a task that executes one statement after the other. Items that
///   arrive wait for the next one. The queue is removed with the task, also if that panics; who
///   waits then receives [`StoreError::Unavailable`].
///
/// Fairness: an organisation has one statement and one connection at a time, however many items
/// wait, and returns the connection after a few statements.
///
/// The callers bound the queue: an item leaves it with its caller. An item whose statement was sent
/// is executed without its caller, and others are not affected.
///
/// If a statement fails because of a row, its items are executed one at a time, and each has its own
/// result. If the database is unavailable, all fail. The actor of a statement is that of any caller:
/// not for audited tables.
#[derive(Debug)]
pub(crate) struct Batches<I: Item> {
    queues: Mutex<HashMap<OrgId, Queue<I>>>,
    last_ticket: AtomicU64,
    tasks: Shutdown,
}

/// The waiting items of an organisation by ticket, in the order of their arrival.
type Queue<I> = BTreeMap<u64, Waiting<I>>;

#[derive(Debug)]
struct Waiting<I: Item> {
    ticket: u64,
    item: I,
    reply: oneshot::Sender<Result<I::Output, StoreError>>,
}

/// Removes the item of a caller that no longer waits.
struct Caller<'a, I: Item> {
    batches: &'a Batches<I>,
    org: OrgId,
    ticket: u64,
    result: oneshot::Receiver<Result<I::Output, StoreError>>,
}

impl<I: Item> Batches<I> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            queues: Mutex::default(),
            last_ticket: AtomicU64::new(0),
            tasks: Shutdown::new(),
        })
    }

    /// Executes an item, with others if there are any. If the future is dropped, the item may be
    /// executed if its statement was sent, and is not otherwise.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub(crate) async fn execute(
        self: &Arc<Self>,
        store: &Store,
        org: OrgId,
        item: I,
    ) -> Result<I::Output, StoreError> {
        let (mut caller, is_first) = self.enqueue(org, item);
        if is_first {
            let turn = Turn::new(Arc::clone(self), org);
            let task = turn.execute(store.clone());
            self.tasks.spawn_in(Span::none(), task);
        }
        with_timeout(async {
            let result = (&mut caller.result).await;
            result.unwrap_or(Err(StoreError::Unavailable(None)))
        })
        .await
    }

    /// Adds an item. True if the organisation was idle.
    fn enqueue(&self, org: OrgId, item: I) -> (Caller<'_, I>, bool) {
        let (reply, result) = oneshot::channel();
        let ticket = self.last_ticket.fetch_add(1, Ordering::Relaxed);
        let mut queues = self.queues.lock();
        let is_first = !queues.contains_key(&org);
        let waiting = Waiting {
            ticket,
            item,
            reply,
        };
        queues.entry(org).or_default().insert(ticket, waiting);
        let caller = Caller {
            batches: self,
            org,
            ticket,
            result,
        };
        (caller, is_first)
    }
}

impl<I: Item> Drop for Caller<'_, I> {
    fn drop(&mut self) {
        // First: an item of a statement returns to the queue only if its caller waits.
        self.result.close();
        let mut queues = self.batches.queues.lock();
        if let Some(queue) = queues.get_mut(&self.org) {
            queue.remove(&self.ticket);
        }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::testing::TestDatabase;

    #[derive(Debug)]
    struct Panic(bool);

    impl Item for Panic {
        type Output = ();

        fn key(&self) -> &[u8; 32] {
            &[0; 32]
        }

        fn bytes(&self) -> usize {
            0
        }

        async fn execute(
            _: &mut PgConnection,
            _: OrgId,
            items: &[&Self],
        ) -> Result<Vec<Option<()>>, sqlx::Error> {
            assert!(items.iter().all(|item| !item.0), "as in a bug");
            Ok(vec![Some(()); items.len()])
        }
    }

    #[tokio::test]
    async fn panic_fails_who_waits_and_leaves_no_queue() {
        let database = TestDatabase::create().await.unwrap();
        let (store, batches) = (database.store(), Batches::new());
        let org = OrgId::from_uuid(Uuid::nil());
        let execute = |panics| batches.execute(&store, org, Panic(panics));
        let (first, second) = tokio::join!(execute(true), execute(false));
        assert!(first.unwrap_err().is_unavailable());
        assert!(second.unwrap_err().is_unavailable());
        execute(false).await.unwrap();
        assert!(batches.queues.lock().is_empty());
    }
}
