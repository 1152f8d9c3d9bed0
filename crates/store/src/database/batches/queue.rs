//! The items of an organisation that wait for a statement.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use tokio::sync::oneshot;

use super::Item;
use crate::StoreError;

/// Items of one statement. A locked row delays all of them.
pub(super) const MAX_ITEMS: usize = 64;
/// Bytes of a statement with several items. Protects memory.
pub(super) const MAX_BYTES: usize = 1024 * 1024;
/// Bytes of the items that wait, if there are several. Protects memory.
pub(super) const MAX_WAITING_BYTES: usize = 4 * 1024 * 1024;
/// Items that are examined for one statement. Protects other organisations: all queues are locked.
pub(super) const MAX_EXAMINED: usize = 4 * MAX_ITEMS;

/// The items by ticket, in the order of their arrival.
#[derive(Debug)]
pub(super) struct Queue<I: Item> {
    items: BTreeMap<u64, Waiting<I>>,
    bytes: usize,
}

#[derive(Debug)]
pub(super) struct Waiting<I: Item> {
    pub(super) ticket: u64,
    pub(super) item: Arc<I>,
    pub(super) reply: oneshot::Sender<Result<I::Output, StoreError>>,
}

impl<I: Item> Default for Queue<I> {
    fn default() -> Self {
        Self {
            items: BTreeMap::new(),
            bytes: 0,
        }
    }
}

impl<I: Item> Queue<I> {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether an item of this size may wait too.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.is_empty() || self.bytes.saturating_add(bytes) <= MAX_WAITING_BYTES
    }

    pub(super) fn insert(&mut self, waiting: Waiting<I>) {
        self.bytes += waiting.item.bytes();
        self.items.insert(waiting.ticket, waiting);
    }

    pub(super) fn remove(&mut self, ticket: u64) {
        if let Some(waiting) = self.items.remove(&ticket) {
            self.bytes -= waiting.item.bytes();
        }
    }

    /// Takes the first items that fit together.
    pub(super) fn take(&mut self, limit: usize) -> Vec<Waiting<I>> {
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
        let end = self.items.keys().nth(MAX_EXAMINED).copied();
        let taken = self.items.extract_if(..end.unwrap_or(u64::MAX), fits);
        let taken = taken.take(limit).map(|(_, waiting)| waiting).collect();
        self.bytes -= bytes;
        taken
    }
}
