//! Deliveries as an organisation sees them.
//! Never: a delivery of another organisation.

use chrono::{DateTime, Utc};
use switchboard_protocol::id::{DeliveryId, OrgId, WebhookId};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::{bounded, undecodable},
};

/// How far a delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    /// It is attempted, now or later.
    Pending,
    /// It has arrived.
    Delivered,
    /// It was given up.
    Failed,
}

/// A delivery as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its id, the same in each attempt.
    pub id: DeliveryId,
    /// To which webhook.
    pub webhook: WebhookId,
    /// What it tells.
    pub event: String,
    /// How far it is.
    pub state: DeliveryState,
    /// How often it was attempted.
    pub attempts: i32,
    /// When it is attempted next; while an attempt is under way, when that counts as failed.
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// When it was attempted last.
    pub last_attempt_at: Option<DateTime<Utc>>,
    /// The HTTP status that was answered last.
    pub last_status: Option<i32>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it arrived or was given up.
    pub ended_at: Option<DateTime<Utc>>,
}

impl DeliveryState {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Delivered, Self::Failed];

    /// The name used in requests and answers.
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
#[error("a delivery's state is not known here")]
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
            state: state.ok_or_else(|| undecodable(UnknownState))?,
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
    /// Deliveries to a webhook of an organisation, the newest first, strictly before `before`.
    ///
    /// # Errors
    /// As every query.
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
        let rows = bounded(async { query.fetch_all(&mut *self.within(org).await?).await }).await?;
        rows.into_iter().map(Delivery::try_from).collect()
    }

    /// One delivery of an organisation.
    ///
    /// # Errors
    /// As every query.
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
        let row =
            bounded(async { query.fetch_optional(&mut *self.within(org).await?).await }).await?;
        row.map(Delivery::try_from).transpose()
    }
}
