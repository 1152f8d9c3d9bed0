//! How much waits for webhooks, and the end of what is old.
//! Never: a delivery removed that waits, unless it is too old to be of use.

use std::time::Duration;

use crate::{
    Store, StoreError,
    database::{bounded, interval},
    purge::{PURGE_STEP, in_steps},
};

/// What waits and what was dropped, of all organisations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebhookFigures {
    /// Deliveries that wait.
    pub pending: i64,
    /// Events for which there was no room, of all webhooks that there are.
    pub dropped: i64,
}

impl Store {
    /// What waits and what was dropped.
    ///
    /// # Errors
    /// As every query.
    pub async fn webhook_figures(&self) -> Result<WebhookFigures, StoreError> {
        let query = sqlx::query_as!(
            WebhookFigures,
            r#"SELECT (SELECT count(*) FROM webhook_deliveries WHERE state = 'pending') AS "pending!",
                      (SELECT COALESCE(sum(dropped), 0)::bigint FROM webhooks) AS "dropped!""#
        );
        bounded(async { query.fetch_one(&mut *self.throughout().await?).await }).await
    }

    /// Forgets deliveries that are older than this, and of each webhook the oldest that are over beyond so many; says
    /// how many.
    ///
    /// # Errors
    /// As every query; what was removed until then stays removed.
    pub async fn purge_deliveries(&self, kept: Duration, most: i64) -> Result<u64, StoreError> {
        in_steps(|| async {
            let query = sqlx::query!(
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
                interval(kept),
                most,
                PURGE_STEP
            );
            let done = query.execute(&mut *self.throughout().await?).await?;
            Ok(done.rows_affected())
        })
        .await
    }
}
