//! The task that executes the items of an organisation.

use std::{collections::HashSet, sync::Arc};

use switchboard_protocol::id::OrgId;
use tokio::time::timeout;

use super::{Batches, Item, Queue, Waiting};
use crate::{Store, StoreError, database::QUERY_TIMEOUT};

/// Items of one statement. Limits how many wait for a locked row of one of them.
const MAX_ITEMS: usize = 64;
/// Bytes of a statement with several items. Protects memory.
const MAX_BYTES: usize = 1024 * 1024;
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
        while let Some(batch) = self.next_batch() {
            let items: Vec<&I> = batch.iter().map(|waiting| &waiting.item).collect();
            let work = async {
                let connection = match &mut connection {
                    Some(connection) => connection,
                    none => none.insert(store.tenant_conn(self.org).await?),
                };
                I::execute(connection, self.org, &items).await
            };
            let executed = match timeout(QUERY_TIMEOUT, work).await {
                Ok(executed) => executed.map_err(StoreError::from),
                Err(_) => Err(StoreError::Unavailable(None)),
            };
            statements += 1;
            if executed.is_err() || statements.is_multiple_of(STATEMENTS_PER_CONNECTION) {
                connection = None;
            }
            self.reply(batch, executed);
        }
    }

    /// The items of the next statement. Processes lock rows in one order: that of the keys.
    fn next_batch(&mut self) -> Option<Vec<Waiting<I>>> {
        let limit = if self.singles > 0 { 1 } else { MAX_ITEMS };
        self.singles = self.singles.saturating_sub(1);
        let mut queues = self.batches.queues.lock();
        let queue = queues.get_mut(&self.org).filter(|queue| !queue.is_empty());
        let Some(queue) = queue else {
            queues.remove(&self.org);
            self.has_ended = true;
            return None;
        };
        let mut batch = take(queue, limit);
        drop(queues);
        batch.sort_unstable_by_key(|waiting| *waiting.item.key());
        Some(batch)
    }

    fn reply(
        &mut self,
        batch: Vec<Waiting<I>>,
        executed: Result<Vec<Option<I::Output>>, StoreError>,
    ) {
        match executed {
            Ok(outputs) => {
                for (waiting, output) in batch.into_iter().zip(outputs) {
                    match output {
                        // The caller may have gone.
                        Some(output) => drop(waiting.reply.send(Ok(output))),
                        None => self.put_back(waiting),
                    }
                }
            }
            Err(error) if batch.len() > 1 && !error.is_unavailable() => {
                self.singles = batch.len();
                batch.into_iter().for_each(|waiting| self.put_back(waiting));
            }
            Err(error) => {
                let mut cause = Some(error);
                for waiting in batch {
                    let error = cause.take().unwrap_or(StoreError::Unavailable(None));
                    drop(waiting.reply.send(Err(error)));
                }
            }
        }
    }

    fn put_back(&self, waiting: Waiting<I>) {
        let mut queues = self.batches.queues.lock();
        if let Some(queue) = queues.get_mut(&self.org)
            && !waiting.reply.is_closed()
        {
            queue.insert(waiting.ticket, waiting);
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

/// Takes the first items that fit together.
fn take<I: Item>(queue: &mut Queue<I>, limit: usize) -> Vec<Waiting<I>> {
    let (mut keys, mut bytes) = (HashSet::new(), 0_usize);
    let fits = |_: &u64, waiting: &mut Waiting<I>| {
        let total = bytes.saturating_add(waiting.item.bytes());
        let fits = keys.is_empty() || total <= MAX_BYTES;
        let fits = fits && keys.insert(*waiting.item.key());
        if fits {
            bytes = total;
        }
        fits
    };
    let taken = queue.extract_if(.., fits).take(limit);
    taken.map(|(_, waiting)| waiting).collect()
}
