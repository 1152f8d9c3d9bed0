//! Sums that are collected in memory and written in batches, and the writer of these and of the
//! journal.
//! Invariant: the number of sums in memory is bounded.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::Hash,
    mem,
    time::Duration,
};

use parking_lot::Mutex;
use switchboard_runtime::shutdown::Shutdown;
use uuid::Uuid;

use crate::{Store, StoreError};

/// The interval of writes: a process that is killed loses this much.
const FLUSH_INTERVAL: Duration = Duration::from_secs(5);
/// The interval of checks, while draining, whether counted work is still in flight.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum number of sums in memory while the database is unavailable: an hour of ten thousand
/// organisations with five outcomes.
const MAX_WAITING: usize = 50_000;
/// The maximum number of sums that one statement writes.
pub(crate) const MAX_BATCH: usize = 1_000;

/// A sum, or an entry, that can be written.
pub trait Writable: Send + Sync + Sized {
    /// The interval of writes.
    const FLUSH_INTERVAL: Duration = FLUSH_INTERVAL;
    /// What is written, for logs.
    const NAME: &'static str = "usage counts";

    /// Writes a batch; a repeated batch is ignored.
    fn write(
        store: &Store,
        counter: Uuid,
        batch: i64,
        sums: &[Self],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A value that can be summed up: a single one, or the sum of several.
pub trait Summable: Writable + Clone {
    /// What distinguishes sums: organisation, time and so on.
    type Key: Copy + Eq + Hash + Send;

    /// The sum that it belongs to.
    fn key(&self) -> Self::Key;

    /// Adds a value with the same key.
    fn add(&mut self, other: &Self);
}

/// Collects sums in memory; [`UsageCounter::run`] writes them.
#[derive(Debug)]
pub struct UsageCounter<T: Summable> {
    sums_by_key: Mutex<HashMap<T::Key, T>>,
}

impl<T: Summable> Default for UsageCounter<T> {
    fn default() -> Self {
        Self {
            sums_by_key: Mutex::default(),
        }
    }
}

impl<T: Summable> UsageCounter<T> {
    /// Adds a value; false if it was dropped because too many sums are waiting.
    #[must_use]
    pub fn count(&self, value: &T) -> bool {
        let mut sums_by_key = self.sums_by_key.lock();
        let is_full = sums_by_key.len() >= MAX_WAITING;
        match sums_by_key.entry(value.key()) {
            Entry::Occupied(mut sum) => sum.get_mut().add(value),
            Entry::Vacant(_) if is_full => return false,
            Entry::Vacant(vacant) => {
                vacant.insert(value.clone());
            }
        }
        true
    }

    /// Writes periodically until draining begins and no counted work is in flight, or until
    /// shutdown is forced.
    pub async fn run(&self, in_flight: impl Fn() -> bool, store: Store, shutdown: Shutdown) {
        write_periodically(|| self.take(), in_flight, store, shutdown).await;
    }

    /// Removes a batch of sums.
    fn take(&self) -> Vec<T> {
        let mut sums_by_key = self.sums_by_key.lock();
        if sums_by_key.len() <= MAX_BATCH {
            return mem::take(&mut *sums_by_key).into_values().collect();
        }
        let keys: Vec<_> = sums_by_key.keys().take(MAX_BATCH).copied().collect();
        let batch = keys.iter().filter_map(|key| sums_by_key.remove(key));
        batch.collect()
    }
}

/// Writes batches periodically until draining begins and no counted work is in flight, or until
/// shutdown is forced.
pub(crate) async fn write_periodically<T: Writable>(
    take: impl Fn() -> Vec<T>,
    in_flight: impl Fn() -> bool,
    store: Store,
    shutdown: Shutdown,
) {
    let mut writer = Writer {
        counter: Uuid::now_v7(),
        batch: 0,
        waiting: Vec::new(),
        store,
    };
    while !shutdown.is_draining() {
        tokio::select! {
            () = tokio::time::sleep(T::FLUSH_INTERVAL) => {}
            () = shutdown.draining() => {}
        }
        writer.write(&take).await;
    }
    while in_flight() {
        tokio::select! {
            () = tokio::time::sleep(DRAIN_POLL_INTERVAL) => {}
            () = shutdown.stopping() => break,
        }
    }
    if !writer.write(&take).await {
        tracing::warn!("remaining {} could not be written and are lost", T::NAME);
    }
}

/// The writer of one process.
struct Writer<T> {
    counter: Uuid,
    batch: i64,
    /// A batch whose write has not been confirmed. It is repeated unchanged until it is.
    waiting: Vec<T>,
    store: Store,
}

impl<T: Writable> Writer<T> {
    /// Writes all sums; false if the database is unavailable.
    async fn write(&mut self, take: &impl Fn() -> Vec<T>) -> bool {
        loop {
            if self.waiting.is_empty() {
                self.waiting = take();
                self.batch = self.batch.saturating_add(1);
            }
            if self.waiting.is_empty() {
                return true;
            }
            let written = T::write(&self.store, self.counter, self.batch, &self.waiting);
            if let Err(error) = written.await {
                tracing::debug!(
                    error = error.report(),
                    "{} could not be written; retrying",
                    T::NAME
                );
                return false;
            }
            self.waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use switchboard_protocol::id::OrgId;

    use super::*;
    use crate::CountedCalls;

    fn call(org: u128) -> CountedCalls {
        CountedCalls::new(
            OrgId::from_uuid(Uuid::from_u128(org)),
            DateTime::UNIX_EPOCH,
            "succeeded",
            Duration::from_micros(1_500),
        )
    }

    #[test]
    fn taken_sums_are_removed() {
        let counter = UsageCounter::default();
        for org in [1, 2, 1, 1] {
            assert!(counter.count(&call(org)));
        }
        let mut batch: Vec<_> = counter.take();
        batch.sort_by_key(|value| value.org.uuid());
        let sums: Vec<_> = batch
            .iter()
            .map(|value| (value.calls, value.microseconds))
            .collect();
        assert_eq!(sums, [(3, 4_500), (1, 1_500)]);
        assert!(counter.take().is_empty());
    }

    #[test]
    fn sums_are_bounded_and_taken_in_batches() {
        let counter = UsageCounter::default();
        let max = u128::try_from(MAX_WAITING).unwrap();
        let lost = (0..max + 10).filter(|org| !counter.count(&call(*org)));
        assert_eq!(lost.count(), 10);
        assert!(counter.count(&call(0)), "an existing sum is still counted");
        let mut calls = 0;
        loop {
            let part = counter.take();
            assert!(part.len() <= MAX_BATCH);
            if part.is_empty() {
                break;
            }
            calls += part.iter().map(|value| value.calls).sum::<i64>();
        }
        assert_eq!(calls, i64::try_from(MAX_WAITING).unwrap() + 1);
    }
}
