//! Handles what the bus sends to this node's connections, and ends their calls.
//!
//! Invariant: nothing here awaits or blocks; these functions run on the task that reads the bus.

use std::{
    sync::{Arc, Weak},
    time::Instant,
};

use switchboard_bus::{Answer, ConnectionOwner, Epoch, InboundCall, LiveConnection, ReplyTo, Text};
use switchboard_protocol::{
    frame::TaskId,
    id::{CallId, OrgId},
    outcome::{Delivered, Outcome},
};

use crate::{
    edge::Edge,
    handle::{CallLimits, ConnectionHandle, EnqueueError, Eviction, UnfinishedCall},
};

/// Connects the bus to the edge. The reference is weak because the edge owns the bus.
pub(crate) struct BusHandler(Weak<Edge>);

impl BusHandler {
    pub(crate) fn new(edge: &Arc<Edge>) -> Self {
        Self(Arc::downgrade(edge))
    }

    /// Calls `f` with exactly this connection of the device, if it is here.
    fn with_connection(
        &self,
        org: OrgId,
        device: &str,
        epoch: Epoch,
        f: impl FnOnce(&Edge, &ConnectionHandle),
    ) {
        let Some(edge) = self.0.upgrade() else { return };
        edge.connections.with(org, device, |handle| {
            if handle.epoch == epoch {
                f(&edge, handle);
            }
        });
    }
}

impl ConnectionOwner for BusHandler {
    fn deliver(&self, call: InboundCall) -> Result<(), ReplyTo> {
        // The edge is dropped after its last connection, shortly before the process exits.
        let Some(edge) = self.0.upgrade() else {
            return Err(call.reply);
        };
        edge.enqueue_call(call)
    }

    fn cancel(&self, org: OrgId, device: &str, call: CallId) {
        let Some(edge) = self.0.upgrade() else { return };
        let cancelled = edge
            .connections
            .with(org, device, |handle| handle.cancel_call(call));
        if let Some(call) = cancelled.flatten() {
            edge.fail_call(&call, Outcome::Cancelled, "The caller withdrew the call.");
        }
    }

    fn take_over(&self, org: OrgId, device: &str, epoch: Epoch) {
        let Some(edge) = self.0.upgrade() else { return };
        edge.connections.with(org, device, |handle| {
            if handle.epoch < epoch {
                handle.evict(Eviction::Takeover);
            }
        });
    }

    fn send_text(&self, org: OrgId, device: &str, epoch: Epoch, task: [u8; 8], text: Text) {
        self.with_connection(org, device, epoch, |edge, handle| {
            let now = Instant::now();
            handle.update_turns(edge, |turns| turns.append_reply(TaskId(task), &text, now));
        });
    }

    fn restart_reply(&self, org: OrgId, device: &str, epoch: Epoch, task: [u8; 8]) {
        self.with_connection(org, device, epoch, |edge, handle| {
            // The text that follows wakes the connection's task.
            handle.edit_turns(edge, |turns| turns.restart_reply(TaskId(task)));
        });
    }

    fn keep_alive(&self, org: OrgId, device: &str, epoch: Epoch, task: [u8; 8]) {
        self.with_connection(org, device, epoch, |edge, handle| {
            let now = Instant::now();
            handle.update_turns(edge, |turns| turns.append_reply(TaskId(task), "", now));
        });
    }

    fn finish_reply(&self, org: OrgId, device: &str, epoch: Epoch, task: [u8; 8], whole: bool) {
        self.with_connection(org, device, epoch, |edge, handle| {
            handle.update_turns(edge, |turns| turns.finish_reply(TaskId(task), whole));
        });
    }

    fn connections(&self) -> Vec<LiveConnection> {
        let Some(edge) = self.0.upgrade() else {
            return Vec::new();
        };
        let mut connections = Vec::with_capacity(edge.connections.len());
        edge.connections.for_each(|handle| {
            let registration = handle.registration();
            connections.push(LiveConnection {
                device: handle.key.clone(),
                epoch: handle.epoch,
                registration: registration
                    .map(|registration| (registration.digest, registration.json.clone())),
            });
        });
        connections
    }
}

impl Edge {
    /// Queues a call on the device's connection, or ends it when a limit forbids that.
    ///
    /// # Errors
    /// Where to reply when the connection that the call names is not here.
    fn enqueue_call(&self, call: InboundCall) -> Result<(), ReplyTo> {
        let limits = CallLimits {
            max_queued: self.config.device_max_calls_waiting,
            max_queued_bytes: self.config.device_max_waiting_bytes,
            max_in_flight: self.config.device_max_calls_in_flight,
        };
        let (org, device) = (call.org, call.device.clone());
        let mut pending = Some(call);
        let refused = self.connections.with(org, &device, |handle| {
            let call = pending.take_if(|call| call.epoch == handle.epoch)?;
            handle.enqueue_call(call, limits).err()
        });
        let (reply, answer) = match refused.flatten() {
            None => return pending.map_or(Ok(()), |call| Err(call.reply)),
            Some((reply, EnqueueError::Closed)) => return Err(reply),
            Some((reply, EnqueueError::Full)) => (
                reply,
                Answer::ended(
                    Outcome::Overloaded,
                    "The device has the maximum number of calls in flight. Try again in a moment.",
                ),
            ),
            Some((reply, EnqueueError::Repeated)) => (
                reply,
                Answer::ended(
                    Outcome::Invalid,
                    "The device already received a call with this id. Use a new id.",
                ),
            ),
        };
        self.complete_call(&reply, answer);
        Ok(())
    }

    /// Ends a call with this answer.
    pub(crate) fn complete_call(&self, to: &ReplyTo, answer: Answer) {
        self.metrics.count_call(answer.outcome);
        self.bus.answer(to, answer);
    }

    /// Ends a call without a result of the device. `detail` is for the caller.
    pub(crate) fn fail_call(&self, call: &UnfinishedCall, outcome: Outcome, detail: &str) {
        let delivered = if call.dispatched {
            Delivered::Unknown
        } else {
            Delivered::No
        };
        let answer = Answer::ended(outcome, detail).with_delivered(delivered);
        self.complete_call(&call.reply, answer);
    }
}
