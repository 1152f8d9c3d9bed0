//! Claims of deliveries by workers.
//! Invariant: each claim takes at most one delivery per webhook, so that no webhook blocks the
//! others.

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

impl Store {
    /// Claims due deliveries, at most one per webhook and none for the `busy` ones; those that are
    /// due longest first. A delivery that is not completed within `lease` is due again.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails; deliveries may have been claimed.
    pub async fn claim_deliveries(
        &self,
        busy: &[WebhookId],
        lease: Duration,
        limit: u32,
    ) -> Result<Vec<ClaimedDelivery>, StoreError> {
        let busy: Vec<Uuid> = busy.iter().map(|webhook| webhook.uuid()).collect();
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
               due AS (
                 SELECT first.id FROM waiting
                 JOIN webhooks hook ON hook.id = waiting.webhook_id AND hook.enabled AND hook.id <> ALL ($1)
                 CROSS JOIN LATERAL (
                   SELECT one.id, one.next_attempt_at FROM webhook_deliveries one
                   WHERE one.webhook_id = hook.id AND one.state = 'pending' AND one.next_attempt_at <= now()
                   ORDER BY one.next_attempt_at LIMIT 1 FOR UPDATE SKIP LOCKED) first
                 ORDER BY first.next_attempt_at LIMIT $3)
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
            i64::from(limit)
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
