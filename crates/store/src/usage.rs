//! Usage of organisations: calls and turns summed up by hour, and current counts of resources.
//! Invariant: a batch is counted once.

mod by;
pub(crate) mod counter;
pub(crate) mod quotas;
mod turns;

use std::time::Duration;

use chrono::{DateTime, Utc};
use switchboard_protocol::id::OrgId;
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::{interval, with_timeout},
};
pub use by::{UsageBy, UsageByCounter, UsageDimension, UsageSums};
pub use counter::UsageCounter;
use counter::{Summable, Writable};
pub use turns::{CountedTurns, TurnUsage};

/// Calls of one organisation that ended in one hour with one outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedCalls {
    /// The organisation.
    pub org: OrgId,
    /// The beginning of the hour.
    pub hour: DateTime<Utc>,
    /// The outcome.
    pub outcome: &'static str,
    /// The number of calls.
    pub calls: i64,
    /// The sum of their durations.
    pub microseconds: i64,
}

impl CountedCalls {
    /// One call that ended at this time.
    #[must_use]
    pub fn new(org: OrgId, at: DateTime<Utc>, outcome: &'static str, elapsed: Duration) -> Self {
        Self {
            org,
            hour: hour(at),
            outcome,
            calls: 1,
            microseconds: i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX),
        }
    }
}

impl Summable for CountedCalls {
    type Key = (OrgId, DateTime<Utc>, &'static str);

    fn key(&self) -> Self::Key {
        (self.org, self.hour, self.outcome)
    }

    fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.microseconds = self.microseconds.saturating_add(other.microseconds);
    }
}

impl Writable for CountedCalls {
    async fn write(
        store: &Store,
        counter: Uuid,
        batch: i64,
        sums: &[Self],
    ) -> Result<(), StoreError> {
        store.add_usage(counter, batch, sums).await
    }
}

/// The beginning of the hour.
pub(crate) fn hour(at: DateTime<Utc>) -> DateTime<Utc> {
    let seconds = at.timestamp();
    DateTime::from_timestamp(seconds - seconds.rem_euclid(3_600), 0).unwrap_or(at)
}

/// Calls with one outcome within a period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallUsage {
    /// The beginning of the period.
    pub start: DateTime<Utc>,
    /// The outcome.
    pub outcome: String,
    /// The number of calls.
    pub calls: i64,
    /// The sum of their durations.
    pub milliseconds: i64,
}

/// The current number of an organisation's resources, without public ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceCounts {
    /// All known devices.
    pub devices: i64,
    /// Devices seen since the given time.
    pub devices_seen: i64,
    /// Devices that registered services.
    pub registrations: i64,
    /// Templates.
    pub templates: i64,
    /// NPCs.
    pub npcs: i64,
    /// Memories, including expired ones that are not purged yet.
    pub memories: i64,
    /// Pictures.
    pub pictures: i64,
    /// The size of the pictures, identical ones counted once.
    pub picture_bytes: i64,
    /// Skills books in any state.
    pub skills_books: i64,
    /// The size of their parts.
    pub skills_book_bytes: i64,
    /// Voices in any state.
    pub voices: i64,
    /// The size of their samples.
    pub voice_bytes: i64,
}

impl Store {
    /// Adds calls to the sums. `counter` identifies the process, and `batch` increases with each of
    /// its batches: a repeated batch is ignored. Calls of deleted organisations are skipped.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails; the batch may have been written, and can be repeated.
    pub async fn add_usage(
        &self,
        counter: Uuid,
        batch: i64,
        calls: &[CountedCalls],
    ) -> Result<(), StoreError> {
        let orgs: Vec<_> = calls.iter().map(|one| one.org.uuid()).collect();
        let hours: Vec<_> = calls.iter().map(|one| one.hour).collect();
        let outcomes: Vec<_> = calls.iter().map(|one| one.outcome.to_owned()).collect();
        let counts: Vec<_> = calls.iter().map(|one| one.calls).collect();
        let milliseconds: Vec<_> = calls.iter().map(|one| one.microseconds / 1_000).collect();
        // All writers lock the rows in the same order.
        let query = sqlx::query!(
            "WITH new AS (
                 INSERT INTO usage_batches AS known (counter, batch) VALUES ($1, $2)
                 ON CONFLICT (counter) DO UPDATE SET batch = EXCLUDED.batch, written_at = now()
                 WHERE known.batch < EXCLUDED.batch
                 RETURNING counter)
             INSERT INTO usage_calls AS used (org_id, hour, outcome, calls, milliseconds)
             SELECT counted.org_id, counted.hour, counted.outcome, counted.calls, counted.milliseconds
             FROM new, UNNEST($3::uuid[], $4::timestamptz[], $5::text[], $6::bigint[], $7::bigint[])
                      AS counted (org_id, hour, outcome, calls, milliseconds)
             JOIN orgs ON orgs.id = counted.org_id
             ORDER BY counted.org_id, counted.hour, counted.outcome
             ON CONFLICT (org_id, hour, outcome)
             DO UPDATE SET calls = used.calls + EXCLUDED.calls, milliseconds = used.milliseconds + EXCLUDED.milliseconds",
            counter,
            batch,
            &orgs,
            &hours,
            &outcomes,
            &counts,
            &milliseconds
        );
        with_timeout(async { query.execute(&mut *self.system_conn().await?).await })
            .await
            .map(drop)
    }

    /// An organisation's calls from `from` until before `to`, by hour or by UTC day, and by
    /// outcome; in chronological order. Hours that begin within the period count completely.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn usage(
        &self,
        org: OrgId,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
        by_days: bool,
    ) -> Result<Vec<CallUsage>, StoreError> {
        let query = sqlx::query_as!(
            CallUsage,
            r#"SELECT date_trunc(CASE WHEN $4 THEN 'day' ELSE 'hour' END, hour, 'UTC') AS "start!", outcome,
                      sum(calls)::bigint AS "calls!", sum(milliseconds)::bigint AS "milliseconds!"
               FROM usage_calls WHERE org_id = $1 AND hour >= $2 AND hour < $3
               GROUP BY 1, 2 ORDER BY 1, 2"#,
            org.uuid(),
            from,
            to,
            by_days
        );
        with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await }).await
    }

    /// The current number of an organisation's resources.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn resource_counts(
        &self,
        org: OrgId,
        seen_since: DateTime<Utc>,
    ) -> Result<ResourceCounts, StoreError> {
        let query = sqlx::query_as!(
            ResourceCounts,
            r#"SELECT
                 (SELECT count(*) FROM devices WHERE org_id = $1) AS "devices!",
                 (SELECT count(*) FROM devices WHERE org_id = $1 AND (last_seen >= $2 OR left_reason IS NULL)) AS "devices_seen!",
                 (SELECT count(*) FROM service_registrations WHERE org_id = $1) AS "registrations!",
                 (SELECT count(*) FROM templates WHERE org_id = $1) AS "templates!",
                 (SELECT count(*) FROM npcs WHERE org_id = $1) AS "npcs!",
                 (SELECT count(*) FROM memories WHERE org_id = $1) AS "memories!",
                 (SELECT count(*) FROM pictures WHERE org_id = $1) AS "pictures!",
                 (SELECT coalesce(sum(size_bytes), 0)::bigint
                  FROM (SELECT DISTINCT sha256, size_bytes FROM pictures WHERE org_id = $1) p) AS "picture_bytes!",
                 (SELECT count(*) FROM skills_books WHERE org_id = $1) AS "skills_books!",
                 (SELECT coalesce(sum(p.size_bytes), 0)::bigint
                  FROM skills_book_parts p JOIN skills_books b ON b.id = p.book_id WHERE b.org_id = $1) AS "skills_book_bytes!",
                 (SELECT count(*) FROM voices WHERE org_id = $1) AS "voices!",
                 (SELECT coalesce(sum(size_bytes), 0)::bigint FROM voices WHERE org_id = $1) AS "voice_bytes!""#,
            org.uuid(),
            seen_since
        );
        with_timeout(async { query.fetch_one(&mut *self.tenant_conn(org).await?).await }).await
    }

    /// Deletes usage older than `retention`, and counters that are idle for as long. Returns the
    /// number of deleted rows.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn purge_usage(&self, retention: Duration) -> Result<u64, StoreError> {
        let retention = interval(retention);
        let calls = sqlx::query!(
            "DELETE FROM usage_calls WHERE hour < now() - $1::interval",
            &retention
        );
        let calls =
            with_timeout(async { calls.execute(&mut *self.system_conn().await?).await }).await?;
        let turns = sqlx::query!(
            "DELETE FROM usage_turns WHERE hour < now() - $1::interval",
            &retention
        );
        let turns =
            with_timeout(async { turns.execute(&mut *self.system_conn().await?).await }).await?;
        let by = sqlx::query!(
            "DELETE FROM usage_by WHERE day < now() - $1::interval",
            &retention
        );
        let by = with_timeout(async { by.execute(&mut *self.system_conn().await?).await }).await?;
        let batches = sqlx::query!(
            "DELETE FROM usage_batches WHERE written_at < now() - $1::interval",
            &retention
        );
        with_timeout(async { batches.execute(&mut *self.system_conn().await?).await }).await?;
        Ok(calls.rows_affected() + turns.rows_affected() + by.rows_affected())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hour_truncates_to_its_beginning() {
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
