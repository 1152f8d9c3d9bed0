//! One node's bus: what edges, gateways, chat and control ask of it.
//! Never: a wait without an end, or a lock held while waiting.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use quick_cache::sync::Cache;
use switchboard_protocol::id::DeviceKey;
use switchboard_runtime::shutdown::Shutdown;
use tokio::sync::Notify;

use crate::{
    backend::{Backend, Inbox, Presence, Release},
    backlog::Backlog,
    call::Answer,
    courier::Courier,
    envelope::{self, Envelope},
    error::BusError,
    fact::{Fact, FactId},
    host::{Host, InboundCall, ReplyTo},
    inbound::Mailbox,
    local,
    metrics::{self, Metrics},
    node::{Epoch, NodeId},
    offers::{Followers, followers},
    pending::{Pending, Verdict},
    redis,
    reentry::Unentered,
    settings::{self, BusConfig},
    shelf::Shelf,
    trust::Trust,
    turns::{Begun, Stoppers, Strays, Superseded, stoppers},
    upkeep,
};

/// Directory entries that a node remembers. Protects memory; an entry is about 200 bytes.
const REMEMBERED_DEVICES: usize = 200_000;
/// Takeovers that a node remembers, for the moment between a claim and its connection.
const REMEMBERED_TAKEOVERS: usize = 4096;
/// A node that has been deaf for this long takes no new work.
const UNREADY_AFTER: Duration = Duration::from_secs(5);

/// A node's end of the bus; cheap to clone.
#[derive(Clone)]
pub struct Bus(pub(crate) Arc<Node>);

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) courier: Arc<Courier>,
    pub(crate) pending: Arc<Pending>,
    pub(crate) host: ArcSwapOption<Arc<dyn Host>>,
    pub(crate) remembered: Cache<DeviceKey, Presence>,
    pub(crate) trust: Trust,
    pub(crate) shelf: Shelf,
    pub(crate) facts: Backlog<Fact>,
    pub(crate) releases: Backlog<Release>,
    pub(crate) metrics: Metrics,
    pub(crate) healed: Notify,
    /// Takeovers of late: one may come before its connection is taken in here.
    pub(crate) taken_over: Cache<DeviceKey, Epoch>,
    pub(crate) reenter: Notify,
    pub(crate) reconcile: Notify,
    pub(crate) unentered: Unentered,
    pub(crate) trust_changed: Notify,
    /// Only a node that follows registrations has this.
    pub(crate) followers: Option<Followers>,
    /// Turns of the devices that this node holds.
    pub(crate) begun: Begun,
    pub(crate) stoppers: Stoppers,
    /// Takers that were told that nobody waits for what they say.
    pub(crate) strays: Strays,
    /// Turns that are not to be answered when they are taken over.
    pub(crate) superseded: Superseded,
}

/// Whether a node may take new work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// False when the node has been deaf for 5 s, or was never connected.
    pub ready: bool,
    /// One sentence for people.
    pub detail: String,
}

impl Bus {
    /// Starts a node. Returns at once: the connection is built, verified and rebuilt in the
    /// background until `shutdown` stops.
    ///
    /// # Errors
    /// [`BusError::Address`] when the Redis URL is not one, [`BusError::Metrics`] when the
    /// registry has a bus's metrics already.
    pub fn start(
        config: BusConfig,
        registry: &prometheus::Registry,
        shutdown: &Shutdown,
    ) -> Result<Self, BusError> {
        let taken = |error| BusError::Metrics(Arc::new(error));
        let metrics = Metrics::new(registry).map_err(taken)?;
        let id = NodeId::incarnate(&config.node_name);
        let followers = config.follow_offers.then(followers);
        let inbox = Arc::new(Mailbox::new(followers.clone()));
        let backend: Arc<dyn Backend> = match config.backend {
            settings::Backend::Local(hub) => {
                // Inside one process nobody can be unheard.
                metrics.up.set(1);
                local::join(&hub, id.clone(), Arc::clone(&inbox) as Arc<dyn Inbox>)
            }
            settings::Backend::Redis { url } => {
                let keys = redis::Keys::new(&config.key_prefix);
                let inbox = Arc::clone(&inbox) as Arc<dyn Inbox>;
                redis::connect(&url, keys, id.clone(), inbox, metrics.clone(), shutdown)?
            }
        };
        let pending = Arc::new(Pending::new());
        let courier = Courier::new(
            id.clone(),
            Arc::clone(&backend),
            Arc::clone(&pending),
            metrics.clone(),
            shutdown.clone(),
        );
        let node = Arc::new(Node {
            id,
            backend,
            courier: Arc::new(courier),
            pending,
            host: ArcSwapOption::empty(),
            remembered: Cache::new(REMEMBERED_DEVICES),
            trust: Trust::new(),
            shelf: Shelf::default(),
            facts: Backlog::new(),
            releases: Backlog::new(),
            metrics,
            healed: Notify::new(),
            taken_over: Cache::new(REMEMBERED_TAKEOVERS),
            reenter: Notify::new(),
            reconcile: Notify::new(),
            unentered: Unentered::default(),
            trust_changed: Notify::new(),
            followers,
            begun: Begun::default(),
            stoppers: stoppers(),
            strays: Strays::default(),
            superseded: Superseded::default(),
        });
        metrics::watch(&node, registry).map_err(taken)?;
        inbox.open(&node);
        upkeep::start(&node, shutdown);
        Ok(Self(node))
    }

    /// This node.
    #[must_use]
    pub fn node(&self) -> &NodeId {
        &self.0.id
    }

    /// Whether this node may take new work.
    #[must_use]
    pub fn health(&self) -> Health {
        let condition = self.0.backend.condition();
        match condition.deaf_for {
            None => Health {
                ready: true,
                detail: "connected".into(),
            },
            Some(deaf) if condition.generation > 0 && deaf < UNREADY_AFTER => Health {
                ready: true,
                detail: "reconnecting".into(),
            },
            Some(deaf) => Health {
                ready: false,
                detail: format!("not connected for {} s", deaf.as_secs()),
            },
        }
    }

    /// Waits until this node's inbox is verified to be heard.
    ///
    /// # Errors
    /// [`BusError::Timeout`] when that takes longer.
    pub async fn ready(&self, within: Duration) -> Result<(), BusError> {
        let connected = async {
            loop {
                let healed = self.0.healed.notified();
                if self.0.backend.condition().deaf_for.is_none() {
                    return;
                }
                healed.await;
            }
        };
        tokio::time::timeout(within, connected)
            .await
            .map_err(|_| BusError::Timeout(within))
    }

    /// How many calls of this node wait for their end.
    #[must_use]
    pub fn calls_waiting(&self) -> usize {
        self.0.pending.len()
    }

    /// Makes this node one that holds devices.
    pub fn attach(&self, host: Arc<dyn Host>) {
        self.0.host.store(Some(Arc::new(host)));
    }

    /// Ends an inbound call. Does not wait.
    pub fn answer(&self, to: &ReplyTo, answer: Answer) {
        to.handling.end(answer.outcome);
        self.0.reply(to, answer);
    }

    /// Says that the connection meant is not here: the device never saw the call.
    pub fn not_here(&self, to: &ReplyTo) {
        self.0.not_here(to);
    }

    /// The next facts for one of several consumers that share them; empty after `wait`. Facts
    /// that a consumer took and did not acknowledge come again.
    ///
    /// # Errors
    /// When the bus does not answer.
    pub async fn facts(
        &self,
        consumer: &str,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<(FactId, Fact)>, BusError> {
        self.0.backend.facts(consumer, max, wait).await
    }

    /// Strikes facts out that are safe elsewhere.
    ///
    /// # Errors
    /// When the bus does not answer; they may come again.
    pub async fn acknowledge(&self, ids: &[FactId]) -> Result<(), BusError> {
        self.0.backend.acknowledge(ids).await
    }
}

impl Node {
    pub(crate) fn host(&self) -> Option<Arc<dyn Host>> {
        self.host
            .load()
            .as_ref()
            .map(|host| Arc::clone(host.as_ref()))
    }

    /// Sends without waiting. What can not even be queued is dropped and counted: its reader
    /// has a deadline.
    pub(crate) fn post(&self, to: &NodeId, envelope: &Envelope) {
        if self.courier.send(to, envelope).is_err() {
            self.metrics.dropped.inc();
        }
    }

    /// Has a host take a call that came for one of its devices.
    pub(crate) fn deliver_to(&self, host: &dyn Host, call: InboundCall) {
        if let Err(reply) = host.deliver(call) {
            self.not_here(&reply);
        }
    }

    fn not_here(&self, to: &ReplyTo) {
        to.handling.note("not here");
        if to.node == self.id {
            self.pending.settle(to.token, Verdict::NotThere);
        } else {
            self.post(&to.node, &Envelope::NotHere { token: to.token });
        }
    }

    pub(crate) fn reply(&self, to: &ReplyTo, answer: Answer) {
        if to.node == self.id {
            if !self.pending.settle(to.token, Verdict::Answered(answer)) {
                self.metrics.late.inc();
            }
            return;
        }
        let Answer {
            outcome,
            delivered,
            body,
        } = answer;
        self.post(
            &to.node,
            &Envelope::Answer {
                token: to.token,
                outcome,
                delivered,
                body,
            },
        );
    }

    pub(crate) fn pack(&self, envelope: &Envelope) -> Bytes {
        let mut pack = Vec::new();
        envelope::begin_pack(&mut pack, &self.id);
        envelope::put(&mut pack, envelope);
        pack.into()
    }
}
