//! Buffers background writes to the backend while it is not reachable.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Limits of a buffer. They protect memory while the bus is not reachable.
const MAX_ITEMS: usize = 200_000;
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Limits of one write, which must complete within the timeout of a command.
const WRITE_ITEMS: usize = 512;
const WRITE_BYTES: usize = 1024 * 1024;

/// An item of a known size.
pub(crate) trait ByteSize {
    /// About how many bytes the item takes in memory and on the wire.
    fn byte_size(&self) -> usize;
}

/// Items that are written in order. Beyond its limits the oldest are dropped, and counted.
pub(crate) struct WriteBuffer<T: ByteSize> {
    state: Mutex<State<T>>,
    filled: Notify,
}

struct State<T> {
    items: VecDeque<T>,
    bytes: usize,
}

impl<T: ByteSize> WriteBuffer<T> {
    pub(crate) fn new() -> Self {
        let state = State {
            items: VecDeque::new(),
            bytes: 0,
        };
        Self {
            state: Mutex::new(state),
            filled: Notify::new(),
        }
    }

    /// Adds an item. Returns how many older ones were dropped.
    pub(crate) fn push(&self, item: T) -> usize {
        let mut state = self.state.lock();
        state.bytes += item.byte_size();
        state.items.push_back(item);
        let dropped = state.trim();
        drop(state);
        self.filled.notify_one();
        dropped
    }

    /// Waits for items. Returns the oldest.
    pub(crate) async fn take(&self) -> PendingWrite<'_, T> {
        loop {
            let filled = self.filled.notified();
            if let Some(write) = self.try_take() {
                return write;
            }
            filled.await;
        }
    }

    /// The oldest items, if there are any.
    pub(crate) fn try_take(&self) -> Option<PendingWrite<'_, T>> {
        let mut state = self.state.lock();
        let mut items = Vec::new();
        let mut bytes = 0;
        while items.len() < WRITE_ITEMS && bytes < WRITE_BYTES {
            let Some(item) = state.items.pop_front() else {
                break;
            };
            bytes += item.byte_size();
            items.push(item);
        }
        state.bytes -= bytes;
        if state.items.is_empty() {
            state.items.shrink_to(64);
        }
        drop(state);
        (!items.is_empty()).then_some(PendingWrite {
            buffer: self,
            items,
        })
    }

    fn put_back(&self, items: Vec<T>) {
        let mut state = self.state.lock();
        for item in items.into_iter().rev() {
            state.bytes += item.byte_size();
            state.items.push_front(item);
        }
    }
}

impl<T: ByteSize> State<T> {
    fn trim(&mut self) -> usize {
        let mut dropped = 0;
        while self.items.len() > MAX_ITEMS || self.bytes > MAX_BYTES {
            let Some(item) = self.items.pop_front() else {
                break;
            };
            self.bytes -= item.byte_size();
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
    use super::*;

    impl ByteSize for usize {
        fn byte_size(&self) -> usize {
            *self
        }
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
