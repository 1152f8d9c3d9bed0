//! What a node does with what comes to its inbox.
//! Never: blocking; this runs on the task that drains the socket.

use std::{
    sync::{Arc, OnceLock, Weak},
    time::{Duration, Instant},
};

use bytes::Bytes;
use switchboard_protocol::id::DeviceKey;

use crate::{
    backend::{Inbox, Undelivered},
    bus::Node,
    envelope::{self, CallEnvelope, Envelope},
    host::{InboundCall, ReplyTo},
    node::NodeId,
    notice::Notice,
    offers::{Followers, OfferChange},
    pending::Verdict,
    trace::{Handled, Handling},
};

/// No deadline is further away than this, whatever another node says.
const LONGEST_CALL: Duration = Duration::from_secs(300);

impl Node {
    pub(crate) fn receive(&self, pack: Bytes) {
        let Ok(unpacked) = envelope::unpack(pack) else {
            self.metrics.malformed.inc();
            return;
        };
        let sender = unpacked.sender.clone();
        for envelope in unpacked {
            match envelope {
                Ok(envelope) => self.handle(&sender, envelope),
                Err(_) => self.metrics.malformed.inc(),
            }
        }
    }

    fn handle(&self, sender: &NodeId, envelope: Envelope) {
        self.metrics.received.inc();
        match envelope {
            Envelope::Call(call) => self.deliver(sender, call),
            Envelope::Answer {
                token,
                outcome,
                delivered,
                body,
            } => {
                let answer = crate::call::Answer {
                    outcome,
                    delivered,
                    body,
                };
                if !self.pending.settle(token, Verdict::Answered(answer)) {
                    self.metrics.late.inc();
                }
            }
            Envelope::Notice { token, kind, data } => {
                // It may wait for a slow caller, and shall not keep alive the whole pack that it came in.
                let data = Bytes::copy_from_slice(&data);
                self.take_notice(token, Notice { kind, data });
            }
            Envelope::NotHere { token } => {
                self.pending.settle(token, Verdict::NotThere);
            }
            Envelope::Cancel { org, device, call } => {
                if let Some(host) = self.host() {
                    host.cancel(org, &device, call);
                }
            }
            Envelope::Withdraw { handle } => {
                self.pending.withdraw(handle);
            }
            Envelope::Takeover { org, device, epoch } => {
                if let Ok(device) = device.parse() {
                    self.take_over(&DeviceKey { org, device }, epoch);
                }
            }
            // The backend sees its own probes; one of another incarnation means nothing.
            Envelope::Probe { .. } => {}
            Envelope::Revoked { token, expires_at } => self.trust.revoke(token, expires_at),
            Envelope::TrustChanged => self.trust_changed.notify_one(),
            Envelope::Prompts { org } => self.tell_followers(|| OfferChange::Prompts { org }),
            Envelope::Resources { org, uri } => self.tell_followers(|| OfferChange::Resources {
                org,
                uri: (!uri.is_empty()).then(|| String::from_utf8_lossy(&uri).into()),
            }),
            Envelope::Piece(piece) => self.take_piece(sender, &piece),
            Envelope::Stop(stop) => {
                self.note_superseded(&stop);
                // Nobody may be answering anything here.
                let _ = self.stoppers.send(stop);
            }
        }
    }

    fn tell_followers(&self, change: impl FnOnce() -> OfferChange) {
        if let Some(followers) = &self.followers {
            // Nobody may be listening at the moment.
            let _ = followers.send(change());
        }
    }

    fn deliver(&self, sender: &NodeId, call: CallEnvelope) {
        let Some(host) = self.host() else {
            self.post(sender, &Envelope::NotHere { token: call.token });
            return;
        };
        let handled = Handled {
            id: call.id,
            org: call.org,
            device: &call.device,
            service: &call.service,
            node: &self.id,
        };
        let reply = ReplyTo {
            node: sender.clone(),
            token: call.token,
            wants_notices: call.wants_notices,
            handling: Handling::begin(call.trace.as_deref(), &handled),
        };
        let left = Duration::from_millis(call.left_ms);
        let call = InboundCall {
            org: call.org,
            device: call.device,
            epoch: call.epoch,
            id: call.id,
            service: call.service,
            params: call.params,
            input: call.input,
            deadline: Instant::now() + left.min(LONGEST_CALL),
            reply,
        };
        self.deliver_to(&*host, call);
    }
}

/// The inbox that a backend is given before the node exists.
pub(crate) struct Mailbox {
    node: OnceLock<Weak<Node>>,
    followers: Option<Followers>,
}

impl Mailbox {
    pub(crate) fn new(followers: Option<Followers>) -> Self {
        Self {
            node: OnceLock::new(),
            followers,
        }
    }

    pub(crate) fn open(&self, node: &Arc<Node>) {
        // Opened once, right after the node is made.
        let _ = self.node.set(Arc::downgrade(node));
    }

    fn node(&self) -> Option<Arc<Node>> {
        self.node.get()?.upgrade()
    }
}

impl Inbox for Mailbox {
    fn receive(&self, pack: Bytes) {
        if let Some(node) = self.node() {
            node.receive(pack);
        }
    }

    fn undelivered(&self, to: &NodeId, pack: Bytes, why: Undelivered) {
        if let Some(node) = self.node() {
            node.courier.undelivered(to, pack, why);
        }
    }

    fn healed(&self) {
        if let Some(node) = self.node() {
            node.healed.notify_waiters();
            node.trust_changed.notify_one();
            node.reenter.notify_one();
            // Before the first connection nothing was read that could have changed since.
            if node.backend.condition().generation > 1 {
                self.offer_changed(&OfferChange::Missed);
            }
        }
    }

    fn missed(&self) {
        if let Some(node) = self.node() {
            node.trust_changed.notify_one();
        }
        self.offer_changed(&OfferChange::Missed);
    }

    fn follows(&self) -> bool {
        self.followers.is_some()
    }

    fn offer_changed(&self, event: &OfferChange) {
        if let Some(followers) = &self.followers {
            // The error says that nobody listens now, which is no loss.
            let _ = followers.send(event.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use switchboard_runtime::shutdown::Shutdown;
    use tokio::sync::mpsc;

    use super::*;
    use crate::{Bus, BusConfig, LocalHub, NoticeKind};

    #[tokio::test]
    async fn a_notice_that_waits_does_not_keep_its_pack() {
        let config = BusConfig::local(&LocalHub::default(), "node");
        let bus = Bus::start(config, &Registry::new(), &Shutdown::new()).unwrap();
        let (notices, mut heard) = mpsc::channel(2);
        let sender = NodeId::from("edge~1");
        let (token, _wait) = bus.0.pending.insert(sender.clone(), Some(notices), None);
        let mut pack = Vec::new();
        envelope::begin_pack(&mut pack, &sender);
        for data in ["{}", "{\"message\":\"another\"}"] {
            let (kind, data) = (NoticeKind::Log, data.into());
            envelope::put(&mut pack, &Envelope::Notice { token, kind, data });
        }
        let pack = Bytes::from(pack);
        bus.0.receive(pack.clone());
        assert!(pack.is_unique());
        assert_eq!(heard.recv().await.unwrap().data, "{}");
    }
}
