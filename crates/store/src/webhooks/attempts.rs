//! Results of delivery attempts, and the disabling of failing webhooks.
//! Invariant: a result is written only while its attempt is the current one.

use std::time::Duration;

use sqlx::PgConnection;
use switchboard_protocol::id::WebhookId;

use super::ClaimedDelivery;
use crate::{
    Store, StoreError,
    database::{interval, with_timeout},
};

/// The result of a delivery attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The endpoint accepted the delivery.
    Delivered {
        /// The HTTP status.
        status: u16,
    },
    /// The attempt failed.
    Failed {
        /// The HTTP status, if there was a response.
        status: Option<u16>,
        /// The kind of the error.
        error: &'static str,
        /// The delay before the next attempt; `None` if there is none.
        retry_delay: Option<Duration>,
    },
}

impl Store {
    /// Writes the result of an attempt. Returns whether the webhook has failed for longer than
    /// `failing_timeout`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails; the result may have been written.
    pub async fn record_attempt(
        &self,
        delivery: &ClaimedDelivery,
        end: &AttemptOutcome,
        failing_timeout: Duration,
    ) -> Result<bool, StoreError> {
        with_timeout(async {
            let mut transaction = self.begin_tenant(delivery.org).await?;
            // The webhook is locked before its deliveries, in the same order as when it is
            // disabled; two orders would deadlock.
            sqlx::query!(
                "SELECT id FROM webhooks WHERE id = $1 FOR NO KEY UPDATE",
                delivery.webhook.uuid()
            )
            .fetch_optional(&mut *transaction)
            .await?;
            let is_failing_too_long =
                write_outcome(&mut transaction, delivery, end, failing_timeout).await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(is_failing_too_long)
        })
        .await
    }

    /// Disables the webhook of a delivery and fails its pending deliveries. Does nothing if the URL
    /// has changed, or if a delivery succeeded within `failing_timeout`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn disable_webhook(
        &self,
        delivery: &ClaimedDelivery,
        reason: &str,
        failing_timeout: Option<Duration>,
    ) -> Result<bool, StoreError> {
        with_timeout(async {
            let mut transaction = self.begin_tenant(delivery.org).await?;
            let disabled = sqlx::query!(
                "UPDATE webhooks SET enabled = false, disabled_reason = $3, version = version + 1, updated_at = now()
                 WHERE id = $1 AND url = $2 AND enabled
                       AND ($4::interval IS NULL OR failing_since <= now() - $4::interval)",
                delivery.webhook.uuid(),
                delivery.url,
                reason,
                failing_timeout.map(interval)
            )
            .execute(&mut *transaction)
            .await?;
            let is_disabled = disabled.rows_affected() > 0;
            if is_disabled {
                fail_pending(&mut transaction, delivery.webhook).await?;
            }
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(is_disabled)
        })
        .await
    }
}

async fn write_outcome(
    connection: &mut PgConnection,
    delivery: &ClaimedDelivery,
    end: &AttemptOutcome,
    failing_timeout: Duration,
) -> Result<bool, sqlx::Error> {
    let (id, attempt) = (delivery.id.uuid(), delivery.attempt);
    match end {
        AttemptOutcome::Delivered { status } => {
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
        AttemptOutcome::Failed {
            status,
            error,
            retry_delay,
        } => {
            let is_failing_too_long = sqlx::query_scalar!(
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
                retry_delay.map(interval),
                interval(failing_timeout)
            )
            .fetch_optional(connection)
            .await?;
            Ok(is_failing_too_long.unwrap_or_default())
        }
    }
}

/// Fails the pending deliveries of a disabled webhook.
pub(super) async fn fail_pending(
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
