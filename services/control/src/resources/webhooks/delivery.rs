//! Response schemas of deliveries.
//!
//! Invariant: no response has the payload of a delivery; only its webhook receives it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::{DeliveryId, WebhookId};
use switchboard_store::{Delivery, DeliveryState};
use utoipa::ToSchema;

/// The state of a delivery.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DeliveryState, example = "delivered")]
pub(crate) enum DeliveryStateView {
    /// Attempts are in progress or scheduled.
    Pending,
    /// The webhook accepted it.
    Delivered,
    /// All attempts failed.
    Failed,
}

impl From<DeliveryState> for DeliveryStateView {
    fn from(state: DeliveryState) -> Self {
        match state {
            DeliveryState::Pending => Self::Pending,
            DeliveryState::Delivered => Self::Delivered,
            DeliveryState::Failed => Self::Failed,
        }
    }
}

impl From<DeliveryStateView> for DeliveryState {
    fn from(state: DeliveryStateView) -> Self {
        match state {
            DeliveryStateView::Pending => Self::Pending,
            DeliveryStateView::Delivered => Self::Delivered,
            DeliveryStateView::Failed => Self::Failed,
        }
    }
}

/// The delivery of one event to one webhook.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Delivery)]
pub(crate) struct DeliveryView {
    /// Unique identifier, sent as the header `webhook-id` with each attempt.
    id: DeliveryId,
    /// The webhook.
    webhook_id: WebhookId,
    /// The type of the event.
    #[schema(max_length = 64, example = "call.finished")]
    event: String,
    /// State of the delivery.
    state: DeliveryStateView,
    /// Number of attempts.
    #[schema(minimum = 0, example = 1)]
    attempts: i32,
    /// Time of the last attempt (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    last_attempt_at: Option<DateTime<Utc>>,
    /// HTTP status of the last attempt; null without a response.
    #[schema(minimum = 100, maximum = 999, example = 204)]
    last_status: Option<i32>,
    /// Error code of the last attempt.
    #[schema(max_length = 32, example = json!(null))]
    last_error: Option<String>,
    /// Time of the next attempt (RFC 3339); during an attempt, the time at which it
    /// counts as failed.
    #[schema(example = json!(null))]
    next_attempt_at: Option<DateTime<Utc>>,
    /// Time of creation (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// Time of success or final failure (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    ended_at: Option<DateTime<Utc>>,
}

impl From<Delivery> for DeliveryView {
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
