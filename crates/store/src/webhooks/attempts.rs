//! What came of attempts at deliveries, and of webhooks at which nothing arrives.
//! Never: a word of an attempt whose time was up when somebody else began the next one.

use std::time::Duration;

use sqlx::PgConnection;
use switchboard_protocol::id::{OrgId, WebhookId};

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
        let (id, attempt) = (delivery.id.uuid(), delivery.attempt);
        match end {
            AttemptEnd::Arrived { status } => {
                let query = sqlx::query!(
                    "WITH arrived AS (
                       UPDATE webhook_deliveries SET state = 'delivered', payload = NULL, next_attempt_at = NULL,
                              last_status = $3, last_error = NULL, ended_at = now()
                       WHERE id = $1 AND attempts = $2 AND state = 'pending' RETURNING webhook_id)
                     UPDATE webhooks hook SET failing_since = NULL FROM arrived
                     WHERE hook.id = arrived.webhook_id AND hook.failing_since IS NOT NULL",
                    id,
                    attempt,
                    i32::from(*status)
                );
                bounded(async { query.execute(&mut *self.within(delivery.org).await?).await })
                    .await?;
                Ok(false)
            }
            AttemptEnd::Failed {
                status,
                error,
                pause,
            } => {
                let query = sqlx::query_scalar!(
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
                );
                let too_long = bounded(async {
                    query
                        .fetch_optional(&mut *self.within(delivery.org).await?)
                        .await
                })
                .await?;
                Ok(too_long.unwrap_or_default())
            }
        }
    }

    /// Tells a webhook nothing more, for this reason, and gives up what waits for it.
    ///
    /// # Errors
    /// As every query.
    pub async fn disable_webhook(
        &self,
        org: OrgId,
        id: WebhookId,
        reason: &str,
    ) -> Result<bool, StoreError> {
        bounded(async {
            let mut transaction = self.begin_within(org).await?;
            let disabled = sqlx::query!(
                "UPDATE webhooks SET enabled = false, disabled_reason = $3, version = version + 1, updated_at = now()
                 WHERE org_id = $1 AND id = $2 AND enabled",
                org.uuid(),
                id.uuid(),
                reason
            )
            .execute(&mut *transaction)
            .await?;
            give_up(&mut transaction, id).await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(disabled.rows_affected() > 0)
        })
        .await
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
