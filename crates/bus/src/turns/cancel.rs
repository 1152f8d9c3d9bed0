//! Cancellations of turns, and the subscription to them.

use switchboard_protocol::id::DeviceKey;
use tokio::sync::broadcast::{self, error::RecvError};

use super::{position::TurnPosition, turn::Turn};
use crate::node::Epoch;

/// Cancellations that wait for a busy subscriber. Protects memory; one takes about 130 bytes.
const CHANNEL_CAPACITY: usize = 1024;

/// Some turns of a device are not to be answered; [`TurnCancellation::applies_to`] decides which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnCancellation {
    /// The device.
    pub device: DeviceKey,
    /// The connection of the turns. For superseded turns, earlier connections as well.
    pub epoch: Epoch,
    /// The task of the turns; `None` for turns of every task.
    pub task: Option<[u8; 8]>,
    /// Why, and so what the worker still owes the device.
    pub reason: CancelReason,
    /// Only turns before this position are cancelled; `None` for all.
    pub(crate) before: Option<TurnPosition>,
}

/// Why a turn is not to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelReason {
    /// The device does not want the reply, or its connection has ended. The worker owes nothing;
    /// what it still sends is dropped.
    Unwanted,
    /// The device has begun a newer turn. The worker still owes the end of the reply.
    Superseded,
}

/// A subscription to the cancellations from now on.
#[derive(Debug)]
pub struct TurnCancellations(broadcast::Receiver<TurnCancellation>);

pub(crate) type CancellationSender = broadcast::Sender<TurnCancellation>;

pub(crate) fn cancellation_channel() -> CancellationSender {
    broadcast::Sender::new(CHANNEL_CAPACITY)
}

impl TurnCancellation {
    /// Whether this turn is cancelled. A turn that the device began later is not, even on the same
    /// task and if it is claimed before the cancellation arrives.
    #[must_use]
    pub fn applies_to(&self, turn: &Turn) -> bool {
        let is_of_connection = match self.reason {
            CancelReason::Unwanted => turn.epoch == self.epoch,
            CancelReason::Superseded => turn.epoch <= self.epoch,
        };
        turn.device == self.device
            && is_of_connection
            && self.task.is_none_or(|task| task == turn.task)
            && self.before.is_none_or(|before| turn.id.position() < before)
    }
}

impl TurnCancellations {
    pub(super) const fn new(receiver: broadcast::Receiver<TurnCancellation>) -> Self {
        Self(receiver)
    }

    /// Waits for the next cancellation, for ever when the node has ended. Cancel-safe.
    ///
    /// Cancellations that a slow subscriber missed are skipped: a reply that it still produces is
    /// dropped, and the turn is lost at its next renewal.
    pub async fn next(&mut self) -> TurnCancellation {
        loop {
            match self.0.recv().await {
                Ok(cancellation) => return cancellation,
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}
