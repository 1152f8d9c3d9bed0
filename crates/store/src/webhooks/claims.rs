//! Claims of deliveries by workers.
//! Invariant: each claim takes at most one delivery per webhook and no more than the share of an
//! organisation, so that neither a webhook nor an organisation blocks the others.

use std::time::Duration;

use switchboard_protocol::id::{DeliveryId, OrgId, WebhookId};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::{interval, with_timeout},
};

/// A delivery to attempt.
#[derive(Debug, Clone)]
pub struct ClaimedDelivery {
    /// Its id, the same in each attempt.
    pub id: DeliveryId,
    /// The organisation that it belongs to.
    pub org: OrgId,
    /// The webhook that receives it.
    pub webhook: WebhookId,
    /// The number of this attempt, from 1.
    pub attempt: i32,
    /// The body.
    pub payload: String,
    /// The URL of the webhook.
    pub url: String,
    /// The sealed secrets to sign with; the newest first.
    pub secrets: Vec<Vec<u8>>,
    /// Whether the webhook is failing.
    pub is_failing: bool,
}

/// The attempts of a worker that are in flight.
#[derive(Debug, Clone, Default)]
pub struct AttemptsInFlight {
    /// The webhooks that get no further one.
    pub busy: Vec<WebhookId>,
    /// The number of each organisation that has any.
    pub by_org: Vec<(OrgId, usize)>,
    /// The most that one organisation gets.
    pub share: usize,
}

impl Store {
    /// Claims due deliveries, at most one per webhook and none of suspended organisations, in turns
    /// of the organisations: that with the fewest attempts in flight first, and of one organisation
    /// those that are due longest. A delivery that is not completed within `lease` is due again.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails; deliveries may have been claimed.
    pub async fn claim_deliveries(
        &self,
        in_flight: &AttemptsInFlight,
        lease: Duration,
        limit: u32,
    ) -> Result<Vec<ClaimedDelivery>, StoreError> {
        let busy: Vec<Uuid> = in_flight.busy.iter().map(|hook| hook.uuid()).collect();
        let by_org = in_flight.by_org.iter();
        let (orgs, attempts): (Vec<Uuid>, Vec<i64>) = by_org
            .map(|(org, attempts)| (org.uuid(), bigint(*attempts)))
            .unzip();
        // Walks the index from webhook to webhook, so that the cost does not depend on the length
        // of a queue.
        let query = sqlx::query!(
            r#"WITH RECURSIVE waiting AS (
                 (SELECT webhook_id FROM webhook_deliveries WHERE state = 'pending' ORDER BY webhook_id LIMIT 1)
                 UNION ALL
                 SELECT (SELECT next.webhook_id FROM webhook_deliveries next
                         WHERE next.state = 'pending' AND next.webhook_id > waiting.webhook_id
                         ORDER BY next.webhook_id LIMIT 1)
                 FROM waiting WHERE waiting.webhook_id IS NOT NULL),
               candidates AS (
                 SELECT first.id, first.next_attempt_at,
                        coalesce(active.attempts, 0)
                        + row_number() OVER (PARTITION BY hook.org_id ORDER BY first.next_attempt_at) AS place
                 FROM waiting
                 JOIN webhooks hook ON hook.id = waiting.webhook_id AND hook.enabled AND hook.id <> ALL ($1)
                 JOIN orgs ON orgs.id = hook.org_id AND orgs.suspended_at IS NULL
                 LEFT JOIN UNNEST($4::uuid[], $5::bigint[]) AS active (org_id, attempts) ON active.org_id = hook.org_id
                 CROSS JOIN LATERAL (
                   SELECT one.id, one.next_attempt_at FROM webhook_deliveries one
                   WHERE one.webhook_id = hook.id AND one.state = 'pending' AND one.next_attempt_at <= now()
                   ORDER BY one.next_attempt_at LIMIT 1 FOR UPDATE SKIP LOCKED) first
                 WHERE coalesce(active.attempts, 0) < $6),
               due AS (
                 SELECT id FROM candidates WHERE place <= $6 ORDER BY place, next_attempt_at LIMIT $3)
               UPDATE webhook_deliveries delivery
               SET attempts = attempts + 1, last_attempt_at = now(), next_attempt_at = now() + $2::interval
               FROM due, webhooks hook
               WHERE delivery.id = due.id AND hook.id = delivery.webhook_id
               RETURNING delivery.id, delivery.org_id, delivery.webhook_id, delivery.attempts,
                         delivery.payload AS "payload!", hook.url, hook.secret,
                         CASE WHEN hook.former_secret_until > now() THEN hook.former_secret END AS former_secret,
                         hook.failing_since IS NOT NULL AS "is_failing!""#,
            &busy,
            interval(lease),
            i64::from(limit),
            &orgs,
            &attempts,
            bigint(in_flight.share)
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await }).await?;
        let claimed = rows.into_iter().map(|row| ClaimedDelivery {
            id: DeliveryId::from_uuid(row.id),
            org: OrgId::from_uuid(row.org_id),
            webhook: WebhookId::from_uuid(row.webhook_id),
            attempt: row.attempts,
            payload: row.payload,
            url: row.url,
            secrets: std::iter::once(row.secret)
                .chain(row.former_secret)
                .collect(),
            is_failing: row.is_failing,
        });
        Ok(claimed.collect())
    }
}

fn bigint(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
