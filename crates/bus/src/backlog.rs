//! Things to be written to the bus that nobody waits for, kept in order while it is away.
//! Never: more than its limit; the oldest give way, and are counted.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

pub(crate) struct Backlog<T> {
    limit: usize,
    waiting: Mutex<VecDeque<T>>,
    filled: Notify,
}

impl<T> Backlog<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            waiting: Mutex::new(VecDeque::new()),
            filled: Notify::new(),
        }
    }

    pub(crate) fn push(&self, item: T) {
        self.waiting.lock().push_back(item);
        self.filled.notify_one();
    }

    /// The oldest items, as soon as there is one.
    pub(crate) async fn take(&self, max: usize) -> Vec<T> {
        loop {
            let filled = self.filled.notified();
            if let Some(batch) = self.take_now(max) {
                return batch;
            }
            filled.await;
        }
    }

    fn take_now(&self, max: usize) -> Option<Vec<T>> {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() {
            return None;
        }
        let count = waiting.len().min(max);
        let batch = waiting.drain(..count).collect();
        if waiting.is_empty() {
            waiting.shrink_to(64);
        }
        Some(batch)
    }

    /// Puts a batch that could not be written back in front; returns how many had to give way.
    pub(crate) fn put_back(&self, batch: Vec<T>) -> usize {
        let mut waiting = self.waiting.lock();
        for item in batch.into_iter().rev() {
            waiting.push_front(item);
        }
        let excess = waiting.len().saturating_sub(self.limit);
        waiting.drain(..excess);
        excess
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keeps_order_and_its_limit() {
        let backlog = Backlog::new(3);
        (1..=4).for_each(|n| backlog.push(n));
        let batch = backlog.take(2).await;
        assert_eq!(batch, [1, 2]);
        assert_eq!(backlog.put_back(batch), 1);
        assert_eq!(backlog.take(10).await, [2, 3, 4]);
    }
}
