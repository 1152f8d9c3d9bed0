//! Which deliveries are attempted when. Whoever takes one has it until its time is up.
//! Never: one webhook's deliveries only, while others wait.

use std::time::Duration;

use switchboard_protocol::id::{DeliveryId, OrgId, WebhookId};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::{bounded, interval},
};

/// A delivery about to be attempted.
#[derive(Debug, Clone)]
pub struct ClaimedDelivery {
    /// Its id, the same in each attempt.
    pub id: DeliveryId,
    /// Whose it is.
    pub org: OrgId,
    /// To which webhook.
    pub webhook: WebhookId,
    /// Which attempt this is, from 1.
    pub attempt: i32,
    /// What is sent.
    pub payload: String,
    /// Where to.
    pub url: String,
    /// What it is signed with, sealed; the newest first.
    pub secrets: Vec<Vec<u8>>,
    /// Whether nothing has arrived there lately.
    pub is_failing: bool,
}

impl Store {
    /// Takes deliveries that are due, at most one for each webhook and none for those that are `busy`, those that have
    /// been due longest first. Each belongs to the caller for `lease`; then anybody takes it again.
    ///
    /// # Errors
    /// As every query; they may be taken all the same.
    pub async fn claim_deliveries(
        &self,
        busy: &[WebhookId],
        lease: Duration,
        limit: u32,
    ) -> Result<Vec<ClaimedDelivery>, StoreError> {
        let busy: Vec<Uuid> = busy.iter().map(|webhook| webhook.uuid()).collect();
        // From webhook to webhook along the index: one that many deliveries wait for costs no more than another.
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
        let rows = bounded(async { query.fetch_all(&mut *self.throughout().await?).await }).await?;
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
