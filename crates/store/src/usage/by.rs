//! Usage by device, service and NPC, by day.
//!
//! Invariant: what an organisation can occupy is bounded: [`MAX_KEYS`] keys a day and dimension in the
//! database, and [`MAX_ORG_SUMS`] sums in memory. What exceeds it is summed up under the key ''.

use std::{collections::HashMap, time::Duration};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::shutdown::Shutdown;
use uuid::Uuid;

use super::{
    CountedTurns,
    counter::{self, MAX_BATCH, Writable},
};
use crate::{Store, StoreError, database::with_timeout};

/// Keys of one organisation, day and dimension that have rows of their own.
const MAX_KEYS: i64 = 500;
/// Sums of one organisation that wait in memory under keys of their own.
const MAX_ORG_SUMS: usize = 2_000;
/// Sums of all organisations that wait in memory under keys of their own.
const MAX_SUMS: usize = 50_000;
/// Sums that wait in memory while the database is unavailable.
const MAX_WAITING: usize = 100_000;

/// What usage is summed up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UsageDimension {
    /// Devices, by their ids.
    Device,
    /// Services, by their names.
    Service,
    /// NPCs, by their ids.
    Npc,
}

/// Calls and turns of one key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UsageSums {
    /// The number of calls.
    pub calls: i64,
    /// The sum of their durations, in microseconds.
    pub microseconds: i64,
    /// The number of turns.
    pub turns: i64,
    /// Prompt tokens.
    pub prompt_tokens: i64,
    /// Completion tokens.
    pub completion_tokens: i64,
    /// The cost of the tokens.
    pub cost: f64,
}

/// What the sums of several keys have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Group {
    day: DateTime<Utc>,
    dimension: UsageDimension,
    /// Of the calls; '' for turns.
    outcome: &'static str,
}

/// The sums of one key, to be written.
#[derive(Debug, Clone)]
pub(super) struct CountedBy {
    org: OrgId,
    group: Group,
    key: Box<str>,
    sums: UsageSums,
}

/// Collects sums in memory; [`UsageByCounter::run`] writes them.
#[derive(Debug, Default)]
pub struct UsageByCounter {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    orgs: HashMap<OrgId, OrgSums>,
    count: usize,
}

/// Invariant: no group is empty.
#[derive(Debug, Default)]
struct OrgSums {
    /// Nested, so that a call of a known key is counted without a copy of the key.
    groups: HashMap<Group, HashMap<Box<str>, UsageSums>>,
    count: usize,
}

/// Usage of one key within a period, with one outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageBy {
    /// The key; `None` is the sum of all keys beyond the limit.
    pub key: Option<String>,
    /// The outcome of the calls; '' for turns.
    pub outcome: String,
    /// The number of calls.
    pub calls: i64,
    /// The sum of their durations.
    pub milliseconds: i64,
    /// The number of turns.
    pub turns: i64,
    /// Prompt tokens.
    pub prompt_tokens: i64,
    /// Completion tokens.
    pub completion_tokens: i64,
    /// The cost.
    pub cost: f64,
}

impl UsageDimension {
    /// The name in requests and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Service => "service",
            Self::Npc => "npc",
        }
    }
}

impl UsageSums {
    /// One call of this duration.
    #[must_use]
    pub fn call(elapsed: Duration) -> Self {
        Self {
            calls: 1,
            microseconds: i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX),
            ..Self::default()
        }
    }

    /// These turns, and their tokens.
    #[must_use]
    pub const fn turns(counted: &CountedTurns) -> Self {
        Self {
            calls: 0,
            microseconds: 0,
            turns: counted.turns,
            prompt_tokens: counted.prompt_tokens,
            completion_tokens: counted.completion_tokens,
            cost: counted.cost,
        }
    }

    fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.microseconds = self.microseconds.saturating_add(other.microseconds);
        self.turns = self.turns.saturating_add(other.turns);
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self
            .completion_tokens
            .saturating_add(other.completion_tokens);
        self.cost += other.cost;
    }
}

impl UsageByCounter {
    /// Adds usage of this time to a key, with the outcome of its call or '' for turns. A key that cannot
    /// be stored counts as ''. Returns false if the usage was dropped because too many sums are waiting.
    #[must_use]
    pub fn count(
        &self,
        (org, at): (OrgId, DateTime<Utc>),
        (dimension, key): (UsageDimension, &str),
        outcome: &'static str,
        sums: &UsageSums,
    ) -> bool {
        let key = if key.contains('\0') { "" } else { key };
        let group = Group {
            day: day(at),
            dimension,
            outcome,
        };
        let mut waiting = self.waiting.lock();
        let Waiting { orgs, count } = &mut *waiting;
        let known = orgs.get_mut(&org);
        if let Some(sum) = known.and_then(|of_org| of_org.groups.get_mut(&group)?.get_mut(key)) {
            sum.add(sums);
            return true;
        }
        if !orgs.contains_key(&org) && *count >= MAX_WAITING {
            return false;
        }
        let of_org = orgs.entry(org).or_default();
        let is_full = of_org.count >= MAX_ORG_SUMS || *count >= MAX_SUMS;
        let key = if is_full { "" } else { key };
        if let Some(sum) = of_org
            .groups
            .get_mut(&group)
            .and_then(|keys| keys.get_mut(key))
        {
            sum.add(sums);
            return true;
        }
        if *count >= MAX_WAITING {
            return false;
        }
        let keys = of_org.groups.entry(group).or_default();
        keys.insert(key.into(), sums.clone());
        of_org.count += 1;
        *count += 1;
        true
    }

    /// Writes periodically, as [`UsageCounter::run`](super::UsageCounter::run) does.
    pub async fn run(&self, in_flight: impl Fn() -> bool, store: Store, shutdown: Shutdown) {
        counter::write_periodically(|| self.take(), in_flight, store, shutdown).await;
    }

    /// Removes a batch of sums.
    fn take(&self) -> Vec<CountedBy> {
        let mut waiting = self.waiting.lock();
        let mut batch = Vec::new();
        while batch.len() < MAX_BATCH {
            let Some((&org, of_org)) = waiting.orgs.iter_mut().next() else {
                break;
            };
            let Some((&group, keys)) = of_org.groups.iter_mut().next() else {
                waiting.orgs.remove(&org);
                continue;
            };
            let left = MAX_BATCH - batch.len();
            let taken: Vec<Box<str>> = keys.keys().take(left).cloned().collect();
            for key in taken {
                if let Some(sums) = keys.remove(&key) {
                    of_org.count -= 1;
                    batch.push(CountedBy {
                        org,
                        group,
                        key,
                        sums,
                    });
                }
            }
            if keys.is_empty() {
                of_org.groups.remove(&group);
            }
        }
        waiting.count -= batch.len().min(waiting.count);
        batch
    }
}

impl Writable for CountedBy {
    async fn write(
        store: &Store,
        counter: Uuid,
        batch: i64,
        sums: &[Self],
    ) -> Result<(), StoreError> {
        store.add_usage_by(counter, batch, sums).await
    }
}

/// Sums as the columns of a statement.
#[derive(Default)]
struct Columns {
    orgs: Vec<Uuid>,
    days: Vec<DateTime<Utc>>,
    dimensions: Vec<String>,
    keys: Vec<String>,
    outcomes: Vec<String>,
    calls: Vec<i64>,
    milliseconds: Vec<i64>,
    turns: Vec<i64>,
    prompt_tokens: Vec<i64>,
    completion_tokens: Vec<i64>,
    costs: Vec<f64>,
}

impl Columns {
    fn new(counted: &[CountedBy]) -> Self {
        let mut columns = Self::default();
        for CountedBy {
            org,
            group,
            key,
            sums,
        } in counted
        {
            columns.orgs.push(org.uuid());
            columns.days.push(group.day);
            columns.dimensions.push(group.dimension.as_str().to_owned());
            columns.keys.push(key.to_string());
            columns.outcomes.push(group.outcome.to_owned());
            columns.calls.push(sums.calls);
            columns.milliseconds.push(sums.microseconds / 1_000);
            columns.turns.push(sums.turns);
            columns.prompt_tokens.push(sums.prompt_tokens);
            columns.completion_tokens.push(sums.completion_tokens);
            columns.costs.push(sums.cost);
        }
        columns
    }
}

/// The beginning of the UTC day.
fn day(at: DateTime<Utc>) -> DateTime<Utc> {
    let seconds = at.timestamp();
    DateTime::from_timestamp(seconds - seconds.rem_euclid(86_400), 0).unwrap_or(at)
}

impl Store {
    /// Adds sums, like [`Store::add_usage`]. New keys beyond [`MAX_KEYS`] of their organisation, day and
    /// dimension are added to the key ''; of those of one batch, the ones with the most usage are kept.
    async fn add_usage_by(
        &self,
        counter: Uuid,
        batch: i64,
        sums: &[CountedBy],
    ) -> Result<(), StoreError> {
        let columns = Columns::new(sums);
        // All writers lock the rows in the same order.
        let query = sqlx::query!(
            "WITH new AS (
                 INSERT INTO usage_batches AS known (counter, batch) VALUES ($1, $2)
                 ON CONFLICT (counter) DO UPDATE SET batch = EXCLUDED.batch, written_at = now()
                 WHERE known.batch < EXCLUDED.batch
                 RETURNING counter),
             counted AS (
                 SELECT told.* FROM new, UNNEST($3::uuid[], $4::timestamptz[], $5::text[], $6::text[], $7::text[], $8::bigint[],
                                                $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::float8[])
                     AS told (org_id, day, dimension, key, outcome, calls, milliseconds, turns, prompt_tokens,
                              completion_tokens, cost)
                 JOIN orgs ON orgs.id = told.org_id),
             fresh AS (
                 SELECT org_id, day, dimension, key,
                        row_number() OVER (PARTITION BY org_id, day, dimension ORDER BY sum(calls) + sum(turns) DESC, key) AS place
                 FROM counted
                 WHERE key <> '' AND NOT EXISTS (
                     SELECT FROM usage_by known
                     WHERE (known.org_id, known.dimension, known.day) = (counted.org_id, counted.dimension, counted.day)
                           AND known.key = counted.key COLLATE \"C\")
                 GROUP BY org_id, day, dimension, key),
             places AS (
                 SELECT org_id, day, dimension,
                        (SELECT count(DISTINCT known.key) FROM usage_by known
                         WHERE (known.org_id, known.dimension, known.day) = (one.org_id, one.dimension, one.day)) AS taken
                 FROM (SELECT DISTINCT org_id, day, dimension FROM fresh) one)
             INSERT INTO usage_by AS used (org_id, day, dimension, key, outcome, calls, milliseconds, turns, prompt_tokens,
                                           completion_tokens, cost)
             SELECT counted.org_id, counted.day, counted.dimension,
                    CASE WHEN fresh.place + places.taken > $14 THEN '' ELSE counted.key END AS placed, counted.outcome,
                    sum(counted.calls), sum(counted.milliseconds), sum(counted.turns), sum(counted.prompt_tokens),
                    sum(counted.completion_tokens), sum(counted.cost)
             FROM counted LEFT JOIN fresh USING (org_id, day, dimension, key) LEFT JOIN places USING (org_id, day, dimension)
             GROUP BY counted.org_id, counted.dimension, counted.day, placed, counted.outcome
             ORDER BY counted.org_id, counted.dimension, counted.day, placed, counted.outcome
             ON CONFLICT (org_id, dimension, day, key, outcome)
             DO UPDATE SET calls = used.calls + EXCLUDED.calls, milliseconds = used.milliseconds + EXCLUDED.milliseconds,
                           turns = used.turns + EXCLUDED.turns, prompt_tokens = used.prompt_tokens + EXCLUDED.prompt_tokens,
                           completion_tokens = used.completion_tokens + EXCLUDED.completion_tokens,
                           cost = used.cost + EXCLUDED.cost",
            counter,
            batch,
            &columns.orgs,
            &columns.days,
            &columns.dimensions,
            &columns.keys,
            &columns.outcomes,
            &columns.calls,
            &columns.milliseconds,
            &columns.turns,
            &columns.prompt_tokens,
            &columns.completion_tokens,
            &columns.costs,
            MAX_KEYS
        );
        with_timeout(async { query.execute(&mut *self.system_conn().await?).await })
            .await
            .map(drop)
    }

    /// An organisation's usage by one dimension, of the UTC days that begin from `from` until before
    /// `to`: of the `limit` keys with the most calls (NPCs: turns), most first, and of all others
    /// together at the end; each by outcome.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn usage_by(
        &self,
        org: OrgId,
        dimension: UsageDimension,
        (from, to): (DateTime<Utc>, DateTime<Utc>),
        limit: u16,
    ) -> Result<Vec<UsageBy>, StoreError> {
        let query = sqlx::query_as!(
            UsageBy,
            r#"WITH sums AS (
                   SELECT key, outcome, sum(calls)::bigint AS calls, sum(milliseconds)::bigint AS milliseconds,
                          sum(turns)::bigint AS turns, sum(prompt_tokens)::bigint AS prompt_tokens,
                          sum(completion_tokens)::bigint AS completion_tokens, sum(cost) AS cost
                   FROM usage_by WHERE org_id = $1 AND dimension = $2 AND day >= $3 AND day < $4
                   GROUP BY key, outcome),
               best AS (
                   SELECT key, row_number() OVER (
                              ORDER BY sum(CASE WHEN $2 = 'npc' THEN turns ELSE calls END) DESC, key) AS place
                   FROM sums WHERE key <> '' GROUP BY key ORDER BY place LIMIT $5)
               SELECT best.key AS "key?", sums.outcome AS "outcome!", sum(calls)::bigint AS "calls!",
                      sum(milliseconds)::bigint AS "milliseconds!", sum(turns)::bigint AS "turns!",
                      sum(prompt_tokens)::bigint AS "prompt_tokens!", sum(completion_tokens)::bigint AS "completion_tokens!",
                      sum(cost) AS "cost!"
               FROM sums LEFT JOIN best USING (key)
               GROUP BY best.place, best.key, sums.outcome ORDER BY best.place NULLS LAST, sums.outcome"#,
            org.uuid(),
            dimension.as_str(),
            from,
            to,
            i64::from(limit)
        );
        with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: UsageSums = UsageSums {
        calls: 1,
        microseconds: 2_000,
        turns: 0,
        prompt_tokens: 0,
        completion_tokens: 0,
        cost: 0.0,
    };

    fn org(number: u128) -> OrgId {
        OrgId::from_uuid(Uuid::from_u128(number))
    }

    fn count(counter: &UsageByCounter, number: u128, key: &str) -> bool {
        let device = (UsageDimension::Device, key);
        counter.count((org(number), Utc::now()), device, "succeeded", &CALL)
    }

    fn take_all(counter: &UsageByCounter) -> Vec<CountedBy> {
        let mut all = Vec::new();
        loop {
            let batch = counter.take();
            assert!(batch.len() <= MAX_BATCH);
            if batch.is_empty() {
                assert_eq!(counter.waiting.lock().count, 0);
                return all;
            }
            all.extend(batch);
        }
    }

    #[test]
    fn usage_of_an_org_is_bounded_and_nothing_of_it_is_lost() {
        let counter = UsageByCounter::default();
        for number in 0..MAX_ORG_SUMS + 10 {
            assert!(count(&counter, 1, &format!("toy-{number}")));
        }
        assert!(count(&counter, 1, "toy-0"));
        assert!(count(&counter, 1, "no\0text"));
        assert!(count(&counter, 2, "toy-0"));
        let sums = take_all(&counter);
        let of = |number: u128, key: &str| -> i64 {
            let sums = sums.iter();
            let of_key = sums.filter(|one| one.org == org(number) && &*one.key == key);
            of_key.map(|one| one.sums.calls).sum()
        };
        assert_eq!((of(1, "toy-0"), of(1, ""), of(2, "toy-0")), (2, 11, 1));
        assert_eq!(sums.len(), MAX_ORG_SUMS + 2);
    }

    #[test]
    fn sums_of_all_orgs_are_bounded() {
        let counter = UsageByCounter::default();
        let orgs = u128::try_from(MAX_SUMS / MAX_ORG_SUMS).unwrap();
        for number in 0..orgs {
            for key in 0..MAX_ORG_SUMS {
                assert!(count(&counter, number, &key.to_string()));
            }
        }
        assert!(count(&counter, orgs, "toy-1"));
        let sums = take_all(&counter);
        assert_eq!(sums.len(), MAX_SUMS + 1);
        let last = sums.iter().find(|one| one.org == org(orgs)).unwrap();
        assert_eq!((&*last.key, last.sums.microseconds), ("", 2_000));
    }
}
