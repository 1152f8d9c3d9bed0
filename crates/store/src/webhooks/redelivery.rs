//! Deliveries that somebody asks for: one to try a webhook out, and one that was given up, once more.
//! Never: a delivery to a webhook that is told nothing, or of another organisation.

use sqlx::PgConnection;
use switchboard_protocol::id::{DeliveryId, OrgId, WebhookId};

use super::deliveries::{Delivery, DeliveryState, Row};
use crate::{Creation, StoreError, database::bounded};

/// What became of a delivery that was to be repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redelivery {
    /// It waits for its next attempt.
    Waits(Delivery),
    /// It has not failed.
    NotFailed,
    /// Its webhook is not enabled.
    Disabled,
    /// The organisation has no such delivery.
    Unknown,
}

impl Creation {
    /// Adds a delivery that no event is behind, to a webhook of the organisation that is enabled; nothing otherwise.
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
    ) -> Result<Option<Delivery>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "INSERT INTO webhook_deliveries (id, org_id, webhook_id, event, event_id, payload, next_attempt_at)
             SELECT $3, org_id, id, $4, $3, $5, now() FROM webhooks WHERE org_id = $1 AND id = $2 AND enabled
             RETURNING id, webhook_id, event, state, attempts, next_attempt_at, last_attempt_at, last_status,
                       last_error, created_at, ended_at",
            org.uuid(),
            webhook.uuid(),
            id.uuid(),
            event,
            payload
        );
        let row = bounded(query.fetch_optional(self.connection())).await?;
        row.map(Delivery::try_from).transpose()
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
        let found = bounded(revive(self.connection(), org, id)).await?;
        Ok(match found {
            Ok(row) => Redelivery::Waits(row.try_into()?),
            Err(refused) => refused,
        })
    }
}

async fn revive(
    connection: &mut PgConnection,
    org: OrgId,
    id: DeliveryId,
) -> Result<Result<Row, Redelivery>, sqlx::Error> {
    let found = sqlx::query!(
        "SELECT delivery.state, hook.enabled
         FROM webhook_deliveries delivery JOIN webhooks hook ON hook.id = delivery.webhook_id
         WHERE delivery.org_id = $1 AND delivery.id = $2 FOR UPDATE",
        org.uuid(),
        id.uuid()
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(found) = found else {
        return Ok(Err(Redelivery::Unknown));
    };
    if found.state != DeliveryState::Failed.as_str() {
        return Ok(Err(Redelivery::NotFailed));
    }
    if !found.enabled {
        return Ok(Err(Redelivery::Disabled));
    }
    let row = sqlx::query_as!(
        Row,
        "UPDATE webhook_deliveries SET state = 'pending', attempts = 0, next_attempt_at = now(), ended_at = NULL
         WHERE org_id = $1 AND id = $2
         RETURNING id, webhook_id, event, state, attempts, next_attempt_at, last_attempt_at, last_status, last_error,
                   created_at, ended_at",
        org.uuid(),
        id.uuid()
    )
    .fetch_one(connection)
    .await?;
    Ok(Ok(row))
}
