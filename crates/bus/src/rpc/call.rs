//! A call as its caller sends it, and its answer.

use std::time::Duration;

use bytes::Bytes;
use switchboard_protocol::{
    id::{CallId, DeviceKey},
    outcome::{Delivered, Outcome, Refusal},
    schema::Digest,
};
use tokio::sync::mpsc;

use super::progress::Notification;

/// The name by which a call can be cancelled from any node. It is derived from what the caller
/// knows of the call, so it needs no lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CancelKey(pub [u8; 16]);

/// One call of a service of a device.
#[derive(Debug, Clone)]
pub struct Call {
    /// The device to call.
    pub device: DeviceKey,
    /// Unique for ever; a device executes it at most once.
    pub id: CallId,
    /// The service to call.
    pub service: Box<str>,
    /// The params of the service, one JSON object.
    pub params: Bytes,
    /// The input that the device requested when this call was made before, one JSON object beside
    /// the params; empty when it requested none.
    pub input: Bytes,
    /// The registration that the caller has checked: the device's node refuses the call while another one
    /// is in force. `None` for any.
    pub registration: Option<Digest>,
    /// How long the caller waits.
    pub timeout: Duration,
    /// Receives the device's notifications about this call, in order and before the answer;
    /// `None` when the caller wants none. A notification that finds the channel full is dropped.
    /// The bus drops the sender when the call has ended.
    pub notifications: Option<mpsc::Sender<Notification>>,
    /// The key for [`Bus::cancel_call`](crate::Bus::cancel_call); `None` when the call is
    /// cancelled only by dropping it. It is not sent to the device or its node.
    pub cancel_key: Option<CancelKey>,
}

/// How a call ended.
///
/// Invariant: every answer has one outcome, and states whether the device may have acted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The outcome.
    pub outcome: Outcome,
    /// Whether the call was delivered, so that the device may have acted.
    pub delivered: Delivered,
    /// For `succeeded` and `failed` the device's `{"success",…}` object, byte for byte;
    /// else a [`Refusal`] as JSON.
    pub body: Bytes,
    /// False if the data of a result is not known to match the schema that its service declares:
    /// it does not match, or could not be checked. True without such a schema.
    pub result_valid: bool,
}

impl Answer {
    /// The device's own result.
    #[must_use]
    pub const fn result(success: bool, body: Bytes) -> Self {
        let outcome = if success {
            Outcome::Succeeded
        } else {
            Outcome::Failed
        };
        Self {
            outcome,
            delivered: Delivered::Yes,
            body,
            result_valid: true,
        }
    }

    /// An answer without a result. The outcome implies `delivered`.
    #[must_use]
    pub fn refused(outcome: Outcome, refusal: &Refusal) -> Self {
        let body = serde_json::to_vec(refusal).unwrap_or_default().into();
        Self {
            outcome,
            delivered: outcome.delivered(),
            body,
            result_valid: true,
        }
    }

    /// An answer without a result, with one sentence of detail.
    #[must_use]
    pub fn ended(outcome: Outcome, detail: impl Into<String>) -> Self {
        Self::refused(
            outcome,
            &Refusal {
                detail: detail.into(),
                errors: Vec::new(),
            },
        )
    }

    /// The same answer, where more is known of `delivered` than the outcome implies.
    #[must_use]
    pub const fn with_delivered(mut self, delivered: Delivered) -> Self {
        self.delivered = delivered;
        self
    }

    /// Why there is no result; `None` when there is one.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        match self.outcome {
            Outcome::Succeeded | Outcome::Failed => None,
            _ => serde_json::from_slice(&self.body).ok(),
        }
    }
}
