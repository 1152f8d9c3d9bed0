//! Deliveries as an organisation reads them.

use chrono::{DateTime, Utc};
use switchboard_protocol::id::{DeliveryId, OrgId, WebhookId};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::{decode_error, with_timeout},
};

/// The state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    /// It will be attempted, or is being attempted.
    Pending,
    /// It was delivered.
    Delivered,
    /// All attempts failed.
    Failed,
}

/// A stored delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its id, the same in each attempt.
    pub id: DeliveryId,
    /// The webhook that receives it.
    pub webhook: WebhookId,
    /// The name of the event.
    pub event: String,
    /// Its state.
    pub state: DeliveryState,
    /// The number of attempts.
    pub attempts: i32,
    /// Time of the next attempt; during an attempt, when that attempt counts as failed.
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// Time of the last attempt.
    pub last_attempt_at: Option<DateTime<Utc>>,
    /// The HTTP status of the last response.
    pub last_status: Option<i32>,
    /// The last error.
    pub last_error: Option<String>,
    /// Time of creation.
    pub created_at: DateTime<Utc>,
    /// Time of the delivery or of the last failure.
    pub ended_at: Option<DateTime<Utc>>,
}

impl DeliveryState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Delivered, Self::Failed];

    /// The name in requests and responses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }
}

pub(super) struct Row {
    pub(super) id: Uuid,
    pub(super) webhook_id: Uuid,
    pub(super) event: String,
    pub(super) state: String,
    pub(super) attempts: i32,
    pub(super) next_attempt_at: Option<DateTime<Utc>>,
    pub(super) last_attempt_at: Option<DateTime<Utc>>,
    pub(super) last_status: Option<i32>,
    pub(super) last_error: Option<String>,
    pub(super) created_at: DateTime<Utc>,
    pub(super) ended_at: Option<DateTime<Utc>>,
}

/// A state that this version does not know; a newer one may have written it.
#[derive(Debug, thiserror::Error)]
#[error("a delivery has an unknown state")]
struct UnknownState;

impl TryFrom<Row> for Delivery {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let mut states = DeliveryState::ALL.into_iter();
        let state = states.find(|state| state.as_str() == row.state);
        Ok(Self {
            id: DeliveryId::from_uuid(row.id),
            webhook: WebhookId::from_uuid(row.webhook_id),
            event: row.event,
            state: state.ok_or_else(|| decode_error(UnknownState))?,
            attempts: row.attempts,
            next_attempt_at: row.next_attempt_at,
            last_attempt_at: row.last_attempt_at,
            last_status: row.last_status,
            last_error: row.last_error,
            created_at: row.created_at,
            ended_at: row.ended_at,
        })
    }
}

impl Store {
    /// Deliveries to a webhook of an organisation, newest first, strictly before `before`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn webhook_deliveries(
        &self,
        org: OrgId,
        webhook: WebhookId,
        state: Option<DeliveryState>,
        before: Option<DeliveryId>,
        limit: u32,
    ) -> Result<Vec<Delivery>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "SELECT id, webhook_id, event, state, attempts, next_attempt_at, last_attempt_at, last_status, last_error,
                    created_at, ended_at
             FROM webhook_deliveries
             WHERE org_id = $1 AND webhook_id = $2 AND ($3::text IS NULL OR state = $3) AND ($4::uuid IS NULL OR id < $4)
             ORDER BY id DESC LIMIT $5",
            org.uuid(),
            webhook.uuid(),
            state.map(DeliveryState::as_str),
            before.map(DeliveryId::uuid),
            i64::from(limit)
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await })
                .await?;
        rows.into_iter().map(Delivery::try_from).collect()
    }

    /// One delivery of an organisation.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn webhook_delivery(
        &self,
        org: OrgId,
        id: DeliveryId,
    ) -> Result<Option<Delivery>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "SELECT id, webhook_id, event, state, attempts, next_attempt_at, last_attempt_at, last_status, last_error,
                    created_at, ended_at
             FROM webhook_deliveries WHERE org_id = $1 AND id = $2",
            org.uuid(),
            id.uuid()
        );
        let row = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(org).await?)
                .await
        })
        .await?;
        row.map(Delivery::try_from).transpose()
    }
}
