//! Calls of this node that wait for their end.
//! Never: two ends for one call; whoever takes the slot settles it.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};

use crate::{
    call::{Answer, Handle},
    node::NodeId,
    notice::Notice,
};

/// What became of one hand-over.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The other node ended the call.
    Answered(Answer),
    /// The connection meant is not there, or the node is gone: the device never saw the call.
    NotThere,
    /// The call did not leave this node.
    Unsent,
    /// The node or the bus failed after the hand-over.
    Lost(&'static str),
    /// The caller took the call back.
    Withdrawn,
}

struct Slot {
    generation: u32,
    node: NodeId,
    since: Instant,
    end: oneshot::Sender<Verdict>,
    notices: Option<mpsc::Sender<Notice>>,
    handle: Option<Handle>,
}

struct Slots {
    generation: u32,
    slots: Slab<Slot>,
}

impl Slots {
    /// The number of the slot that the token still is for.
    fn find(&self, token: u64) -> Option<usize> {
        let number = usize::try_from(token & u64::from(u32::MAX)).ok()?;
        let slot = self.slots.get(number)?;
        (u64::from(slot.generation) == token >> 32).then_some(number)
    }
}

/// The table of waiting calls. A token is a slot's number and its generation, so a late answer
/// can not end another call.
pub(crate) struct Pending {
    slots: Mutex<Slots>,
}

impl Pending {
    pub(crate) fn new() -> Self {
        Self {
            slots: Mutex::new(Slots {
                generation: 0,
                slots: Slab::new(),
            }),
        }
    }

    /// A slot for a call that goes to `node`.
    pub(crate) fn insert(
        &self,
        node: NodeId,
        notices: Option<mpsc::Sender<Notice>>,
        handle: Option<Handle>,
    ) -> (u64, oneshot::Receiver<Verdict>) {
        let (end, wait) = oneshot::channel();
        let mut slots = self.slots.lock();
        slots.generation = slots.generation.wrapping_add(1);
        let generation = slots.generation;
        let number = slots.slots.insert(Slot {
            generation,
            node,
            since: Instant::now(),
            end,
            notices,
            handle,
        });
        let token = u64::from(generation) << 32 | (number as u64 & u64::from(u32::MAX));
        (token, wait)
    }

    /// Ends the call behind the token; false when it has ended already.
    pub(crate) fn settle(&self, token: u64, verdict: Verdict) -> bool {
        match self.take(token) {
            Some(slot) => slot.end.send(verdict).is_ok(),
            None => false,
        }
    }

    /// Ends the call that its caller knows by this; false when none waits here. Looks at every call,
    /// so that the many that are never taken back cost nothing more.
    pub(crate) fn withdraw(&self, handle: Handle) -> bool {
        let found = {
            let mut slots = self.slots.lock();
            let mut waiting = slots.slots.iter();
            let number = waiting.find(|(_, slot)| slot.handle == Some(handle));
            number
                .map(|(number, _)| number)
                .map(|number| slots.slots.remove(number))
        };
        found.is_some_and(|slot| slot.end.send(Verdict::Withdrawn).is_ok())
    }

    /// Gives the slot back without an end; false when it had ended.
    pub(crate) fn forget(&self, token: u64) -> bool {
        self.take(token).is_some()
    }

    /// Passes a notice on to the call behind the token; false when it found no room. One whose
    /// call has ended, or does not want it, is let go.
    pub(crate) fn notify(&self, token: u64, notice: Notice) -> bool {
        let slots = self.slots.lock();
        let notices = slots
            .find(token)
            .and_then(|number| slots.slots.get(number)?.notices.as_ref());
        // Under the lock, so that the call can not end in between; sending does not wait.
        let sent = notices.map_or(Ok(()), |notices| notices.try_send(notice));
        !matches!(sent, Err(TrySendError::Full(_)))
    }

    fn take(&self, token: u64) -> Option<Slot> {
        let mut slots = self.slots.lock();
        let number = slots.find(token)?;
        Some(slots.slots.remove(number))
    }

    /// The nodes that calls have been waiting for since `age` or longer.
    pub(crate) fn awaited(&self, age: Duration) -> Vec<NodeId> {
        let slots = self.slots.lock();
        let old = slots
            .slots
            .iter()
            .filter(|(_, slot)| slot.since.elapsed() >= age);
        let mut nodes: Vec<NodeId> = old.map(|(_, slot)| slot.node.clone()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Ends every call that waits for this node.
    pub(crate) fn lose(&self, node: &NodeId, why: &'static str) -> usize {
        let lost: Vec<Slot> = {
            let mut slots = self.slots.lock();
            let numbers: Vec<usize> = slots
                .slots
                .iter()
                .filter(|(_, slot)| slot.node == *node)
                .map(|(number, _)| number)
                .collect();
            numbers
                .into_iter()
                .map(|number| slots.slots.remove(number))
                .collect()
        };
        let count = lost.len();
        for slot in lost {
            // A receiver that is gone has settled on its own.
            let _ = slot.end.send(Verdict::Lost(why));
        }
        count
    }

    /// How many calls wait.
    pub(crate) fn len(&self) -> usize {
        self.slots.lock().slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_settles_once_and_never_its_successor() {
        let pending = Pending::new();
        let node = NodeId::from("n~1");
        let (first, _wait) = pending.insert(node.clone(), None, None);
        assert!(pending.settle(first, Verdict::NotThere));
        let (second, mut wait) = pending.insert(node, None, None);
        assert_ne!(first, second);
        assert!(!pending.settle(first, Verdict::NotThere), "a late answer");
        assert!(wait.try_recv().is_err(), "the slot's new owner still waits");
        assert!(pending.settle(second, Verdict::NotThere));
        assert_eq!(pending.len(), 0);
    }

    #[test]
    fn a_lost_node_ends_its_calls_only() {
        let pending = Pending::new();
        let (_, mut gone) = pending.insert(NodeId::from("gone~1"), None, None);
        let (_, mut alive) = pending.insert(NodeId::from("alive~1"), None, None);
        assert_eq!(pending.awaited(Duration::ZERO).len(), 2);
        assert_eq!(pending.lose(&NodeId::from("gone~1"), "test"), 1);
        assert!(matches!(gone.try_recv(), Ok(Verdict::Lost(_))));
        assert!(alive.try_recv().is_err());
        assert_eq!(pending.len(), 1);
    }
}
