//! Group commit: items of an organisation that arrive during a statement share the next one.

mod queue;
#[cfg(all(test, feature = "testing"))]
mod tests;
mod turn;

use std::{
    collections::HashMap,
    fmt::Debug,
    future,
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
use queue::{Queue, Waiting};
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

    /// Undoes executed items, in the order of their keys, whose callers had gone before they
    /// received the output.
    fn undo(
        _connection: &mut PgConnection,
        _org: OrgId,
        _items: &[&Self],
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send {
        future::ready(Ok(()))
    }
}

/// Executes items of one kind, those of an organisation together.
///
/// The states of an organisation:
///
/// ```text
/// idle ──item──▶ executing ──statement ends or is left, items wait──▶ executing
///                          ──statement ends or is left, none waits──▶ idle
/// ```
///
/// - *idle*: it has no queue. An item is executed at once.
/// - *executing*: it has a queue, and a task that executes one statement after the other. Items that
///   arrive wait for the next one. An item leaves the queue when there is a connection for its
///   statement, or with its caller. The queue is removed with the task, also if that panics; who
///   waits then receives [`StoreError::Unavailable`].
///
/// The task waits for a statement while one of its callers does:
///
/// - *The statement succeeds.* Each caller receives its output. An item whose caller has gone is
///   executed nevertheless, and [`Item::undo`] follows.
/// - *It fails because of a row*: of refused or conflicting values, a deadlock or the timeout of a
///   lock. Its items are executed one at a time, and each has its own result.
/// - *It fails otherwise, or there is no connection.* All its items fail.
/// - *All its callers have gone.* The task leaves it, and goes on with another connection. The
///   statement continues in the background; if it succeeds, [`Item::undo`] follows. So a locked row
///   or a silent server delays the items behind it no longer than the callers of one statement wait.
///
/// Limits: [`queue::MAX_WAITING_BYTES`] of an organisation wait, apart from a single larger item. An
/// item beyond them is refused at once with [`StoreError::Unavailable`].
///
/// Fairness: an organisation has one statement and one connection at a time, however many items
/// wait, and returns the connection after a few statements. Statements that were left have
/// connections of its share as well.
///
/// The actor of a statement is that of the [`Store`] of the first caller: not for audited tables.
#[derive(Debug)]
pub(crate) struct Batches<I: Item> {
    queues: Mutex<HashMap<OrgId, Queue<I>>>,
    last_ticket: AtomicU64,
    tasks: Shutdown,
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

    /// Executes an item, with others if there are any. If the future is dropped, the item is executed
    /// if its statement was sent, and then undone; it is not executed otherwise.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails, or too many items wait.
    pub(crate) async fn execute(
        self: &Arc<Self>,
        store: &Store,
        org: OrgId,
        item: I,
    ) -> Result<I::Output, StoreError> {
        with_timeout(async {
            let (mut caller, is_first) = self.enqueue(org, item)?;
            if is_first {
                let turn = Turn::new(Arc::clone(self), org);
                let task = turn.execute(store.clone());
                self.tasks.spawn_in(Span::none(), task);
            }
            let result = (&mut caller.result).await;
            result.unwrap_or(Err(StoreError::Unavailable(None)))
        })
        .await
    }

    /// Adds an item. True if the organisation was idle.
    fn enqueue(&self, org: OrgId, item: I) -> Result<(Caller<'_, I>, bool), StoreError> {
        let (reply, result) = oneshot::channel();
        let ticket = self.last_ticket.fetch_add(1, Ordering::Relaxed);
        let mut queues = self.queues.lock();
        let is_first = !queues.contains_key(&org);
        let queue = queues.entry(org).or_default();
        if !queue.has_room(item.bytes()) {
            return Err(StoreError::Unavailable(None));
        }
        queue.insert(Waiting {
            ticket,
            item: Arc::new(item),
            reply,
        });
        let caller = Caller {
            batches: self,
            org,
            ticket,
            result,
        };
        Ok((caller, is_first))
    }
}

impl<I: Item> Drop for Caller<'_, I> {
    fn drop(&mut self) {
        // First: an item of a statement returns to the queue only if its caller waits.
        self.result.close();
        let mut queues = self.batches.queues.lock();
        if let Some(queue) = queues.get_mut(&self.org) {
            queue.remove(self.ticket);
        }
    }
}
