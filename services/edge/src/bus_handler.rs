//! Handles what the bus sends to this node's connections, and ends their calls.
//!
//! Invariant: nothing here awaits or blocks; these functions run on the task that reads the bus.

use std::{
    sync::{Arc, Weak},
    time::Instant,
};

use switchboard_bus::{
    Answer, ConnectionOwner, Epoch, InboundCall, LiveConnection, ReplyTo, SpeakingStyle, Text,
};
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
        edge.connections
            .with(org, device, epoch, |handle| f(&edge, handle));
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
        edge.connections.for_each_of(org, device, |handle| {
            if let Some(call) = handle.cancel_call(call) {
                edge.fail_call(&call, Outcome::Cancelled, "The caller withdrew the call.");
            }
        });
    }

    fn take_over(&self, org: OrgId, device: &str, epoch: Epoch) {
        let Some(edge) = self.0.upgrade() else { return };
        edge.connections.for_each_of(org, device, |handle| {
            if handle.epoch < epoch {
                edge.take_over(handle);
            }
        });
    }

    fn disconnect(&self, org: OrgId, device: &str, epoch: Epoch) {
        self.with_connection(org, device, epoch, |_, handle| {
            handle.evict(Eviction::DisconnectRequested);
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

    fn set_style(
        &self,
        org: OrgId,
        device: &str,
        epoch: Epoch,
        task: [u8; 8],
        style: SpeakingStyle,
    ) {
        self.with_connection(org, device, epoch, |edge, handle| {
            // The text that follows wakes the conversation.
            handle.edit_turns(edge, |turns| turns.set_style(TaskId(task), style));
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

    fn connection_count(&self) -> usize {
        let edge = self.0.upgrade();
        edge.map_or(0, |edge| edge.connections.len())
    }

    fn connections(&self) -> Vec<LiveConnection> {
        let Some(edge) = self.0.upgrade() else {
            return Vec::new();
        };
        let mut connections = Vec::with_capacity(edge.connections.len());
        edge.connections.for_each_entered(|handle| {
            if !handle.is_entered() {
                return;
            }
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
        let epoch = call.epoch;
        let mut pending = Some(call);
        let refused = self.connections.with(org, &device, epoch, |handle| {
            let call = pending.take()?;
            handle.enqueue_call(call, limits, &self.messages).err()
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
            Some((reply, EnqueueError::Exhausted(exhausted))) => {
                let detail = format!("Too much waits for devices: {exhausted}. Try again later.");
                (reply, Answer::ended(Outcome::Overloaded, detail))
            }
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

    /// A newer connection of the device has the directory's entry.
    pub(crate) fn take_over(&self, older: &ConnectionHandle) {
        self.return_calls(&older.take_over());
    }

    /// Returns calls that no device received to their callers, who find its next connection.
    pub(crate) fn return_calls(&self, calls: &[ReplyTo]) {
        for reply in calls {
            self.bus.answer_not_connected(reply);
        }
    }

    /// Ends a call with this answer.
    pub(crate) fn complete_call(&self, to: &ReplyTo, answer: Answer) {
        self.metrics.count_call(answer.outcome);
        self.bus.answer(to, answer);
    }

    /// Ends a call without a result of the device. `detail` is for the caller.
    pub(crate) fn fail_call(&self, call: &UnfinishedCall, outcome: Outcome, detail: &str) {
        let delivered = if call.written {
            Delivered::Unknown
        } else {
            Delivered::No
        };
        let answer = Answer::ended(outcome, detail).with_delivered(delivered);
        self.complete_call(&call.reply, answer);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use switchboard_bus::{Bus, BusConfig, Call, LocalHub, TokenCheck};
    use switchboard_protocol::id::{DeviceKey, TokenId};
    use switchboard_runtime::{budget::Budgets, shutdown::Shutdown};
    use tokio::sync::mpsc;
    use uuid::Uuid;

    use super::*;
    use crate::{config::Config, handle::Identity, metrics::Metrics};

    /// Passes the calls on as they arrive.
    struct Arrivals(mpsc::Sender<InboundCall>);

    impl ConnectionOwner for Arrivals {
        fn deliver(&self, call: InboundCall) -> Result<(), ReplyTo> {
            self.0
                .try_send(call)
                .map_err(|full| full.into_inner().reply)
        }
        fn cancel(&self, _: OrgId, _: &str, _: CallId) {}
        fn take_over(&self, _: OrgId, _: &str, _: Epoch) {}
        fn send_text(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8], _: Text) {}
        fn keep_alive(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8]) {}
        fn finish_reply(&self, _: OrgId, _: &str, _: Epoch, _: [u8; 8], _: bool) {}
        fn connections(&self) -> Vec<LiveConnection> {
            Vec::new()
        }
    }

    #[tokio::test]
    async fn call_that_waits_for_a_registration_releases_its_batch() {
        let (shutdown, registry) = (Shutdown::new(), prometheus::Registry::new());
        let bus = BusConfig::local(&LocalHub::default(), "edge");
        let bus = Bus::start(bus, &registry, &shutdown).unwrap();
        let (arrivals, mut arrived) = mpsc::channel(1);
        bus.attach(Arc::new(Arrivals(arrivals)));
        let key = DeviceKey {
            org: OrgId::from_uuid(Uuid::nil()),
            device: "toy".parse().unwrap(),
        };
        let epoch = bus.claim(&key).await.unwrap().epoch;
        let call = Call {
            device: key.clone(),
            id: CallId::from_uuid(Uuid::now_v7()),
            service: "light".into(),
            params: Bytes::new(),
            input: Bytes::new(),
            registration: None,
            timeout: std::time::Duration::from_secs(10),
            notifications: None,
            cancel_key: None,
        };
        let caller = bus.clone();
        let _answer = shutdown.spawn(async move { caller.call(call).await });
        let mut call = arrived.recv().await.unwrap();
        let batch = Bytes::from(b"{} and many other calls".to_vec());
        call.params = batch.slice(..2);

        let metrics = Metrics::new(&registry).unwrap();
        let budgets = Budgets::new(&registry).unwrap();
        let edge = Edge::new(
            Config::default(),
            bus,
            metrics,
            switchboard_speech::Speech::default(),
            &budgets,
            &shutdown,
        );
        let token = TokenCheck {
            id: TokenId::from_uuid(Uuid::nil()),
            org: key.org,
            key: "0123456789abcdef".parse().unwrap(),
            expires_at: u64::MAX,
        };
        let handle = ConnectionHandle::new(Identity { key, token }, epoch, 0);
        handle.set_entered();
        let handle = Arc::new(handle);
        edge.connections.enter(&handle);
        assert!(edge.enqueue_call(call).is_ok());
        assert_eq!(handle.open_calls(), 1);
        assert!(batch.is_unique());
        shutdown.stop();
    }
}
