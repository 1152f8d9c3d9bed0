//! Usage by turns of conversations, by hour.

use chrono::{DateTime, Utc};
use switchboard_protocol::id::OrgId;
use uuid::Uuid;

use super::{
    counter::{Summable, Writable},
    hour,
};
use crate::{Store, StoreError, database::with_timeout};

/// The maximum cost of one turn; a sum of such costs can always be stored.
const MAX_COST: f64 = 1_000_000_000.0;

/// Turns of one organisation that were answered in one hour.
#[derive(Debug, Clone, PartialEq)]
pub struct CountedTurns {
    /// The organisation.
    pub org: OrgId,
    /// The beginning of the hour.
    pub hour: DateTime<Utc>,
    /// The number of turns.
    pub turns: i64,
    /// Prompt tokens.
    pub prompt_tokens: i64,
    /// Completion tokens.
    pub completion_tokens: i64,
    /// The cost of the tokens, at the prices that the operator set for each model.
    pub cost: f64,
    /// Milliseconds of utterances that were recognised, and of answers that were spoken.
    pub speech_ms: i64,
}

impl CountedTurns {
    /// One turn that was answered at this time. A cost that is not a number counts as 0.
    #[must_use]
    pub fn new(
        org: OrgId,
        at: DateTime<Utc>,
        prompt_tokens: u32,
        completion_tokens: u32,
        cost: f64,
    ) -> Self {
        Self {
            org,
            hour: hour(at),
            turns: 1,
            prompt_tokens: prompt_tokens.into(),
            completion_tokens: completion_tokens.into(),
            cost: if cost.is_nan() {
                0.0
            } else {
                cost.clamp(0.0, MAX_COST)
            },
            speech_ms: 0,
        }
    }

    /// Speech that was reported at this time, besides its turn.
    #[must_use]
    pub fn speech(org: OrgId, at: DateTime<Utc>, milliseconds: u32) -> Self {
        Self {
            turns: 0,
            speech_ms: milliseconds.into(),
            ..Self::new(org, at, 0, 0, 0.0)
        }
    }
}

impl Summable for CountedTurns {
    type Key = (OrgId, DateTime<Utc>);

    fn key(&self) -> Self::Key {
        (self.org, self.hour)
    }

    fn add(&mut self, other: &Self) {
        self.turns = self.turns.saturating_add(other.turns);
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        let completion_tokens = self.completion_tokens;
        self.completion_tokens = completion_tokens.saturating_add(other.completion_tokens);
        self.cost += other.cost;
        self.speech_ms = self.speech_ms.saturating_add(other.speech_ms);
    }
}

impl Writable for CountedTurns {
    async fn write(
        store: &Store,
        counter: Uuid,
        batch: i64,
        sums: &[Self],
    ) -> Result<(), StoreError> {
        store.add_turn_usage(counter, batch, sums).await
    }
}

/// Turns within a period.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnUsage {
    /// The beginning of the period.
    pub start: DateTime<Utc>,
    /// The number of turns.
    pub turns: i64,
    /// Prompt tokens.
    pub prompt_tokens: i64,
    /// Completion tokens.
    pub completion_tokens: i64,
    /// The cost.
    pub cost: f64,
    /// Milliseconds of speech.
    pub speech_ms: i64,
}

impl Store {
    /// Adds turns to the sums, like [`Store::add_usage`].
    ///
    /// # Errors
    /// As that method.
    pub async fn add_turn_usage(
        &self,
        counter: Uuid,
        batch: i64,
        turns: &[CountedTurns],
    ) -> Result<(), StoreError> {
        let orgs: Vec<_> = turns.iter().map(|one| one.org.uuid()).collect();
        let hours: Vec<_> = turns.iter().map(|one| one.hour).collect();
        let counts: Vec<_> = turns.iter().map(|one| one.turns).collect();
        let prompts: Vec<_> = turns.iter().map(|one| one.prompt_tokens).collect();
        let completions: Vec<_> = turns.iter().map(|one| one.completion_tokens).collect();
        let costs: Vec<_> = turns.iter().map(|one| one.cost).collect();
        let speech: Vec<_> = turns.iter().map(|one| one.speech_ms).collect();
        // All writers lock the rows in the same order.
        let query = sqlx::query!(
            "WITH new AS (
                 INSERT INTO usage_batches AS known (counter, batch) VALUES ($1, $2)
                 ON CONFLICT (counter) DO UPDATE SET batch = EXCLUDED.batch, written_at = now()
                 WHERE known.batch < EXCLUDED.batch
                 RETURNING counter)
             INSERT INTO usage_turns AS used (org_id, hour, turns, prompt_tokens, completion_tokens, cost, speech_ms)
             SELECT counted.org_id, counted.hour, counted.turns, counted.prompt_tokens, counted.completion_tokens,
                    counted.cost, counted.speech_ms
             FROM new, UNNEST($3::uuid[], $4::timestamptz[], $5::bigint[], $6::bigint[], $7::bigint[], $8::float8[], $9::bigint[])
                      AS counted (org_id, hour, turns, prompt_tokens, completion_tokens, cost, speech_ms)
             JOIN orgs ON orgs.id = counted.org_id
             ORDER BY counted.org_id, counted.hour
             ON CONFLICT (org_id, hour)
             DO UPDATE SET turns = used.turns + EXCLUDED.turns, prompt_tokens = used.prompt_tokens + EXCLUDED.prompt_tokens,
                           completion_tokens = used.completion_tokens + EXCLUDED.completion_tokens,
                           cost = used.cost + EXCLUDED.cost, speech_ms = used.speech_ms + EXCLUDED.speech_ms",
            counter,
            batch,
            &orgs,
            &hours,
            &counts,
            &prompts,
            &completions,
            &costs,
            &speech
        );
        with_timeout(async { query.execute(&mut *self.system_conn().await?).await })
            .await
            .map(drop)
    }

    /// An organisation's turns, by the same periods as [`Store::usage`].
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn turn_usage(
        &self,
        org: OrgId,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
        by_days: bool,
    ) -> Result<Vec<TurnUsage>, StoreError> {
        let query = sqlx::query_as!(
            TurnUsage,
            r#"SELECT date_trunc(CASE WHEN $4 THEN 'day' ELSE 'hour' END, hour, 'UTC') AS "start!",
                      sum(turns)::bigint AS "turns!", sum(prompt_tokens)::bigint AS "prompt_tokens!",
                      sum(completion_tokens)::bigint AS "completion_tokens!", sum(cost) AS "cost!",
                      sum(speech_ms)::bigint AS "speech_ms!"
               FROM usage_turns WHERE org_id = $1 AND hour >= $2 AND hour < $3
               GROUP BY 1 ORDER BY 1"#,
            org.uuid(),
            from,
            to,
            by_days
        );
        with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_cost_counts_as_zero() {
        fn check(cost: f64, expected: f64) {
            let org = OrgId::from_uuid(Uuid::nil());
            let one = CountedTurns::new(org, DateTime::UNIX_EPOCH, 1, 2, cost);
            assert!(
                (one.cost - expected).abs() < f64::EPSILON,
                "{cost}: {one:?}"
            );
        }
        check(0.25, 0.25);
        check(-1.0, 0.0);
        check(f64::NAN, 0.0);
        check(f64::NEG_INFINITY, 0.0);
        check(f64::INFINITY, MAX_COST);
    }
}
