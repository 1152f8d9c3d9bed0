//! Things to be written to the bus that nobody waits for, kept in order while it is away.
//! Never: more than its limits; the oldest give way, and are counted.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// What may wait altogether. Protects memory while the bus is away.
const MAX_ITEMS: usize = 200_000;
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// What is written in one go; small enough for a command's time limit.
const BATCH_ITEMS: usize = 512;
const BATCH_BYTES: usize = 1024 * 1024;

/// Something that takes room.
pub(crate) trait Weighed {
    /// About how many bytes it takes here and on the wire.
    fn bytes(&self) -> usize;
}

pub(crate) struct Backlog<T: Weighed> {
    waiting: Mutex<Waiting<T>>,
    filled: Notify,
}

struct Waiting<T> {
    items: VecDeque<T>,
    bytes: usize,
}

impl<T: Weighed> Backlog<T> {
    pub(crate) fn new() -> Self {
        let waiting = Waiting {
            items: VecDeque::new(),
            bytes: 0,
        };
        Self {
            waiting: Mutex::new(waiting),
            filled: Notify::new(),
        }
    }

    /// Adds an item; returns how many older ones had to give way.
    pub(crate) fn push(&self, item: T) -> usize {
        let mut waiting = self.waiting.lock();
        waiting.bytes += item.bytes();
        waiting.items.push_back(item);
        let dropped = waiting.trim();
        drop(waiting);
        self.filled.notify_one();
        dropped
    }

    /// The oldest items, as soon as there is one.
    pub(crate) async fn take(&self) -> Batch<'_, T> {
        loop {
            let filled = self.filled.notified();
            if let Some(batch) = self.take_now() {
                return batch;
            }
            filled.await;
        }
    }

    /// The oldest items, if there are any.
    pub(crate) fn take_now(&self) -> Option<Batch<'_, T>> {
        let mut waiting = self.waiting.lock();
        let mut items = Vec::new();
        let mut bytes = 0;
        while items.len() < BATCH_ITEMS && bytes < BATCH_BYTES {
            let Some(item) = waiting.items.pop_front() else {
                break;
            };
            bytes += item.bytes();
            items.push(item);
        }
        waiting.bytes -= bytes;
        if waiting.items.is_empty() {
            waiting.items.shrink_to(64);
        }
        drop(waiting);
        (!items.is_empty()).then_some(Batch {
            backlog: self,
            items,
        })
    }

    fn put_back(&self, items: Vec<T>) {
        let mut waiting = self.waiting.lock();
        for item in items.into_iter().rev() {
            waiting.bytes += item.bytes();
            waiting.items.push_front(item);
        }
    }
}

impl<T: Weighed> Waiting<T> {
    fn trim(&mut self) -> usize {
        let mut dropped = 0;
        while self.items.len() > MAX_ITEMS || self.bytes > MAX_BYTES {
            let Some(item) = self.items.pop_front() else {
                break;
            };
            self.bytes -= item.bytes();
            dropped += 1;
        }
        dropped
    }
}

/// Items that are being written. Dropped before they are, they wait again, in front.
pub(crate) struct Batch<'a, T: Weighed> {
    backlog: &'a Backlog<T>,
    pub(crate) items: Vec<T>,
}

impl<T: Weighed> Batch<'_, T> {
    /// They are written.
    pub(crate) fn done(mut self) {
        self.items.clear();
    }
}

impl<T: Weighed> Drop for Batch<'_, T> {
    fn drop(&mut self) {
        if !self.items.is_empty() {
            self.backlog.put_back(std::mem::take(&mut self.items));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Weighed for usize {
        fn bytes(&self) -> usize {
            *self
        }
    }

    #[tokio::test]
    async fn keeps_order_until_a_batch_is_done() {
        let backlog = Backlog::new();
        (1..=4).for_each(|item| assert_eq!(backlog.push(item), 0));
        let batch = backlog.take().await;
        assert_eq!(batch.items, [1, 2, 3, 4]);
        backlog.push(5);
        drop(batch);
        let batch = backlog.take().await;
        assert_eq!(batch.items, [1, 2, 3, 4, 5]);
        batch.done();
        assert!(backlog.take_now().is_none());
    }

    #[tokio::test]
    async fn the_oldest_give_way_and_batches_stay_small() {
        let backlog = Backlog::new();
        let third = MAX_BYTES / 3;
        let dropped: Vec<usize> = (0..5).map(|n| backlog.push(third + n)).collect();
        assert_eq!(dropped, [0, 0, 1, 1, 1]);
        let batch = backlog.take().await;
        assert_eq!(
            batch.items,
            [third + 3],
            "one that is larger than a batch goes alone"
        );
    }
}
