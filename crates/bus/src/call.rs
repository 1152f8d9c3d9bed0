//! A call as its caller makes it, and how it ended.
//! Never: an answer without an outcome, or an outcome without `delivered`.

use std::time::Duration;

use bytes::Bytes;
use switchboard_protocol::{
    id::{CallId, DeviceKey},
    outcome::{Delivered, Outcome, Refusal},
};
use tokio::sync::mpsc;

use crate::notice::Notice;

/// A name that a caller gives a call, to take it back by: whoever knows how it was made can make
/// it again on any node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub [u8; 16]);

/// One call of one service of one device.
#[derive(Debug, Clone)]
pub struct Call {
    /// The device to call.
    pub device: DeviceKey,
    /// Unique for ever; a device executes it at most once.
    pub id: CallId,
    /// The service to call.
    pub service: Box<str>,
    /// Its params, one JSON object.
    pub params: Bytes,
    /// What the device asked for when it was called before and could not do without: one JSON
    /// object beside the params; empty when it asked for nothing.
    pub input: Bytes,
    /// How long the caller waits.
    pub timeout: Duration,
    /// Where what the device says of the call meanwhile goes, in order and before the answer;
    /// `None` when the caller does not want it. A notice that finds the channel full is dropped.
    /// The bus lets go of the channel when the call has ended.
    pub notices: Option<mpsc::Sender<Notice>>,
    /// What [`Bus::withdraw`](crate::Bus::withdraw) knows it by; `None` when only dropping the call
    /// is to end it. Not told to the device or its node.
    pub handle: Option<Handle>,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The one outcome.
    pub outcome: Outcome,
    /// Whether the device may have acted.
    pub delivered: Delivered,
    /// For `succeeded` and `failed` the device's `{"success",…}` object, byte for byte;
    /// else a [`Refusal`] as JSON.
    pub body: Bytes,
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
        }
    }

    /// An end without a result, with what the outcome itself says of `delivered`.
    #[must_use]
    pub fn refused(outcome: Outcome, refusal: &Refusal) -> Self {
        let body = serde_json::to_vec(refusal).unwrap_or_default().into();
        Self {
            outcome,
            delivered: outcome.delivered(),
            body,
        }
    }

    /// The same in one sentence.
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

    /// The same answer where more is known of `delivered` than the outcome says.
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
