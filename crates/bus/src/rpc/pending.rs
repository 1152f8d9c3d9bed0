//! The calls of this node that wait for their answer.

use std::time::Duration;

use parking_lot::Mutex;
use slab::Slab;
use tokio::{
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    time::Instant,
};

use super::{
    call::{Answer, CancelKey},
    progress::Notification,
};
use crate::node::NodeId;

/// How an attempt to call a device ended.
#[derive(Debug)]
pub(crate) enum CallEnd {
    /// The other node answered.
    Answered(Answer),
    /// The connection or its node is gone: the device never saw the call.
    NotConnected,
    /// The call did not leave this node.
    NotSent,
    /// The node or the bus failed after the call was sent.
    Lost(&'static str),
    /// The caller cancelled the call.
    Cancelled,
}

struct PendingCall {
    generation: u32,
    node: NodeId,
    since: Instant,
    end: oneshot::Sender<CallEnd>,
    notifications: Option<mpsc::Sender<Notification>>,
    cancel_key: Option<CancelKey>,
}

struct Calls {
    generation: u32,
    slots: Slab<PendingCall>,
}

impl Calls {
    /// The slot of the call behind the token, if it is still pending.
    fn find(&self, token: u64) -> Option<usize> {
        let slot = usize::try_from(token & u64::from(u32::MAX)).ok()?;
        let call = self.slots.get(slot)?;
        (u64::from(call.generation) == token >> 32).then_some(slot)
    }
}

/// The table of pending calls. A token is a slot and its generation, so a late answer cannot
/// complete another call.
///
/// Invariant: a call is completed once, by the task that removes it.
pub(crate) struct PendingCalls {
    calls: Mutex<Calls>,
}

impl PendingCalls {
    pub(crate) fn new() -> Self {
        Self {
            calls: Mutex::new(Calls {
                generation: 0,
                slots: Slab::new(),
            }),
        }
    }

    /// Adds a call that is sent to `node`.
    pub(crate) fn insert(
        &self,
        node: NodeId,
        notifications: Option<mpsc::Sender<Notification>>,
        cancel_key: Option<CancelKey>,
    ) -> (u64, oneshot::Receiver<CallEnd>) {
        let (end, ended) = oneshot::channel();
        let mut calls = self.calls.lock();
        calls.generation = calls.generation.wrapping_add(1);
        let generation = calls.generation;
        let slot = calls.slots.insert(PendingCall {
            generation,
            node,
            since: Instant::now(),
            end,
            notifications,
            cancel_key,
        });
        let token = u64::from(generation) << 32 | (slot as u64 & u64::from(u32::MAX));
        (token, ended)
    }

    /// Completes the call behind the token; false when it has ended already.
    pub(crate) fn complete(&self, token: u64, end: CallEnd) -> bool {
        match self.take(token) {
            Some(call) => call.end.send(end).is_ok(),
            None => false,
        }
    }

    /// Cancels the call with this key; false when none is pending here. Scans all calls, so that
    /// the many that are never cancelled need no index.
    pub(crate) fn cancel(&self, cancel_key: CancelKey) -> bool {
        let call = {
            let mut calls = self.calls.lock();
            let mut pending = calls.slots.iter();
            let found = pending.find(|(_, call)| call.cancel_key == Some(cancel_key));
            let slot = found.map(|(slot, _)| slot);
            slot.map(|slot| calls.slots.remove(slot))
        };
        call.is_some_and(|call| call.end.send(CallEnd::Cancelled).is_ok())
    }

    /// Removes a call without completing it; false when it had ended.
    pub(crate) fn remove(&self, token: u64) -> bool {
        self.take(token).is_some()
    }

    /// Passes a notification to the call behind the token; false when its channel is full. A
    /// notification for a call that has ended, or wants none, is dropped.
    pub(crate) fn notify(&self, token: u64, notification: Notification) -> bool {
        let calls = self.calls.lock();
        let sender = calls
            .find(token)
            .and_then(|slot| calls.slots.get(slot)?.notifications.as_ref());
        // Sent under the lock, so that the call cannot end in between; sending does not wait.
        let sent = sender.map_or(Ok(()), |sender| sender.try_send(notification));
        !matches!(sent, Err(TrySendError::Full(_)))
    }

    fn take(&self, token: u64) -> Option<PendingCall> {
        let mut calls = self.calls.lock();
        let slot = calls.find(token)?;
        Some(calls.slots.remove(slot))
    }

    /// The nodes of calls that have been pending for `age` or longer.
    pub(crate) fn nodes_pending_for(&self, age: Duration) -> Vec<NodeId> {
        let calls = self.calls.lock();
        let old = calls
            .slots
            .iter()
            .filter(|(_, call)| call.since.elapsed() >= age);
        let mut nodes: Vec<NodeId> = old.map(|(_, call)| call.node.clone()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Ends every call that was sent to this node. Returns how many.
    pub(crate) fn lose(&self, node: &NodeId, reason: &'static str) -> usize {
        let lost: Vec<PendingCall> = {
            let mut calls = self.calls.lock();
            let slots: Vec<usize> = calls
                .slots
                .iter()
                .filter(|(_, call)| call.node == *node)
                .map(|(slot, _)| slot)
                .collect();
            slots
                .into_iter()
                .map(|slot| calls.slots.remove(slot))
                .collect()
        };
        let count = lost.len();
        for call in lost {
            // A call whose receiver is gone needs no end.
            let _ = call.end.send(CallEnd::Lost(reason));
        }
        count
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.lock().slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_answer_does_not_complete_the_next_call() {
        let pending = PendingCalls::new();
        let node = NodeId::from("n~1");
        let (first, _ended) = pending.insert(node.clone(), None, None);
        assert!(pending.complete(first, CallEnd::NotConnected));
        let (second, mut ended) = pending.insert(node, None, None);
        assert_ne!(first, second);
        assert!(
            !pending.complete(first, CallEnd::NotConnected),
            "a late answer"
        );
        assert!(ended.try_recv().is_err(), "the next call is still pending");
        assert!(pending.complete(second, CallEnd::NotConnected));
        assert_eq!(pending.len(), 0);
    }

    #[test]
    fn lost_node_ends_only_its_own_calls() {
        let pending = PendingCalls::new();
        let (_, mut gone) = pending.insert(NodeId::from("gone~1"), None, None);
        let (_, mut alive) = pending.insert(NodeId::from("alive~1"), None, None);
        assert_eq!(pending.nodes_pending_for(Duration::ZERO).len(), 2);
        assert_eq!(pending.lose(&NodeId::from("gone~1"), "test"), 1);
        assert!(matches!(gone.try_recv(), Ok(CallEnd::Lost(_))));
        assert!(alive.try_recv().is_err());
        assert_eq!(pending.len(), 1);
    }
}
