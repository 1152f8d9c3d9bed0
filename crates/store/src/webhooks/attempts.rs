//! What came of attempts at deliveries, and of webhooks at which nothing arrives.
//! Never: a word of an attempt whose time was up when somebody else began the next one.

use std::time::Duration;

use sqlx::PgConnection;
use switchboard_protocol::id::WebhookId;

use super::ClaimedDelivery;
use crate::{
    Store, StoreError,
    database::{bounded, interval},
};

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptEnd {
    /// It has arrived.
    Arrived {
        /// The HTTP status.
        status: u16,
    },
    /// It has not.
    Failed {
        /// The HTTP status, if there was an answer.
        status: Option<u16>,
        /// What went wrong, as a word.
        error: &'static str,
        /// When it is attempted again; not any more when there is none.
        pause: Option<Duration>,
    },
}

impl Store {
    /// Writes down what came of an attempt. Says whether nothing has arrived at the webhook for longer than `patience`.
    ///
    /// # Errors
    /// As every query; it may be written.
    pub async fn end_attempt(
        &self,
        delivery: &ClaimedDelivery,
        end: &AttemptEnd,
        patience: Duration,
    ) -> Result<bool, StoreError> {
        bounded(async {
            let mut transaction = self.begin_within(delivery.org).await?;
            // The webhook first and then its deliveries, as whoever disables it: two orders are a deadlock.
            sqlx::query!(
                "SELECT id FROM webhooks WHERE id = $1 FOR NO KEY UPDATE",
                delivery.webhook.uuid()
            )
            .fetch_optional(&mut *transaction)
            .await?;
            let too_long = end_one(&mut transaction, delivery, end, patience).await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(too_long)
        })
        .await
    }

    /// Tells the webhook of a delivery nothing more, for this reason, and gives up what waits for it. Nothing happens when
    /// it leads elsewhere meanwhile, or when something has arrived within `patience`.
    ///
    /// # Errors
    /// As every query.
    pub async fn disable_webhook(
        &self,
        delivery: &ClaimedDelivery,
        reason: &str,
        patience: Option<Duration>,
    ) -> Result<bool, StoreError> {
        bounded(async {
            let mut transaction = self.begin_within(delivery.org).await?;
            let disabled = sqlx::query!(
                "UPDATE webhooks SET enabled = false, disabled_reason = $3, version = version + 1, updated_at = now()
                 WHERE id = $1 AND url = $2 AND enabled
                       AND ($4::interval IS NULL OR failing_since <= now() - $4::interval)",
                delivery.webhook.uuid(),
                delivery.url,
                reason,
                patience.map(interval)
            )
            .execute(&mut *transaction)
            .await?;
            let is_disabled = disabled.rows_affected() > 0;
            if is_disabled {
                give_up(&mut transaction, delivery.webhook).await?;
            }
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(is_disabled)
        })
        .await
    }
}

async fn end_one(
    connection: &mut PgConnection,
    delivery: &ClaimedDelivery,
    end: &AttemptEnd,
    patience: Duration,
) -> Result<bool, sqlx::Error> {
    let (id, attempt) = (delivery.id.uuid(), delivery.attempt);
    match end {
        AttemptEnd::Arrived { status } => {
            sqlx::query!(
                "WITH arrived AS (
                   UPDATE webhook_deliveries SET state = 'delivered', payload = NULL, next_attempt_at = NULL,
                          last_status = $3, last_error = NULL, ended_at = now()
                   WHERE id = $1 AND attempts = $2 AND state = 'pending' RETURNING webhook_id)
                 UPDATE webhooks hook SET failing_since = NULL FROM arrived
                 WHERE hook.id = arrived.webhook_id AND hook.failing_since IS NOT NULL",
                id,
                attempt,
                i32::from(*status)
            )
            .execute(connection)
            .await?;
            Ok(false)
        }
        AttemptEnd::Failed {
            status,
            error,
            pause,
        } => {
            let too_long = sqlx::query_scalar!(
                r#"WITH ended AS (
                     UPDATE webhook_deliveries SET state = CASE WHEN $5::interval IS NULL THEN 'failed' ELSE state END,
                            next_attempt_at = now() + $5::interval, last_status = $3, last_error = $4,
                            ended_at = CASE WHEN $5::interval IS NULL THEN now() END
                     WHERE id = $1 AND attempts = $2 AND state = 'pending' RETURNING webhook_id)
                   UPDATE webhooks hook SET failing_since = COALESCE(hook.failing_since, now()) FROM ended
                   WHERE hook.id = ended.webhook_id
                   RETURNING hook.failing_since <= now() - $6::interval AS "too_long!""#,
                id,
                attempt,
                status.map(i32::from),
                *error,
                pause.map(interval),
                interval(patience)
            )
            .fetch_optional(connection)
            .await?;
            Ok(too_long.unwrap_or_default())
        }
    }
}

/// What waits for a webhook that is not enabled any more has failed.
pub(super) async fn give_up(
    connection: &mut PgConnection,
    id: WebhookId,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE webhook_deliveries SET state = 'failed', next_attempt_at = NULL, ended_at = now(),
                                       last_error = COALESCE(last_error, 'webhook_disabled')
         WHERE webhook_id = $1 AND state = 'pending'",
        id.uuid()
    )
    .execute(connection)
    .await?;
    Ok(())
}
