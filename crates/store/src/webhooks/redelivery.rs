//! Deliveries on request: test deliveries, and repeated attempts of failed ones.

use sqlx::PgConnection;
use switchboard_protocol::id::{DeliveryId, OrgId, WebhookId};
use uuid::Uuid;

use super::deliveries::{Delivery, DeliveryState, Row};
use crate::{StoreError, TenantTransaction, database::with_timeout};

/// The maximum number of pending deliveries of a webhook; the SQL function `tell_webhooks` has the
/// same value.
const MAX_WAITING: i64 = 5_000;

/// The result of requesting a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redelivery {
    /// It is pending.
    Pending(Delivery),
    /// It has not failed.
    NotFailed,
    /// Its webhook is disabled.
    Disabled,
    /// The webhook's queue is full.
    TooMany,
    /// The organisation has no such delivery, or no such webhook.
    Unknown,
}

impl Redelivery {
    fn from_row(row: Option<Row>) -> Result<Self, StoreError> {
        row.map_or(Ok(Self::TooMany), |row| Ok(Self::Pending(row.try_into()?)))
    }
}

impl TenantTransaction {
    /// Adds a delivery without an event to a webhook of the organisation.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn add_webhook_delivery(
        &mut self,
        org: OrgId,
        webhook: WebhookId,
        id: DeliveryId,
        event: &str,
        payload: &str,
    ) -> Result<Redelivery, StoreError> {
        let locked = lock_webhook(self.connection(), org, webhook.uuid());
        match with_timeout(locked).await? {
            None => return Ok(Redelivery::Unknown),
            Some(false) => return Ok(Redelivery::Disabled),
            Some(true) => {}
        }
        let query = sqlx::query_as!(
            Row,
            "INSERT INTO webhook_deliveries (id, org_id, webhook_id, event, event_id, payload, next_attempt_at)
             SELECT $3, $1, $2, $4, $3, $5, now()
             WHERE (SELECT count(*) FROM (SELECT FROM webhook_deliveries waiting
                                          WHERE waiting.webhook_id = $2 AND waiting.state = 'pending' LIMIT $6) one) < $6
             RETURNING id, webhook_id, event, state, attempts, next_attempt_at, last_attempt_at, last_status,
                       last_error, created_at, ended_at",
            org.uuid(),
            webhook.uuid(),
            id.uuid(),
            event,
            payload,
            MAX_WAITING
        );
        Redelivery::from_row(with_timeout(query.fetch_optional(self.connection())).await?)
    }

    /// Resets a failed delivery, as if it had never been attempted.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn redeliver(
        &mut self,
        org: OrgId,
        id: DeliveryId,
    ) -> Result<Redelivery, StoreError> {
        match with_timeout(requeue(self.connection(), org, id)).await? {
            Ok(row) => Redelivery::from_row(row),
            Err(refused) => Ok(refused),
        }
    }
}

/// Whether a webhook is enabled; locks it until the transaction ends. It is locked before its
/// deliveries, in the same order as when it is disabled, and so additions to its queue are
/// serialised.
async fn lock_webhook(
    connection: &mut PgConnection,
    org: OrgId,
    webhook: Uuid,
) -> Result<Option<bool>, sqlx::Error> {
    sqlx::query_scalar!(
        "SELECT enabled FROM webhooks WHERE org_id = $1 AND id = $2 FOR NO KEY UPDATE",
        org.uuid(),
        webhook
    )
    .fetch_optional(connection)
    .await
}

/// `None` if the queue is full.
async fn requeue(
    connection: &mut PgConnection,
    org: OrgId,
    id: DeliveryId,
) -> Result<Result<Option<Row>, Redelivery>, sqlx::Error> {
    let webhook = sqlx::query_scalar!(
        "SELECT webhook_id FROM webhook_deliveries WHERE org_id = $1 AND id = $2",
        org.uuid(),
        id.uuid()
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(webhook) = webhook else {
        return Ok(Err(Redelivery::Unknown));
    };
    let enabled = lock_webhook(&mut *connection, org, webhook).await?;
    let state = sqlx::query_scalar!(
        "SELECT state FROM webhook_deliveries WHERE org_id = $1 AND id = $2 FOR UPDATE",
        org.uuid(),
        id.uuid()
    )
    .fetch_optional(&mut *connection)
    .await?;
    let (Some(enabled), Some(state)) = (enabled, state) else {
        return Ok(Err(Redelivery::Unknown));
    };
    if state != DeliveryState::Failed.as_str() {
        return Ok(Err(Redelivery::NotFailed));
    }
    if !enabled {
        return Ok(Err(Redelivery::Disabled));
    }
    let row = sqlx::query_as!(
        Row,
        "UPDATE webhook_deliveries SET state = 'pending', attempts = 0, next_attempt_at = now(), ended_at = NULL
         WHERE org_id = $1 AND id = $2
               AND (SELECT count(*) FROM (SELECT FROM webhook_deliveries waiting
                                          WHERE waiting.webhook_id = $3 AND waiting.state = 'pending' LIMIT $4) one) < $4
         RETURNING id, webhook_id, event, state, attempts, next_attempt_at, last_attempt_at, last_status, last_error,
                   created_at, ended_at",
        org.uuid(),
        id.uuid(),
        webhook,
        MAX_WAITING
    )
    .fetch_optional(connection)
    .await?;
    Ok(Ok(row))
}
