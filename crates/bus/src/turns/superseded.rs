//! Turns that a newer turn of the same device has superseded.

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use switchboard_protocol::id::DeviceKey;

use super::{
    cancel::{CancelReason, TurnCancellation},
    position::TurnPosition,
    turn::Turn,
};
use crate::{
    bus::{Bus, Node},
    error::BusError,
    node::Epoch,
    transport::Message,
};

/// Devices whose superseded turns are cached. Protects memory; one takes about 100 bytes. An
/// evicted entry costs an unnecessary reply.
const CACHE_CAPACITY: usize = 4096;

/// For each device: the turns before this position, up to this connection, are superseded.
///
/// Invariant: a turn is not superseded by itself, or by an older one.
pub(crate) struct SupersededTurns {
    before: Cache<DeviceKey, (Epoch, TurnPosition)>,
    /// Makes a comparison and the update that follows it atomic.
    updating: Mutex<()>,
}

impl Default for SupersededTurns {
    fn default() -> Self {
        Self {
            before: Cache::new(CACHE_CAPACITY),
            updating: Mutex::new(()),
        }
    }
}

impl SupersededTurns {
    /// Records a turn that supersedes others, unless a newer one is recorded.
    fn record(&self, device: &DeviceKey, by: (Epoch, TurnPosition)) {
        let _updating = self.updating.lock();
        if self.before.get(device).is_none_or(|known| known < by) {
            self.before.insert(device.clone(), by);
        }
    }

    fn contains(&self, turn: &Turn) -> bool {
        let known = self.before.get(&turn.device);
        known.is_some_and(|(epoch, before)| turn.epoch <= epoch && turn.id.position() < before)
    }
}

impl Bus {
    /// Notifies all nodes that this turn supersedes the earlier turns of its device: those on
    /// every task, on this connection and on earlier ones, whose edge may have failed.
    ///
    /// A worker that answers an earlier turn receives a [`TurnCancellation`] and owes the device
    /// the end of the reply: [`finish_reply`](Self::finish_reply), then
    /// [`complete_turn`](Self::complete_turn). An earlier turn is not given to a worker later.
    ///
    /// # Errors
    /// When the bus is not reachable: other workers may not be notified, and continue.
    pub async fn supersede_turns(&self, turn: &Turn) -> Result<(), BusError> {
        let node = &*self.0;
        let cancellation = TurnCancellation {
            device: turn.device.clone(),
            epoch: turn.epoch,
            task: None,
            reason: CancelReason::Superseded,
            before: Some(turn.id.position()),
        };
        node.record_superseded(&cancellation);
        node.broadcast(&Message::CancelTurns(cancellation)).await
    }

    /// Whether this node knows a newer turn that supersedes this one. A worker checks it after it
    /// has subscribed to [`turn_cancellations`](Self::turn_cancellations), because one may have
    /// arrived in between. Does not wait.
    #[must_use]
    pub fn is_turn_superseded(&self, turn: &Turn) -> bool {
        self.0.superseded_turns.contains(turn)
    }
}

impl Node {
    /// Records a cancellation of superseded turns, for turns that are claimed later.
    pub(crate) fn record_superseded(&self, cancellation: &TurnCancellation) {
        if let (CancelReason::Superseded, Some(before)) = (cancellation.reason, cancellation.before)
        {
            let by = (cancellation.epoch, before);
            self.superseded_turns.record(&cancellation.device, by);
        }
    }
}
