//! Buffers background writes to the backend while it is not reachable.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use switchboard_protocol::id::OrgId;
use tokio::sync::Notify;

/// Limits of a buffer. They protect memory while the bus is not reachable.
const MAX_ITEMS: usize = 200_000;
pub(crate) const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Limits of one write, which must complete within the timeout of a command.
const WRITE_ITEMS: usize = 512;
const WRITE_BYTES: usize = 1024 * 1024;

/// An item of a known size, which an organisation causes.
pub(crate) trait ByteSize {
    /// The organisation.
    fn org(&self) -> OrgId;

    /// About how many bytes the item takes in memory and on the wire.
    fn byte_size(&self) -> usize;
}

/// Items that are written: those of one organisation in order, and organisations in turn. Beyond its
/// limits the oldest of the organisation that has most bytes are dropped, and counted.
pub(crate) struct WriteBuffer<T: ByteSize> {
    state: Mutex<State<T>>,
    filled: Notify,
    /// Notified when the last item is written.
    written: Notify,
}

/// Invariant: an organisation has a queue, and one place in `turns`, while it has items.
struct State<T> {
    queues: HashMap<OrgId, Queue<T>>,
    turns: VecDeque<OrgId>,
    count: usize,
    bytes: usize,
    /// The items that are being written.
    in_flight: usize,
}

struct Queue<T> {
    items: VecDeque<T>,
    bytes: usize,
}

impl<T: ByteSize> WriteBuffer<T> {
    pub(crate) fn new() -> Self {
        let state = State {
            queues: HashMap::new(),
            turns: VecDeque::new(),
            count: 0,
            bytes: 0,
            in_flight: 0,
        };
        Self {
            state: Mutex::new(state),
            filled: Notify::new(),
            written: Notify::new(),
        }
    }

    /// Adds an item. Returns how many were dropped for it.
    pub(crate) fn push(&self, item: T) -> usize {
        let mut state = self.state.lock();
        state.queue_for(&item).items.push_back(item);
        let dropped = state.trim();
        if state.is_written() {
            self.written.notify_waiters();
        }
        drop(state);
        self.filled.notify_one();
        dropped
    }

    /// Waits for items. Returns the next.
    pub(crate) async fn take(&self) -> PendingWrite<'_, T> {
        loop {
            let filled = self.filled.notified();
            if let Some(write) = self.try_take() {
                return write;
            }
            filled.await;
        }
    }

    /// The next items, if there are any: one of each organisation in turn.
    pub(crate) fn try_take(&self) -> Option<PendingWrite<'_, T>> {
        let mut state = self.state.lock();
        let mut items = Vec::new();
        let mut bytes = 0;
        while items.len() < WRITE_ITEMS && bytes < WRITE_BYTES {
            let Some(item) = state.next() else {
                break;
            };
            bytes += item.byte_size();
            items.push(item);
        }
        state.in_flight += items.len();
        drop(state);
        (!items.is_empty()).then_some(PendingWrite {
            buffer: self,
            items,
        })
    }

    /// Waits until all items are written.
    pub(crate) async fn written(&self) {
        loop {
            let written = self.written.notified();
            if self.state.lock().is_written() {
                return;
            }
            written.await;
        }
    }

    fn put_back(&self, items: Vec<T>) {
        let mut state = self.state.lock();
        state.in_flight -= items.len();
        for item in items.into_iter().rev() {
            state.queue_for(&item).items.push_front(item);
        }
    }

    fn commit(&self, count: usize) {
        let mut state = self.state.lock();
        state.in_flight -= count;
        if state.is_written() {
            self.written.notify_waiters();
        }
    }
}

impl<T: ByteSize> State<T> {
    const fn is_written(&self) -> bool {
        self.count == 0 && self.in_flight == 0
    }

    /// The queue of an item that is about to be added to it.
    fn queue_for(&mut self, item: &T) -> &mut Queue<T> {
        let (org, bytes) = (item.org(), item.byte_size());
        self.count += 1;
        self.bytes += bytes;
        let turns = &mut self.turns;
        let queue = self.queues.entry(org).or_insert_with(|| {
            turns.push_back(org);
            Queue {
                items: VecDeque::new(),
                bytes: 0,
            }
        });
        queue.bytes += bytes;
        queue
    }

    /// Removes the oldest item of the organisation whose turn it is.
    fn next(&mut self) -> Option<T> {
        let org = self.turns.pop_front()?;
        let item = self.remove_oldest(org)?;
        if self.queues.contains_key(&org) {
            self.turns.push_back(org);
        }
        Some(item)
    }

    fn remove_oldest(&mut self, org: OrgId) -> Option<T> {
        let queue = self.queues.get_mut(&org)?;
        let item = queue.items.pop_front()?;
        let bytes = item.byte_size();
        queue.bytes -= bytes;
        if queue.items.is_empty() {
            self.queues.remove(&org);
        }
        self.count -= 1;
        self.bytes -= bytes;
        Some(item)
    }

    fn trim(&mut self) -> usize {
        let mut dropped = 0;
        while self.count > MAX_ITEMS || self.bytes > MAX_BYTES {
            let largest = self.queues.iter().max_by_key(|(_, queue)| queue.bytes);
            let Some(org) = largest.map(|(org, _)| *org) else {
                break;
            };
            self.remove_oldest(org);
            if !self.queues.contains_key(&org) {
                self.turns.retain(|other| *other != org);
            }
            dropped += 1;
        }
        dropped
    }
}

/// Items that are being written. When it is dropped before [`Self::commit`], they return to the
/// front of the buffer.
pub(crate) struct PendingWrite<'a, T: ByteSize> {
    buffer: &'a WriteBuffer<T>,
    pub(crate) items: Vec<T>,
}

impl<T: ByteSize> PendingWrite<'_, T> {
    /// The items are written.
    pub(crate) fn commit(mut self) {
        self.buffer.commit(self.items.len());
        self.items.clear();
    }
}

impl<T: ByteSize> Drop for PendingWrite<'_, T> {
    fn drop(&mut self) {
        if !self.items.is_empty() {
            self.buffer.put_back(std::mem::take(&mut self.items));
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// Items of one organisation, with their sizes.
    impl ByteSize for usize {
        fn org(&self) -> OrgId {
            OrgId::from_uuid(Uuid::nil())
        }

        fn byte_size(&self) -> usize {
            *self
        }
    }

    /// The number of an organisation, and the size.
    impl ByteSize for (u128, usize) {
        fn org(&self) -> OrgId {
            OrgId::from_uuid(Uuid::from_u128(self.0))
        }

        fn byte_size(&self) -> usize {
            self.1
        }
    }

    #[tokio::test]
    async fn full_buffer_drops_items_of_the_largest_organisation_and_serves_all_in_turn() {
        let buffer = WriteBuffer::new();
        let part = MAX_BYTES / 8;
        for item in [(2, 1), (2, 2), (3, 3)] {
            assert_eq!(buffer.push(item), 0);
        }
        let dropped: usize = (0..20).map(|n| buffer.push((1, part + n))).sum();
        assert_eq!(dropped, 13);
        assert_eq!(buffer.push((3, 4)), 0);
        let mut written = Vec::new();
        while let Some(write) = buffer.try_take() {
            written.extend_from_slice(&write.items);
            write.commit();
        }
        let first = [
            (2, 1),
            (3, 3),
            (1, part + 13),
            (2, 2),
            (3, 4),
            (1, part + 14),
        ];
        assert_eq!(written[..6], first);
        assert_eq!(written.len(), 4 + 7);
        assert!(buffer.state.lock().turns.is_empty());
    }

    #[tokio::test]
    async fn uncommitted_items_return_in_order() {
        let buffer = WriteBuffer::new();
        (1..=4).for_each(|item| assert_eq!(buffer.push(item), 0));
        let write = buffer.take().await;
        assert_eq!(write.items, [1, 2, 3, 4]);
        buffer.push(5);
        drop(write);
        let write = buffer.take().await;
        assert_eq!(write.items, [1, 2, 3, 4, 5]);
        write.commit();
        assert!(buffer.try_take().is_none());
    }

    #[tokio::test]
    async fn buffer_is_written_when_the_last_write_is_committed() {
        let buffer = WriteBuffer::new();
        buffer.written().await;
        buffer.push(1);
        let write = buffer.take().await;
        assert!(!is_written(&buffer).await, "the item is in flight");
        drop(write);
        assert!(!is_written(&buffer).await, "the item has returned");
        let write = buffer.take().await;
        tokio::join!(buffer.written(), async { write.commit() });
        assert!(is_written(&buffer).await);
    }

    async fn is_written(buffer: &WriteBuffer<usize>) -> bool {
        tokio::select! {
            biased;
            () = buffer.written() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn oldest_items_are_dropped_and_writes_are_limited() {
        let buffer = WriteBuffer::new();
        let third = MAX_BYTES / 3;
        let dropped: Vec<usize> = (0..5).map(|n| buffer.push(third + n)).collect();
        assert_eq!(dropped, [0, 0, 1, 1, 1]);
        let write = buffer.take().await;
        assert_eq!(
            write.items,
            [third + 3],
            "an item larger than a write is written alone"
        );
    }
}
