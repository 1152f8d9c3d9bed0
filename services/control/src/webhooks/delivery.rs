//! Deliveries as documents.
//! Never: a payload shown; it is the webhook's to read.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::{DeliveryId, WebhookId};
use switchboard_store::{Delivery, DeliveryState};
use utoipa::ToSchema;

/// How far a delivery is.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DeliveryState, example = "delivered")]
pub(crate) enum ShownState {
    /// It is attempted, now or later.
    Pending,
    /// It has arrived.
    Delivered,
    /// It was given up.
    Failed,
}

impl From<DeliveryState> for ShownState {
    fn from(state: DeliveryState) -> Self {
        match state {
            DeliveryState::Pending => Self::Pending,
            DeliveryState::Delivered => Self::Delivered,
            DeliveryState::Failed => Self::Failed,
        }
    }
}

impl From<ShownState> for DeliveryState {
    fn from(state: ShownState) -> Self {
        match state {
            ShownState::Pending => Self::Pending,
            ShownState::Delivered => Self::Delivered,
            ShownState::Failed => Self::Failed,
        }
    }
}

/// One event on its way to one webhook.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Delivery)]
pub(crate) struct ShownDelivery {
    /// Its id, which the header `webhook-id` has in each attempt.
    id: DeliveryId,
    /// To which webhook.
    webhook_id: WebhookId,
    /// What it tells.
    #[schema(max_length = 64, example = "call.finished")]
    event: String,
    /// How far it is.
    state: ShownState,
    /// How often it was attempted.
    #[schema(minimum = 0, example = 1)]
    attempts: i32,
    /// When it was attempted last.
    #[schema(example = "2026-01-02T03:04:05Z")]
    last_attempt_at: Option<DateTime<Utc>>,
    /// The HTTP status that the last attempt was answered with; null when there was no answer.
    #[schema(minimum = 100, maximum = 999, example = 204)]
    last_status: Option<i32>,
    /// What went wrong last, as a word.
    #[schema(max_length = 32, example = json!(null))]
    last_error: Option<String>,
    /// When it is attempted next; while an attempt is under way, when that counts as failed.
    #[schema(example = json!(null))]
    next_attempt_at: Option<DateTime<Utc>>,
    /// When it was made.
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// When it arrived or was given up.
    #[schema(example = "2026-01-02T03:04:05Z")]
    ended_at: Option<DateTime<Utc>>,
}

impl From<Delivery> for ShownDelivery {
    fn from(delivery: Delivery) -> Self {
        Self {
            id: delivery.id,
            webhook_id: delivery.webhook,
            event: delivery.event,
            state: delivery.state.into(),
            attempts: delivery.attempts,
            last_attempt_at: delivery.last_attempt_at,
            last_status: delivery.last_status,
            last_error: delivery.last_error,
            next_attempt_at: delivery.next_attempt_at,
            created_at: delivery.created_at,
            ended_at: delivery.ended_at,
        }
    }
}
