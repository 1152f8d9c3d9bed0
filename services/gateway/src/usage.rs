//! What each organisation's calls come to: counted in memory, written in batches.
//! Never: a statement for each call, or a table in memory that grows without a bound.

use std::{collections::HashMap, mem, time::Duration};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use prometheus::{IntCounter, IntGauge, Registry};
use switchboard_protocol::id::OrgId;
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::{CountedCalls, Store};
use uuid::Uuid;

/// Between two batches: what a process that is killed has not written is lost.
const EVERY: Duration = Duration::from_secs(5);
/// How often it looks whether the last calls have ended, while the process drains.
const LOOK: Duration = Duration::from_millis(100);
/// How many sums wait while the database is away: an hour of ten thousand organisations with five outcomes. Protects memory.
const MOST_WAITING: usize = 50_000;
/// How many sums are written in one statement.
const MOST_WRITTEN: usize = 1_000;

/// Whose, when, how.
type Place = (OrgId, DateTime<Utc>, &'static str);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    calls: i64,
    microseconds: i64,
}

/// Counts calls, and has them written by [`Usage::run`].
pub(crate) struct Usage {
    counting: Mutex<HashMap<Place, Sum>>,
    lost: IntCounter,
}

impl Usage {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let lost = IntCounter::new(
            "switchboard_gateway_usage_lost_total",
            "Calls that are missing in the usage of their organisations, because too many sums wait.",
        )?;
        registry.register(Box::new(lost.clone()))?;
        Ok(Self {
            counting: Mutex::default(),
            lost,
        })
    }

    /// Counts a call that has ended.
    pub(crate) fn count(&self, org: OrgId, outcome: &'static str, took: Duration) {
        let microseconds = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
        let sum = Sum {
            calls: 1,
            microseconds,
        };
        self.add((org, hour(Utc::now()), outcome), sum);
    }

    fn add(&self, place: Place, sum: Sum) {
        let mut counting = self.counting.lock();
        if counting.len() >= MOST_WAITING && !counting.contains_key(&place) {
            drop(counting);
            self.lost.inc_by(sum.calls.unsigned_abs());
            return;
        }
        let known = counting.entry(place).or_default();
        known.calls = known.calls.saturating_add(sum.calls);
        known.microseconds = known.microseconds.saturating_add(sum.microseconds);
    }

    /// Writes until draining begins and the calls under way have ended, or everything is to end now.
    pub(crate) async fn run(&self, under_way: &IntGauge, store: Store, shutdown: Shutdown) {
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
        while under_way.get() > 0 {
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
    fn take(&self) -> Vec<CountedCalls> {
        let mut counting = self.counting.lock();
        let mut all = mem::take(&mut *counting);
        let some: Vec<_> = all.keys().take(MOST_WRITTEN).copied().collect();
        let taken = some.into_iter().filter_map(|place| {
            let sum = all.remove(&place)?;
            let (org, hour, outcome) = place;
            Some(CountedCalls {
                org,
                hour,
                outcome,
                calls: sum.calls,
                milliseconds: sum.microseconds / 1_000,
            })
        });
        let taken = taken.collect();
        *counting = all;
        taken
    }
}

/// One process that counts, as the database knows it.
struct Writer {
    counter: Uuid,
    batch: i64,
    /// A batch that may have been written or not: it stays as it is until that is known.
    waiting: Vec<CountedCalls>,
    store: Store,
}

impl Writer {
    /// Writes all that was counted; false when the database is away.
    async fn write(&mut self, usage: &Usage) -> bool {
        loop {
            if self.waiting.is_empty() {
                self.waiting = usage.take();
                self.batch = self.batch.saturating_add(1);
            }
            if self.waiting.is_empty() {
                return true;
            }
            let written = self
                .store
                .add_usage(self.counter, self.batch, &self.waiting);
            if let Err(error) = written.await {
                tracing::debug!(
                    error = error.report(),
                    "the usage of calls waits to be written"
                );
                return false;
            }
            self.waiting.clear();
        }
    }
}

/// The hour that a moment is in.
fn hour(at: DateTime<Utc>) -> DateTime<Utc> {
    let seconds = at.timestamp();
    DateTime::from_timestamp(seconds - seconds.rem_euclid(3_600), 0).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn org(number: u128) -> OrgId {
        OrgId::from_uuid(Uuid::from_u128(number))
    }

    #[test]
    fn sums_are_taken_once_and_have_a_bound() {
        let usage = Usage::new(&Registry::new()).unwrap();
        for _ in 0..3 {
            usage.count(org(1), "succeeded", Duration::from_micros(1_500));
        }
        let taken = usage.take();
        let sums: Vec<_> = taken
            .iter()
            .map(|one| (one.calls, one.milliseconds))
            .collect();
        assert!(
            sums == [(3, 4)] || taken.len() == 2,
            "{taken:?}, unless an hour has just begun"
        );
        assert!(usage.take().is_empty());
        let most = u128::try_from(MOST_WAITING).unwrap();
        for number in 0..most + 10 {
            let place = (org(number), DateTime::UNIX_EPOCH, "failed");
            usage.add(
                place,
                Sum {
                    calls: 1,
                    microseconds: 0,
                },
            );
        }
        assert_eq!(usage.lost.get(), 10);
        let again = (org(0), DateTime::UNIX_EPOCH, "failed");
        usage.add(
            again,
            Sum {
                calls: 1,
                microseconds: 0,
            },
        );
        assert_eq!(usage.lost.get(), 10, "what is counted already goes on");
        let mut calls = 0;
        loop {
            let part = usage.take();
            assert!(part.len() <= MOST_WRITTEN);
            if part.is_empty() {
                break;
            }
            calls += part.iter().map(|one| one.calls).sum::<i64>();
        }
        assert_eq!(calls, i64::try_from(MOST_WAITING).unwrap() + 1);
    }

    #[test]
    fn an_hour_begins_with_its_first_second() {
        fn check(at: i64, expected: i64) {
            let at = DateTime::from_timestamp(at, 999).unwrap();
            assert_eq!(hour(at), DateTime::from_timestamp(expected, 0).unwrap());
        }
        check(0, 0);
        check(3_599, 0);
        check(3_600, 3_600);
        check(-1, -3_600);
    }
}
