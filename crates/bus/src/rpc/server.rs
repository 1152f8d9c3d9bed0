//! What a node does with the messages in its inbox, and the answers that it sends.

use std::{
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use bytes::Bytes;
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    outcome::{Delivered, Outcome},
};
use tokio::time::Instant;

use super::{
    call::Answer,
    handler::{ConnectionOwner, InboundCall, ReplyTo},
    pending::CallEnd,
    progress::Notification,
};
use crate::{
    backend::{DeliveryFailure, Inbox},
    bus::{Bus, Node},
    directory::{CatalogChannels, CatalogEvent},
    node::NodeId,
    trace::{ServerSpan, SpanFields},
    transport::{CallMessage, ConnectionMessage, DecodeError, Message, codec},
};

/// Bounds the deadline that another node requests.
const MAX_CALL_TIMEOUT: Duration = Duration::from_secs(300);

impl Bus {
    /// Answers an inbound call. Does not wait.
    pub fn answer(&self, to: &ReplyTo, answer: Answer) {
        to.span.end(answer.outcome);
        self.0.send_answer(to, answer);
    }

    /// Answers an inbound call whose connection is not here: the device never saw the call.
    pub fn answer_not_connected(&self, to: &ReplyTo) {
        self.0.send_not_connected(to);
    }
}

/// Invariant: nothing here blocks; it runs on the task that reads the socket.
impl Node {
    pub(crate) fn receive(&self, batch: Bytes) {
        let Ok(messages) = codec::decode_batch(batch) else {
            self.metrics.malformed.inc();
            return;
        };
        let sender = messages.sender.clone();
        for message in messages {
            match message {
                Ok(message) => self.handle(&sender, message),
                Err(DecodeError::UnknownKind) => self.metrics.unknown.inc(),
                Err(DecodeError::Malformed(_)) => self.metrics.malformed.inc(),
            }
        }
    }

    fn handle(&self, sender: &NodeId, message: Message) {
        self.metrics.received.inc();
        match message {
            Message::Call(call) => self.handle_call(sender, call),
            Message::Answer {
                token,
                outcome,
                delivered,
                body,
                result_valid,
            } => {
                let answer = Answer {
                    outcome,
                    delivered,
                    body,
                    result_valid,
                };
                if !self.pending.complete(token, CallEnd::Answered(answer)) {
                    self.metrics.late.inc();
                }
            }
            Message::Notification { token, kind, data } => {
                // Copied, because it may wait for a slow caller, and would keep the batch alive.
                let data = Bytes::copy_from_slice(&data);
                self.deliver_notification(token, Notification { kind, data });
            }
            Message::NotConnected { token } => {
                self.pending.complete(token, CallEnd::NotConnected);
            }
            Message::Cancel { org, device, call } => {
                if let Some(owner) = self.owner() {
                    owner.cancel(org, &device, call);
                }
            }
            Message::CancelByKey { cancel_key } => {
                self.pending.cancel(cancel_key);
            }
            Message::Takeover(ConnectionMessage { org, device, epoch }) => {
                if let Ok(device) = device.parse() {
                    self.take_over(&DeviceKey { org, device }, epoch);
                }
            }
            Message::Disconnect(ConnectionMessage { org, device, epoch }) => {
                if let Some(owner) = self.owner() {
                    owner.disconnect(org, &device, epoch);
                }
            }
            // The backend handles its own probes; one of another incarnation has no meaning.
            Message::Probe { nonce } => self.lease.probe_received(nonce),
            Message::TokenRevoked { token, expires_at } => {
                self.token_keys.revoke(token, expires_at);
            }
            Message::KeysChanged => self.keys_changed.notify_one(),
            Message::PromptsChanged { org } => self.prompts_changed(org),
            Message::ResourcesChanged { org, uri } => {
                self.publish_catalog(|| CatalogEvent::Resources {
                    org,
                    uri: (!uri.is_empty()).then(|| String::from_utf8_lossy(&uri).into()),
                });
            }
            Message::Watched { org, began_ms } => self.org_watched(org, began_ms),
            Message::ApprovalsChanged { org } => {
                self.approvals.advance(Some(org));
                self.publish_catalog(|| CatalogEvent::Approvals { org });
            }
            Message::Chunk(chunk) => self.receive_chunk(sender, &chunk),
            Message::CancelTurns(cancellation) => {
                self.record_superseded(&cancellation);
                // This node may have no worker.
                let _ = self.cancellations.send(cancellation);
            }
        }
    }

    fn prompts_changed(&self, org: Option<OrgId>) {
        self.npcs.advance(org);
        self.publish_catalog(|| CatalogEvent::Prompts { org });
    }

    fn publish_catalog(&self, event: impl FnOnce() -> CatalogEvent) {
        if let Some(catalog) = &self.catalog {
            catalog.send(&event());
        }
    }

    fn handle_call(&self, sender: &NodeId, call: CallMessage) {
        // While the shared clock is unknown, the call may have waited for longer than its caller.
        let now = Instant::now();
        let left = call.deadline_ms.map(|at| self.lease.until(at, now));
        let may_be_late = self.lease.is_over(now) || left == Some(None);
        let owner = self.owner().filter(|_| !may_be_late);
        let Some(owner) = owner else {
            let token = call.token;
            self.outbox
                .send_or_drop(sender, &Message::NotConnected { token });
            return;
        };
        let fields = SpanFields {
            id: call.id,
            org: call.org,
            device: &call.device,
            service: &call.service,
            node: &self.id,
        };
        let reply = ReplyTo {
            node: sender.clone(),
            org: call.org,
            token: call.token,
            wants_notifications: call.wants_notifications,
            span: ServerSpan::begin(call.trace.as_deref(), &fields),
        };
        let timeout = Duration::from_millis(call.timeout_ms).min(MAX_CALL_TIMEOUT);
        let left = left.flatten().map_or(timeout, |left| left.min(timeout));
        let call = InboundCall {
            org: call.org,
            device: call.device,
            epoch: call.epoch,
            id: call.id,
            service: call.service,
            params: call.params,
            input: call.input,
            registration: call.registration,
            deadline: now.into_std() + left,
            reply,
        };
        self.deliver_call(&*owner, call, now);
    }

    /// Passes a call to its connection, or answers that the connection is not here, or that the deadline
    /// has passed: this process may have been suspended since the call began.
    pub(crate) fn deliver_call(
        &self,
        owner: &dyn ConnectionOwner,
        call: InboundCall,
        now: Instant,
    ) {
        if call.deadline <= now.into_std() {
            let detail = "the call reached the device's node after its deadline";
            let answer = Answer::ended(Outcome::TimedOut, detail).with_delivered(Delivered::No);
            call.reply.span.end(answer.outcome);
            return self.send_answer(&call.reply, answer);
        }
        if let Err(reply) = owner.deliver(call) {
            self.send_not_connected(&reply);
        }
    }

    fn send_not_connected(&self, to: &ReplyTo) {
        to.span.note("not here");
        let token = to.token;
        if to.node == self.id {
            self.pending.complete(token, CallEnd::NotConnected);
        } else {
            self.outbox
                .send_or_drop(&to.node, &Message::NotConnected { token });
        }
    }

    fn send_answer(&self, to: &ReplyTo, answer: Answer) {
        let token = to.token;
        if to.node == self.id {
            if !self.pending.complete(token, CallEnd::Answered(answer)) {
                self.metrics.late.inc();
            }
            return;
        }
        let Answer {
            outcome,
            delivered,
            body,
            result_valid,
        } = answer;
        let message = Message::Answer {
            token,
            outcome,
            delivered,
            body,
            result_valid,
        };
        self.outbox.send_of_or_drop(to.org, &to.node, &message);
    }
}

/// The inbox that a backend receives before its node exists.
pub(crate) struct NodeInbox {
    node: OnceLock<Weak<Node>>,
    catalog: Option<Arc<CatalogChannels>>,
}

impl NodeInbox {
    pub(crate) fn new(catalog: Option<Arc<CatalogChannels>>) -> Self {
        Self {
            node: OnceLock::new(),
            catalog,
        }
    }

    pub(crate) fn open(&self, node: &Arc<Node>) {
        // Opened once, when the node is created.
        let _ = self.node.set(Arc::downgrade(node));
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.node.get()?.upgrade()
    }
}

impl Inbox for NodeInbox {
    fn receive(&self, batch: Bytes) {
        if let Some(node) = self.node() {
            node.receive(batch);
        }
    }

    fn undelivered(&self, to: &NodeId, batch: Bytes, reason: DeliveryFailure) {
        if let Some(node) = self.node() {
            node.outbox.handle_undelivered(to, batch, reason);
        }
    }

    fn reconnected(&self) {
        if let Some(node) = self.node() {
            node.approvals.advance(None);
            node.npcs.advance(None);
            node.lease.forget_clock();
            node.reconnected.notify_waiters();
            node.token_keys.mark_incomplete();
            node.keys_changed.notify_one();
            node.resync.notify_one();
            // Before the first connection nothing was read that could be outdated.
            if node.backend.status().generation > 1 {
                self.catalog_changed(&CatalogEvent::Lagged);
            }
        }
    }

    fn lagged(&self) {
        if let Some(node) = self.node() {
            node.approvals.advance(None);
            node.npcs.advance(None);
            node.token_keys.mark_incomplete();
            node.keys_changed.notify_one();
        }
        self.catalog_changed(&CatalogEvent::Lagged);
    }

    fn watches_catalog(&self) -> bool {
        self.catalog.is_some()
    }

    fn catalog_changed(&self, event: &CatalogEvent) {
        if let CatalogEvent::Services { device, .. } = event
            && let Some(node) = self.node()
        {
            // It may have moved to another node after it had left this one in order.
            node.presence_cache.remove(device);
        }
        if let Some(catalog) = &self.catalog {
            catalog.send(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Mutex;
    use prometheus::Registry;
    use switchboard_protocol::id::CallId;
    use switchboard_runtime::shutdown::Shutdown;
    use tokio::{sync::mpsc, task::yield_now};
    use uuid::Uuid;

    use super::*;
    use crate::{
        BusConfig, Epoch, LiveConnection, LocalHub, NotificationKind, Text, backend::LEASE, memory,
    };

    /// An inbox in a socket that is not read while it is held.
    struct HeldInbox {
        inbox: Arc<dyn Inbox>,
        held: Mutex<Option<Vec<Bytes>>>,
    }

    impl HeldInbox {
        fn release(&self) {
            let held = self.held.lock().take();
            for batch in held.unwrap_or_default() {
                self.inbox.receive(batch);
            }
        }
    }

    impl Inbox for HeldInbox {
        fn receive(&self, batch: Bytes) {
            match &mut *self.held.lock() {
                Some(held) => held.push(batch),
                None => self.inbox.receive(batch),
            }
        }

        fn undelivered(&self, to: &NodeId, batch: Bytes, reason: DeliveryFailure) {
            self.inbox.undelivered(to, batch, reason);
        }

        fn reconnected(&self) {
            self.inbox.reconnected();
        }

        fn lagged(&self) {
            self.inbox.lagged();
        }

        fn watches_catalog(&self) -> bool {
            self.inbox.watches_catalog()
        }

        fn catalog_changed(&self, event: &CatalogEvent) {
            self.inbox.catalog_changed(event);
        }
    }

    /// Counts the calls that are delivered.
    #[derive(Default)]
    struct CallCounter(AtomicUsize);

    impl ConnectionOwner for CallCounter {
        fn deliver(&self, _: InboundCall) -> Result<(), ReplyTo> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
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

    fn call_batch(deadline_ms: Option<u64>) -> Bytes {
        let call = Message::Call(CallMessage {
            token: 1,
            id: CallId::from_uuid(Uuid::nil()),
            org: OrgId::from_uuid(Uuid::nil()),
            epoch: Epoch(1),
            timeout_ms: 60_000,
            deadline_ms,
            registration: None,
            wants_notifications: false,
            trace: None,
            device: "toy-1".into(),
            service: "echo".into(),
            input: Bytes::new(),
            params: Bytes::from_static(b"{}"),
        });
        codec::encode_batch(&NodeId::from("gateway~1"), &call)
    }

    #[tokio::test(start_paused = true)]
    async fn call_from_before_the_end_of_the_lease_is_not_delivered_after_its_renewal() {
        let (hub, mut inbox) = (LocalHub::default(), None);
        let connect = |id, node: Arc<dyn Inbox>, _| {
            let held = Mutex::default();
            let held = inbox.insert(Arc::new(HeldInbox { inbox: node, held }));
            Ok(memory::join(&hub, id, Arc::clone(held) as _))
        };
        let config = BusConfig::local(&hub, "edge");
        let bus = Bus::start_over(config, &Registry::new(), &Shutdown::new(), connect).unwrap();
        let (inbox, owner) = (inbox.unwrap(), Arc::new(CallCounter::default()));
        bus.attach(Arc::clone(&owner) as _);
        let lease = &bus.0.lease;
        while lease.shared_ms(Instant::now()).is_none() {
            yield_now().await;
        }
        *inbox.held.lock() = Some(Vec::new());
        inbox.receive(call_batch(None));
        // The process was suspended. It renews its lease before it reads its inbox.
        lease.forget_clock();
        tokio::time::advance(LEASE + Duration::from_secs(1)).await;
        while lease.shared_ms(Instant::now()).is_none() {
            yield_now().await;
        }
        inbox.release();
        assert_eq!(owner.0.load(Ordering::Relaxed), 0);
        inbox.receive(call_batch(None));
        assert_eq!(owner.0.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn call_with_a_deadline_is_not_delivered_while_the_clock_is_unknown() {
        let config = BusConfig::local(&LocalHub::default(), "edge");
        let bus = Bus::start(config, &Registry::new(), &Shutdown::new()).unwrap();
        let owner = Arc::new(CallCounter::default());
        bus.attach(Arc::clone(&owner) as _);
        let lease = &bus.0.lease;
        lease.clock_known().await;
        let deadline = lease.shared_ms(Instant::now() + Duration::from_secs(60));
        lease.forget_clock();
        bus.0.receive(call_batch(deadline));
        assert_eq!(owner.0.load(Ordering::Relaxed), 0);
        lease.clock_known().await;
        bus.0.receive(call_batch(deadline));
        assert_eq!(owner.0.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn unknown_message_is_skipped_and_counted_and_its_batch_is_handled() {
        let config = BusConfig::local(&LocalHub::default(), "gateway");
        let bus = Bus::start(config, &Registry::new(), &Shutdown::new()).unwrap();
        let sender = NodeId::from("edge~1");
        let insert = || bus.0.pending.insert(sender.clone(), None, None);
        let ((first, first_end), (last, last_end)) = (insert(), insert());
        let mut batch = Vec::new();
        codec::begin_batch(&mut batch, &sender);
        codec::encode(&mut batch, &Message::NotConnected { token: first });
        // A length, and a kind of a later release.
        batch.extend_from_slice(&[2, 0, 0, 0, u8::MAX, 0]);
        codec::encode(&mut batch, &Message::NotConnected { token: last });
        bus.0.receive(batch.into());
        for end in [first_end, last_end] {
            let end = end.await.unwrap();
            assert!(matches!(end, CallEnd::NotConnected), "{end:?}");
        }
        let metrics = &bus.0.metrics;
        assert_eq!((metrics.unknown.get(), metrics.malformed.get()), (1, 0));
    }

    #[tokio::test]
    async fn call_of_the_same_node_is_not_delivered_after_its_deadline() {
        let config = BusConfig::local(&LocalHub::default(), "node");
        let bus = Bus::start(config, &Registry::new(), &Shutdown::new()).unwrap();
        let (node, owner) = (&bus.0, CallCounter::default());
        for (left, delivered) in [(Duration::ZERO, 0), (Duration::from_secs(60), 1)] {
            let (token, mut ended) = node.pending.insert(node.id.clone(), None, None);
            let fields = SpanFields {
                id: CallId::from_uuid(Uuid::nil()),
                org: OrgId::from_uuid(Uuid::nil()),
                device: "toy-1",
                service: "echo",
                node: &node.id,
            };
            let call = InboundCall {
                org: fields.org,
                device: "toy-1".into(),
                epoch: Epoch(1),
                id: fields.id,
                service: "echo".into(),
                params: Bytes::new(),
                input: Bytes::new(),
                registration: None,
                deadline: Instant::now().into_std() + left,
                reply: ReplyTo {
                    node: node.id.clone(),
                    org: fields.org,
                    token,
                    wants_notifications: false,
                    span: ServerSpan::begin(None, &fields),
                },
            };
            node.deliver_call(&owner, call, Instant::now());
            assert_eq!(owner.0.load(Ordering::Relaxed), delivered);
            let answer = ended.try_recv().ok().and_then(|end| match end {
                CallEnd::Answered(answer) => Some((answer.outcome, answer.delivered)),
                _ => None,
            });
            let expected = (delivered == 0).then_some((Outcome::TimedOut, Delivered::No));
            assert_eq!(answer, expected);
        }
    }

    #[tokio::test]
    async fn waiting_notification_releases_its_batch() {
        let config = BusConfig::local(&LocalHub::default(), "node");
        let bus = Bus::start(config, &Registry::new(), &Shutdown::new()).unwrap();
        let (notifications, mut received) = mpsc::channel(2);
        let sender = NodeId::from("edge~1");
        let pending = &bus.0.pending;
        let (token, _ended) = pending.insert(sender.clone(), Some(notifications), None);
        let mut batch = Vec::new();
        codec::begin_batch(&mut batch, &sender);
        for data in ["{}", "{\"message\":\"another\"}"] {
            let (kind, data) = (NotificationKind::Log, data.into());
            codec::encode(&mut batch, &Message::Notification { token, kind, data });
        }
        let batch = Bytes::from(batch);
        bus.0.receive(batch.clone());
        assert!(batch.is_unique());
        assert_eq!(received.recv().await.unwrap().data, "{}");
    }
}
