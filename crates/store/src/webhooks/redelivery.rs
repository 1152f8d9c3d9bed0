//! Deliveries that somebody asks for: one to try a webhook out, and one that was given up, once more.
//! Never: a delivery to a webhook that is told nothing, or of another organisation.

use sqlx::PgConnection;
use switchboard_protocol::id::{DeliveryId, OrgId, WebhookId};
use uuid::Uuid;

use super::deliveries::{Delivery, DeliveryState, Row};
use crate::{Creation, StoreError, database::bounded};

/// How many deliveries may wait for a webhook; `tell_webhooks` has the same number.
const MOST_WAITING: i64 = 5_000;

/// What became of a delivery that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redelivery {
    /// It waits for its next attempt.
    Waits(Delivery),
    /// It has not failed.
    NotFailed,
    /// Its webhook is not enabled.
    Disabled,
    /// As many wait for its webhook as may.
    TooMany,
    /// The organisation has no such delivery, or no such webhook.
    Unknown,
}

impl Redelivery {
    fn of(row: Option<Row>) -> Result<Self, StoreError> {
        row.map_or(Ok(Self::TooMany), |row| Ok(Self::Waits(row.try_into()?)))
    }
}

impl Creation {
    /// Adds a delivery that no event is behind, to a webhook of the organisation.
    ///
    /// # Errors
    /// As every query.
    pub async fn add_webhook_delivery(
        &mut self,
        org: OrgId,
        webhook: WebhookId,
        id: DeliveryId,
        event: &str,
        payload: &str,
    ) -> Result<Redelivery, StoreError> {
        let held = hold(self.connection(), org, webhook.uuid());
        match bounded(held).await? {
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
            MOST_WAITING
        );
        Redelivery::of(bounded(query.fetch_optional(self.connection())).await?)
    }

    /// Has a delivery attempted anew that was given up, as if it never had been attempted.
    ///
    /// # Errors
    /// As every query.
    pub async fn redeliver(
        &mut self,
        org: OrgId,
        id: DeliveryId,
    ) -> Result<Redelivery, StoreError> {
        match bounded(revive(self.connection(), org, id)).await? {
            Ok(row) => Redelivery::of(row),
            Err(refused) => Ok(refused),
        }
    }
}

/// Whether a webhook is enabled, which it stays until the transaction ends. It is held before any of its deliveries,
/// in the order of whoever disables it, and so one at a time adds to them.
async fn hold(
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

/// Nothing when too many wait.
async fn revive(
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
    let enabled = hold(&mut *connection, org, webhook).await?;
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
        MOST_WAITING
    )
    .fetch_optional(connection)
    .await?;
    Ok(Ok(row))
}
