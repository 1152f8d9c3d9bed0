//! Sums that grow in memory and are written in batches.
//! Never: a statement for each thing that is counted, or a table in memory that grows without a bound.

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

/// Between two batches: what a process that is killed has not written is lost.
const EVERY: Duration = Duration::from_secs(5);
/// How often it looks whether the last things have ended, while the process drains.
const LOOK: Duration = Duration::from_millis(100);
/// How many sums wait while the database is away: an hour of ten thousand organisations with five outcomes. Protects memory.
const MOST_WAITING: usize = 50_000;
/// How many sums are written in one statement.
const MOST_WRITTEN: usize = 1_000;

/// What can be added up: one thing, or the sum of several.
pub trait Countable: Clone + Send + Sync {
    /// What tells sums apart: whose, when, and whatever else.
    type Place: Copy + Eq + Hash + Send;

    /// Which sum it belongs to.
    fn place(&self) -> Self::Place;

    /// Adds another one of the same place.
    fn add(&mut self, other: &Self);

    /// Writes a batch, once however often it comes.
    fn write(
        store: &Store,
        counter: Uuid,
        batch: i64,
        sums: &[Self],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Adds up in memory, and has the sums written by [`UsageCounter::run`].
#[derive(Debug)]
pub struct UsageCounter<T: Countable> {
    counting: Mutex<HashMap<T::Place, T>>,
}

impl<T: Countable> Default for UsageCounter<T> {
    fn default() -> Self {
        Self {
            counting: Mutex::default(),
        }
    }
}

impl<T: Countable> UsageCounter<T> {
    /// Counts something; false when it is lost to the figures, because too many sums wait.
    #[must_use]
    pub fn count(&self, one: &T) -> bool {
        let mut counting = self.counting.lock();
        let is_full = counting.len() >= MOST_WAITING;
        match counting.entry(one.place()) {
            Entry::Occupied(mut sum) => sum.get_mut().add(one),
            Entry::Vacant(_) if is_full => return false,
            Entry::Vacant(free) => {
                free.insert(one.clone());
            }
        }
        true
    }

    /// Writes until draining begins and nothing that will count is under way, or everything is to end now.
    pub async fn run(&self, under_way: impl Fn() -> bool, store: Store, shutdown: Shutdown) {
        let mut writer = Writer {
            counter: Uuid::now_v7(),
            batch: 0,
            waiting: Vec::new(),
            store,
        };
        while !shutdown.is_draining() {
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                () = shutdown.draining() => {}
            }
            writer.write(self).await;
        }
        while under_way() {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = shutdown.stopping() => break,
            }
        }
        if !writer.write(self).await {
            tracing::warn!("the usage of the last moments could not be written");
        }
    }

    /// Takes some of what was counted.
    fn take(&self) -> Vec<T> {
        let mut counting = self.counting.lock();
        if counting.len() <= MOST_WRITTEN {
            return mem::take(&mut *counting).into_values().collect();
        }
        let some: Vec<_> = counting.keys().take(MOST_WRITTEN).copied().collect();
        let taken = some.iter().filter_map(|place| counting.remove(place));
        taken.collect()
    }
}

/// One process that counts, as the database knows it.
struct Writer<T> {
    counter: Uuid,
    batch: i64,
    /// A batch that may have been written or not: it stays as it is until that is known.
    waiting: Vec<T>,
    store: Store,
}

impl<T: Countable> Writer<T> {
    /// Writes all that was counted; false when the database is away.
    async fn write(&mut self, counted: &UsageCounter<T>) -> bool {
        loop {
            if self.waiting.is_empty() {
                self.waiting = counted.take();
                self.batch = self.batch.saturating_add(1);
            }
            if self.waiting.is_empty() {
                return true;
            }
            let written = T::write(&self.store, self.counter, self.batch, &self.waiting);
            if let Err(error) = written.await {
                tracing::debug!(error = error.report(), "usage waits to be written");
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
        CountedCalls::one(
            OrgId::from_uuid(Uuid::from_u128(org)),
            DateTime::UNIX_EPOCH,
            "succeeded",
            Duration::from_micros(1_500),
        )
    }

    #[test]
    fn sums_are_taken_once() {
        let counter = UsageCounter::default();
        for org in [1, 2, 1, 1] {
            assert!(counter.count(&call(org)));
        }
        let mut taken: Vec<_> = counter.take();
        taken.sort_by_key(|one| one.org.uuid());
        let sums: Vec<_> = taken
            .iter()
            .map(|one| (one.calls, one.microseconds))
            .collect();
        assert_eq!(sums, [(3, 4_500), (1, 1_500)]);
        assert!(counter.take().is_empty());
    }

    #[test]
    fn sums_have_a_bound_and_are_taken_in_parts() {
        let counter = UsageCounter::default();
        let most = u128::try_from(MOST_WAITING).unwrap();
        let lost = (0..most + 10).filter(|org| !counter.count(&call(*org)));
        assert_eq!(lost.count(), 10);
        assert!(counter.count(&call(0)), "what is counted already goes on");
        let mut calls = 0;
        loop {
            let part = counter.take();
            assert!(part.len() <= MOST_WRITTEN);
            if part.is_empty() {
                break;
            }
            calls += part.iter().map(|one| one.calls).sum::<i64>();
        }
        assert_eq!(calls, i64::try_from(MOST_WAITING).unwrap() + 1);
    }
}
