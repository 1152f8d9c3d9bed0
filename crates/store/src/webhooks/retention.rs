//! Statistics of the webhook queues, and the purge of old deliveries.
//! Invariant: a pending delivery is purged only by age.

use std::time::Duration;

use crate::{
    Store, StoreError,
    database::{interval, purge::PURGE_BATCH_SIZE, with_timeout},
};

/// Statistics of all webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebhookStats {
    /// Pending deliveries.
    pub pending: i64,
    /// Events dropped because of a full queue, over all existing webhooks.
    pub dropped: i64,
}

impl Store {
    /// The number of pending deliveries and of dropped events.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn webhook_stats(&self) -> Result<WebhookStats, StoreError> {
        let query = sqlx::query_as!(
            WebhookStats,
            r#"SELECT (SELECT count(*) FROM webhook_deliveries WHERE state = 'pending') AS "pending!",
                      (SELECT COALESCE(sum(dropped), 0)::bigint FROM webhooks) AS "dropped!""#
        );
        with_timeout(async { query.fetch_one(&mut *self.system_conn().await?).await }).await
    }

    /// Deletes deliveries older than `retention`, and the oldest completed ones of each webhook
    /// beyond `max_per_webhook`. Returns how many.
    ///
    /// # Errors
    /// [`StoreError`] if a query fails; earlier batches stay deleted.
    pub async fn purge_deliveries(
        &self,
        retention: Duration,
        max_per_webhook: i64,
    ) -> Result<u64, StoreError> {
        self.purge(|| {
            sqlx::query!(
                "WITH beyond AS (
                   SELECT hook.id AS webhook_id, edge.id FROM webhooks hook CROSS JOIN LATERAL (
                     SELECT one.id FROM webhook_deliveries one WHERE one.webhook_id = hook.id
                     ORDER BY one.id DESC OFFSET $2 LIMIT 1) edge)
                 DELETE FROM webhook_deliveries WHERE id IN (
                   (SELECT id FROM webhook_deliveries WHERE created_at <= now() - $1::interval ORDER BY created_at LIMIT $3)
                   UNION ALL
                   (SELECT old.id FROM beyond JOIN webhook_deliveries old
                      ON old.webhook_id = beyond.webhook_id AND old.id <= beyond.id AND old.state <> 'pending'
                    LIMIT $3))",
                interval(retention),
                max_per_webhook,
                PURGE_BATCH_SIZE
            )
        })
        .await
    }
}
