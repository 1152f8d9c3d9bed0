//! What organisations use: calls and turns by hour, added up; and what they have at the moment, counted.
//! Never: a batch counted twice, or one organisation's figures in another's.

mod counter;
mod turns;

use std::time::Duration;

use chrono::{DateTime, Utc};
use switchboard_protocol::id::OrgId;
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::{bounded, interval},
};
use counter::Countable;
pub use counter::UsageCounter;
pub use turns::{CountedTurns, UsedTurns};

/// Calls of one organisation that ended in one hour in one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedCalls {
    /// Whose.
    pub org: OrgId,
    /// When the hour began.
    pub hour: DateTime<Utc>,
    /// How they ended.
    pub outcome: &'static str,
    /// How many.
    pub calls: i64,
    /// How long they took together.
    pub microseconds: i64,
}

impl CountedCalls {
    /// A call that ended at this moment.
    #[must_use]
    pub fn one(org: OrgId, at: DateTime<Utc>, outcome: &'static str, took: Duration) -> Self {
        Self {
            org,
            hour: hour(at),
            outcome,
            calls: 1,
            microseconds: i64::try_from(took.as_micros()).unwrap_or(i64::MAX),
        }
    }
}

impl Countable for CountedCalls {
    type Place = (OrgId, DateTime<Utc>, &'static str);

    fn place(&self) -> Self::Place {
        (self.org, self.hour, self.outcome)
    }

    fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.microseconds = self.microseconds.saturating_add(other.microseconds);
    }

    async fn write(
        store: &Store,
        counter: Uuid,
        batch: i64,
        sums: &[Self],
    ) -> Result<(), StoreError> {
        store.add_usage(counter, batch, sums).await
    }
}

/// The hour that a moment is in.
fn hour(at: DateTime<Utc>) -> DateTime<Utc> {
    let seconds = at.timestamp();
    DateTime::from_timestamp(seconds - seconds.rem_euclid(3_600), 0).unwrap_or(at)
}

/// Calls that ended in one way, within some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedCalls {
    /// When that time began.
    pub start: DateTime<Utc>,
    /// How they ended.
    pub outcome: String,
    /// How many.
    pub calls: i64,
    /// How long they took together.
    pub milliseconds: i64,
}

/// What an organisation has at the moment; what is public is not among it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holdings {
    /// Devices that were ever there.
    pub devices: i64,
    /// Those of them that have been there since a moment.
    pub devices_seen: i64,
    /// Devices that have said what they can do.
    pub registrations: i64,
    /// Templates.
    pub templates: i64,
    /// NPCs.
    pub npcs: i64,
    /// Memories, also those that have ended and are not removed yet.
    pub memories: i64,
    /// Pictures.
    pub pictures: i64,
    /// Bytes of pictures, the same ones counted once.
    pub picture_bytes: i64,
    /// Skills books in whatever state.
    pub skills_books: i64,
    /// Bytes of their parts.
    pub skills_book_bytes: i64,
    /// Voices in whatever state.
    pub voices: i64,
    /// Bytes of their samples.
    pub voice_bytes: i64,
}

impl Store {
    /// Adds calls up. `counter` is the process that counted them, and `batch` is larger with each batch of its: one that
    /// comes again is not added. Organisations that are gone are passed over.
    ///
    /// # Errors
    /// As every query; the batch may have been written nevertheless, and can be sent again.
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
        // All writers lock rows in one order.
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
        bounded(async { query.execute(&mut *self.throughout().await?).await })
            .await
            .map(drop)
    }

    /// An organisation's calls from `from` on and before `to`, by hours or by days of UTC, and by outcome; in the order of
    /// time. Hours that begin within that time count whole.
    ///
    /// # Errors
    /// As every query.
    pub async fn usage(
        &self,
        org: OrgId,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
        by_days: bool,
    ) -> Result<Vec<UsedCalls>, StoreError> {
        let query = sqlx::query_as!(
            UsedCalls,
            r#"SELECT date_trunc(CASE WHEN $4 THEN 'day' ELSE 'hour' END, hour, 'UTC') AS "start!", outcome,
                      sum(calls)::bigint AS "calls!", sum(milliseconds)::bigint AS "milliseconds!"
               FROM usage_calls WHERE org_id = $1 AND hour >= $2 AND hour < $3
               GROUP BY 1, 2 ORDER BY 1, 2"#,
            org.uuid(),
            from,
            to,
            by_days
        );
        bounded(async { query.fetch_all(&mut *self.within(org).await?).await }).await
    }

    /// What an organisation has at the moment.
    ///
    /// # Errors
    /// As every query.
    pub async fn holdings(
        &self,
        org: OrgId,
        seen_since: DateTime<Utc>,
    ) -> Result<Holdings, StoreError> {
        let query = sqlx::query_as!(
            Holdings,
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
        bounded(async { query.fetch_one(&mut *self.within(org).await?).await }).await
    }

    /// Forgets what was used longer ago, and processes that have not counted for as long. Says how many rows that were.
    ///
    /// # Errors
    /// As every query.
    pub async fn purge_usage(&self, kept: Duration) -> Result<u64, StoreError> {
        let kept = interval(kept);
        let calls = sqlx::query!(
            "DELETE FROM usage_calls WHERE hour < now() - $1::interval",
            &kept
        );
        let calls = bounded(async { calls.execute(&mut *self.throughout().await?).await }).await?;
        let turns = sqlx::query!(
            "DELETE FROM usage_turns WHERE hour < now() - $1::interval",
            &kept
        );
        let turns = bounded(async { turns.execute(&mut *self.throughout().await?).await }).await?;
        let batches = sqlx::query!(
            "DELETE FROM usage_batches WHERE written_at < now() - $1::interval",
            &kept
        );
        bounded(async { batches.execute(&mut *self.throughout().await?).await }).await?;
        Ok(calls.rows_affected() + turns.rows_affected())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
