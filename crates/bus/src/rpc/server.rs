//! What a node does with the messages in its inbox, and the answers that it sends.

use std::{
    sync::{Arc, OnceLock, Weak},
    time::{Duration, Instant},
};

use bytes::Bytes;
use switchboard_protocol::id::DeviceKey;

use super::{
    call::Answer,
    handler::{ConnectionOwner, InboundCall, ReplyTo},
    pending::CallEnd,
    progress::Notification,
};
use crate::{
    backend::{DeliveryFailure, Inbox},
    bus::{Bus, Node},
    directory::{CatalogEvent, CatalogSender},
    node::NodeId,
    trace::{ServerSpan, SpanFields},
    transport::{CallMessage, Message, codec},
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
                Err(_) => self.metrics.malformed.inc(),
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
            } => {
                let answer = Answer {
                    outcome,
                    delivered,
                    body,
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
            Message::Takeover { org, device, epoch } => {
                if let Ok(device) = device.parse() {
                    self.take_over(&DeviceKey { org, device }, epoch);
                }
            }
            // The backend handles its own probes; one of another incarnation has no meaning.
            Message::Probe { .. } => {}
            Message::TokenRevoked { token, expires_at } => {
                self.token_keys.revoke(token, expires_at);
            }
            Message::KeysChanged => self.keys_changed.notify_one(),
            Message::PromptsChanged { org } => {
                self.publish_catalog(|| CatalogEvent::Prompts { org });
            }
            Message::ResourcesChanged { org, uri } => {
                self.publish_catalog(|| CatalogEvent::Resources {
                    org,
                    uri: (!uri.is_empty()).then(|| String::from_utf8_lossy(&uri).into()),
                });
            }
            Message::Chunk(chunk) => self.receive_chunk(sender, &chunk),
            Message::CancelTurns(cancellation) => {
                self.record_superseded(&cancellation);
                // This node may have no worker.
                let _ = self.cancellations.send(cancellation);
            }
        }
    }

    fn publish_catalog(&self, event: impl FnOnce() -> CatalogEvent) {
        if let Some(catalog) = &self.catalog {
            // There may be no subscriber at the moment.
            let _ = catalog.send(event());
        }
    }

    fn handle_call(&self, sender: &NodeId, call: CallMessage) {
        let Some(owner) = self.owner() else {
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
            token: call.token,
            wants_notifications: call.wants_notifications,
            span: ServerSpan::begin(call.trace.as_deref(), &fields),
        };
        let timeout = Duration::from_millis(call.timeout_ms).min(MAX_CALL_TIMEOUT);
        let call = InboundCall {
            org: call.org,
            device: call.device,
            epoch: call.epoch,
            id: call.id,
            service: call.service,
            params: call.params,
            input: call.input,
            deadline: Instant::now() + timeout,
            reply,
        };
        self.deliver_call(&*owner, call);
    }

    /// Passes a call to its connection, or answers that the connection is not here.
    pub(crate) fn deliver_call(&self, owner: &dyn ConnectionOwner, call: InboundCall) {
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
        } = answer;
        let message = Message::Answer {
            token,
            outcome,
            delivered,
            body,
        };
        self.outbox.send_or_drop(&to.node, &message);
    }
}

/// The inbox that a backend receives before its node exists.
pub(crate) struct NodeInbox {
    node: OnceLock<Weak<Node>>,
    catalog: Option<CatalogSender>,
}

impl NodeInbox {
    pub(crate) fn new(catalog: Option<CatalogSender>) -> Self {
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
            node.token_keys.mark_incomplete();
            node.keys_changed.notify_one();
        }
        self.catalog_changed(&CatalogEvent::Lagged);
    }

    fn watches_catalog(&self) -> bool {
        self.catalog.is_some()
    }

    fn catalog_changed(&self, event: &CatalogEvent) {
        if let Some(catalog) = &self.catalog {
            // There may be no subscriber at the moment.
            let _ = catalog.send(event.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use switchboard_runtime::shutdown::Shutdown;
    use tokio::sync::mpsc;

    use super::*;
    use crate::{BusConfig, LocalHub, NotificationKind};

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
