//! The task that executes the items of an organisation.

use std::sync::Arc;

use switchboard_protocol::id::OrgId;
use tokio::time::timeout;
use tracing::Span;

use super::{
    Batches, Item,
    queue::{MAX_ITEMS, Waiting},
};
use crate::{
    Store, StoreError,
    database::{QUERY_TIMEOUT, ScopedConnection, with_timeout},
};

/// Statements before the connection is returned, so that others who wait for one get it.
const STATEMENTS_PER_CONNECTION: usize = 16;

/// Owns the queue of an organisation until it ends.
pub(super) struct Turn<I: Item> {
    batches: Arc<Batches<I>>,
    org: OrgId,
    /// Items to execute one at a time, after they failed together.
    singles: usize,
    has_ended: bool,
}

impl<I: Item> Turn<I> {
    pub(super) const fn new(batches: Arc<Batches<I>>, org: OrgId) -> Self {
        Self {
            batches,
            org,
            singles: 0,
            has_ended: false,
        }
    }

    pub(super) async fn execute(mut self, store: Store) {
        let mut connection = None;
        let mut statements = 0_usize;
        while self.has_items() {
            // First: an item leaves the queue only for a statement that is sent.
            let acquired = match connection.take() {
                Some(connection) => Ok(connection),
                None => store.tenant_conn(self.org).await,
            };
            let Some(batch) = self.next_batch() else {
                continue;
            };
            match acquired {
                Ok(acquired) => connection = self.execute_batch(acquired, batch).await,
                Err(error) => fail(batch, error.into()),
            }
            statements += 1;
            if statements.is_multiple_of(STATEMENTS_PER_CONNECTION) {
                connection = None;
            }
        }
    }

    /// False if the turn has ended, as nothing waits.
    fn has_items(&mut self) -> bool {
        let mut queues = self.batches.queues.lock();
        self.has_ended = queues.get(&self.org).is_none_or(|queue| queue.is_empty());
        if self.has_ended {
            queues.remove(&self.org);
        }
        !self.has_ended
    }

    /// The items of the next statement. Processes lock rows in one order: that of the keys. `None`
    /// if all callers have gone.
    fn next_batch(&mut self) -> Option<Vec<Waiting<I>>> {
        let limit = if self.singles > 0 { 1 } else { MAX_ITEMS };
        self.singles = self.singles.saturating_sub(1);
        let mut batch = self.batches.queues.lock().get_mut(&self.org)?.take(limit);
        batch.sort_unstable_by_key(|waiting| *waiting.item.key());
        (!batch.is_empty()).then_some(batch)
    }

    /// Executes a statement while one of its callers waits. Returns the connection, unless it is in
    /// use or may be broken.
    async fn execute_batch(
        &mut self,
        connection: ScopedConnection,
        mut batch: Vec<Waiting<I>>,
    ) -> Option<ScopedConnection> {
        let org = self.org;
        let items = batch.iter().map(|waiting| Arc::clone(&waiting.item));
        let mut statement = Box::pin(execute::<I>(connection, org, items.collect()));
        let callers_gone = async {
            for waiting in &mut batch {
                waiting.reply.closed().await;
            }
        };
        let executed = tokio::select! {
            biased;
            executed = &mut statement => executed,
            () = callers_gone => {
                let items: Vec<_> = batch.into_iter().map(|waiting| waiting.item).collect();
                self.batches.tasks.spawn_in(Span::none(), async move {
                    if let Ok((connection, _)) = statement.await {
                        undo(connection, org, items).await;
                    }
                });
                return None;
            }
        };
        match executed {
            Ok((connection, outputs)) => {
                let undelivered = self.reply(batch, outputs);
                if undelivered.is_empty() {
                    return Some(connection);
                }
                let undo = undo(connection, org, undelivered);
                self.batches.tasks.spawn_in(Span::none(), undo);
            }
            Err(error) if batch.len() > 1 && error.is_of_a_row() => {
                self.singles = batch.len();
                batch.into_iter().for_each(|waiting| self.put_back(waiting));
            }
            Err(error) => fail(batch, error),
        }
        None
    }

    /// Returns the items whose callers have gone.
    fn reply(&self, batch: Vec<Waiting<I>>, outputs: Vec<Option<I::Output>>) -> Vec<Arc<I>> {
        let mut undelivered = Vec::new();
        for (waiting, output) in batch.into_iter().zip(outputs) {
            match output {
                Some(output) => {
                    if waiting.reply.send(Ok(output)).is_err() {
                        undelivered.push(waiting.item);
                    }
                }
                None => self.put_back(waiting),
            }
        }
        undelivered
    }

    fn put_back(&self, waiting: Waiting<I>) {
        let mut queues = self.batches.queues.lock();
        if let Some(queue) = queues.get_mut(&self.org)
            && !waiting.reply.is_closed()
        {
            queue.insert(waiting);
        }
    }
}

impl<I: Item> Drop for Turn<I> {
    fn drop(&mut self) {
        if !self.has_ended {
            let abandoned = self.batches.queues.lock().remove(&self.org);
            drop(abandoned);
        }
    }
}

/// A statement. It owns what it needs, so that it can outlive its turn.
async fn execute<I: Item>(
    mut connection: ScopedConnection,
    org: OrgId,
    items: Vec<Arc<I>>,
) -> Result<(ScopedConnection, Vec<Option<I::Output>>), StoreError> {
    let items: Vec<&I> = items.iter().map(Arc::as_ref).collect();
    let executed = timeout(QUERY_TIMEOUT, I::execute(&mut connection, org, &items)).await;
    let outputs = executed.map_err(|_| StoreError::Unavailable(None))??;
    Ok((connection, outputs))
}

/// Undoes executed items whose callers have gone.
async fn undo<I: Item>(mut connection: ScopedConnection, org: OrgId, items: Vec<Arc<I>>) {
    let items: Vec<&I> = items.iter().map(Arc::as_ref).collect();
    if let Err(error) = with_timeout(I::undo(&mut connection, org, &items)).await {
        tracing::warn!(
            error = error.report(),
            "what callers that have gone no longer need could not be undone"
        );
    }
}

/// Fails all items; the first one with the cause.
fn fail<I: Item>(batch: Vec<Waiting<I>>, error: StoreError) {
    let mut cause = Some(error);
    for waiting in batch {
        let error = cause.take().unwrap_or(StoreError::Unavailable(None));
        drop(waiting.reply.send(Err(error)));
    }
}
