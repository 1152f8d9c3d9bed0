//! Turns that came to nothing because their device went on to say something else.
//! Never: a turn superseded by itself, or by an older one.

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use switchboard_protocol::id::DeviceKey;

use super::{Stop, StopReason, Turn, TurnAt};
use crate::{
    bus::{Bus, Node},
    envelope::Envelope,
    error::BusError,
    node::Epoch,
};

/// Devices of which a node remembers what superseded their turns. Protects memory; one takes about
/// 100 bytes. One that is forgotten costs an answer that nobody waits for.
const REMEMBERED: usize = 4096;

/// By device: up to which of its connections, and before which turn, all are superseded.
pub(crate) struct Superseded {
    before: Cache<DeviceKey, (Epoch, TurnAt)>,
    /// Held from a look to the change that follows from it.
    changing: Mutex<()>,
}

impl Default for Superseded {
    fn default() -> Self {
        Self {
            before: Cache::new(REMEMBERED),
            changing: Mutex::new(()),
        }
    }
}

impl Superseded {
    /// Remembers the newest that superseded others.
    fn note(&self, device: &DeviceKey, by: (Epoch, TurnAt)) {
        let _changing = self.changing.lock();
        if self.before.get(device).is_none_or(|known| known < by) {
            self.before.insert(device.clone(), by);
        }
    }

    fn concerns(&self, turn: &Turn) -> bool {
        let known = self.before.get(&turn.device);
        known.is_some_and(|(epoch, before)| turn.epoch <= epoch && turn.id.at() < before)
    }
}

impl Bus {
    /// Tells everybody that what the device said earlier, on whichever task, is superseded by this
    /// turn; on this connection or on an earlier one, whose edge may have died without a word. Who
    /// answers an older one hears a [`Stop`] that says so, and owes the device the end of that
    /// message: [`finish`](Self::finish), then [`end_turn`](Self::end_turn). Whoever takes an older
    /// one later is not given it.
    ///
    /// # Errors
    /// When the bus does not answer: others may not have heard, and go on.
    pub async fn supersede_turns(&self, turn: &Turn) -> Result<(), BusError> {
        let node = &*self.0;
        let stop = Stop {
            device: turn.device.clone(),
            epoch: turn.epoch,
            task: None,
            why: StopReason::Superseded,
            before: Some(turn.id.at()),
        };
        node.note_superseded(&stop);
        let pack = node.pack(&Envelope::Stop(stop));
        node.backend.broadcast(pack).await
    }

    /// Whether this node has heard that a newer turn superseded this one: for a taker to ask once
    /// it heeds [`stops`](Self::stops) for it, because one may have come in between. Does not wait.
    #[must_use]
    pub fn turn_is_superseded(&self, turn: &Turn) -> bool {
        self.0.superseded.concerns(turn)
    }
}

impl Node {
    /// Remembers a stop that says so, for turns that are taken later.
    pub(crate) fn note_superseded(&self, stop: &Stop) {
        if let (StopReason::Superseded, Some(before)) = (stop.why, stop.before) {
            self.superseded.note(&stop.device, (stop.epoch, before));
        }
    }
}
