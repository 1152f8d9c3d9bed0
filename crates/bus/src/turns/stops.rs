//! Answers that are not wanted any more, told to everybody who may be giving them.
//! Never: a listener that keeps the bus waiting; one that is too slow misses some.

use switchboard_protocol::id::DeviceKey;
use tokio::sync::broadcast::{self, error::RecvError};

use super::{Turn, TurnAt};
use crate::node::Epoch;

/// Stops that wait for a listener that is busy. Protects memory; one takes about 130 bytes.
const REMEMBERED: usize = 1024;

/// Some of a device's turns are not to be answered any more; [`Stop::concerns`] says which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// Which device.
    pub device: DeviceKey,
    /// On which of its connections it had asked; superseded are those before as well.
    pub epoch: Epoch,
    /// On which task; none when it does not matter.
    pub task: Option<[u8; 8]>,
    /// Why, and so what the device is still owed.
    pub why: StopReason,
    /// Only turns before this place in the order are meant; none: all of them.
    pub(crate) before: Option<TurnAt>,
}

/// Why a turn is not to be answered any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The device does not want the answer, or its connection is gone: it is owed nothing, and
    /// what is still said comes to nobody.
    Unwanted,
    /// The device went on to say something else: it is owed the end of the message.
    Superseded,
}

/// What is stopped, from the moment on in which this was made.
#[derive(Debug)]
pub struct TurnStops(broadcast::Receiver<Stop>);

/// The node's end that is fed by its inbox; cheap to clone.
pub(crate) type Stoppers = broadcast::Sender<Stop>;

pub(crate) fn stoppers() -> Stoppers {
    broadcast::Sender::new(REMEMBERED)
}

impl Stop {
    /// Whether this turn is one that is meant. One that the device began later is not, also when
    /// it came on the same task and is taken before the stop is heard of.
    #[must_use]
    pub fn concerns(&self, turn: &Turn) -> bool {
        let is_on_it = match self.why {
            StopReason::Unwanted => turn.epoch == self.epoch,
            StopReason::Superseded => turn.epoch <= self.epoch,
        };
        turn.device == self.device
            && is_on_it
            && self.task.is_none_or(|task| task == turn.task)
            && self.before.is_none_or(|before| turn.id.at() < before)
    }
}

impl TurnStops {
    pub(super) const fn new(receiver: broadcast::Receiver<Stop>) -> Self {
        Self(receiver)
    }

    /// The next stop. Waits until there is one, for ever when the node has ended. Nothing is lost
    /// when the future is dropped. Those that a slow listener missed are left out: what it does
    /// for nobody ends by its own deadline, and a piece that it says is dropped.
    pub async fn next(&mut self) -> Stop {
        loop {
            match self.0.recv().await {
                Ok(stop) => return stop,
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}
