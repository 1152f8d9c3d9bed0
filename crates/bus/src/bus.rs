//! One node's bus: what edges, gateways, chat and control ask of it.
//! Never: a wait without an end, or a lock held while waiting.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use quick_cache::sync::Cache;
use switchboard_protocol::{
    access::{Claims, VerifyingKey},
    id::{DeviceId, DeviceKey, OrgId, TokenId},
    schema::Digest,
};
use switchboard_runtime::shutdown::Shutdown;
use tokio::sync::{Notify, broadcast};

use crate::{
    backend::{Backend, Entry, Inbox, Presence, Release},
    backlog::Backlog,
    call::Answer,
    courier::Courier,
    envelope::{self, Envelope},
    error::BusError,
    fact::{Fact, FactId, LeftReason},
    host::{Host, ReplyTo},
    inbound::Mailbox,
    local,
    metrics::Metrics,
    node::{Epoch, NodeId},
    pending::{Pending, Verdict},
    redis,
    settings::{self, BusConfig},
    shelf::Shelf,
    trust::{Trust, TrustError, unix_now_ms},
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
    pub(crate) trust_changed: Notify,
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
        metrics: &prometheus::Registry,
        shutdown: &Shutdown,
    ) -> Result<Self, BusError> {
        let metrics = Metrics::new(metrics).map_err(|error| BusError::Metrics(Arc::new(error)))?;
        let id = NodeId::incarnate(&config.node_name);
        let inbox = Arc::new(Mailbox::default());
        let backend: Arc<dyn Backend> = match config.backend {
            settings::Backend::Local(hub) => {
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
            trust_changed: Notify::new(),
        });
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

    /// The live connection of a device, if it has one.
    ///
    /// # Errors
    /// When the directory does not answer.
    pub async fn find(&self, device: &DeviceKey) -> Result<Option<Presence>, BusError> {
        let found = self
            .0
            .backend
            .find(device.org, std::slice::from_ref(&device.device))
            .await?;
        Ok(found.into_iter().next().flatten())
    }

    /// The live connections of several devices of an organisation, in the order asked.
    ///
    /// # Errors
    /// When the directory does not answer.
    pub async fn find_many(
        &self,
        org: OrgId,
        devices: &[DeviceId],
    ) -> Result<Vec<Option<Presence>>, BusError> {
        self.0.backend.find(org, devices).await
    }

    /// An organisation's live devices in byte order of their ids, strictly after `after`.
    ///
    /// # Errors
    /// When the directory does not answer.
    pub async fn list(
        &self,
        org: OrgId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(DeviceId, Presence)>, BusError> {
        self.0.backend.list(org, after, limit).await
    }

    /// The services object that a live device registered, as it was sent.
    ///
    /// # Errors
    /// When the directory does not answer.
    pub async fn services(&self, presence: &Presence) -> Result<Option<Bytes>, BusError> {
        self.0.backend.services(presence).await
    }

    /// Makes this node one that holds devices.
    pub fn attach(&self, host: Arc<dyn Host>) {
        self.0.host.store(Some(Arc::new(host)));
    }

    /// Enters a new connection of a device; the newest wins, and the former holder is told.
    ///
    /// # Errors
    /// When the directory does not answer: nobody could find the device.
    pub async fn claim(&self, device: &DeviceKey) -> Result<Epoch, BusError> {
        let claimed = self.0.backend.claim(device).await.inspect_err(|_| {
            // It may have been executed all the same: an entry without a connection.
            self.0.reconcile.notify_one();
        })?;
        let epoch = claimed.epoch;
        if let Some(former) = claimed.former {
            self.0.announce_takeover(device, epoch, &former.node);
        }
        self.0.tell(Fact::Connected {
            device: device.clone(),
            epoch,
            at_ms: unix_now_ms(),
        });
        Ok(epoch)
    }

    /// Whether a newer connection of the device was announced to this node lately: then the one
    /// with this epoch, just taken in, must close.
    #[must_use]
    pub fn is_superseded(&self, device: &DeviceKey, epoch: Epoch) -> bool {
        let newer = self.0.taken_over.get(device);
        newer.is_some_and(|newer| newer > epoch)
    }

    /// Enters what a device registered, in place of what it registered before (`former`).
    ///
    /// # Errors
    /// When the directory does not answer; the registration is entered when it does again.
    pub async fn announce(
        &self,
        device: &DeviceKey,
        epoch: Epoch,
        former: Option<Digest>,
        (digest, json): (Digest, &Bytes),
    ) -> Result<(), BusError> {
        let node = &self.0;
        let shelve = node.shelf.take_up(digest, json).then(|| json.clone());
        node.put_down(former);
        node.tell(Fact::Registered {
            device: device.clone(),
            epoch,
            at_ms: unix_now_ms(),
            digest,
            json: node.shelf.tell(device.org, digest).then(|| json.clone()),
        });
        let entry = Entry {
            device: device.clone(),
            epoch,
            digest: Some(digest),
            shelve,
        };
        let newer = node.backend.enter(vec![entry]).await?;
        if let Some(Some(newer)) = newer.first() {
            node.take_over(device, *newer);
        }
        Ok(())
    }

    /// Takes a connection out of the directory if it still stands there. Does not wait; while
    /// the bus is away it is done later.
    pub fn release(
        &self,
        device: DeviceKey,
        epoch: Epoch,
        digest: Option<Digest>,
        reason: LeftReason,
    ) {
        let node = &self.0;
        node.put_down(digest);
        node.tell(Fact::Left {
            device: device.clone(),
            epoch,
            at_ms: unix_now_ms(),
            reason,
        });
        node.releases.push(Release::Entry(device, epoch));
    }

    /// Ends an inbound call. Does not wait.
    pub fn answer(&self, to: &ReplyTo, answer: Answer) {
        self.0.reply(to, answer);
    }

    /// Says that the connection meant is not here: the device never saw the call.
    pub fn not_here(&self, to: &ReplyTo) {
        if to.node == self.0.id {
            self.0.pending.settle(to.token, Verdict::NotThere);
        } else {
            self.0
                .post(&to.node, &Envelope::NotHere { token: to.token });
        }
    }

    /// Checks an access token: signature, issuer, audience, expiry, revocation.
    ///
    /// # Errors
    /// [`TrustError`] says which of these, or that this node has no keys yet.
    pub fn verify(&self, token: &str) -> Result<Claims, TrustError> {
        self.0.trust.verify(token)
    }

    /// Whether the keys to check tokens with have come.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        self.0.trust.has_keys()
    }

    /// Tokens as they become revoked. A listener that lags must ask [`Bus::is_revoked`] of all.
    #[must_use]
    pub fn revocations(&self) -> broadcast::Receiver<TokenId> {
        self.0.trust.subscribe()
    }

    /// Whether a token is known to be revoked.
    #[must_use]
    pub fn is_revoked(&self, token: TokenId) -> bool {
        self.0.trust.is_revoked(token)
    }

    /// Tells every node whom to trust: these keys and no others, and none of these tokens
    /// (with their expiry in Unix seconds). Revocations told before stay.
    ///
    /// # Errors
    /// When the bus does not answer.
    pub async fn publish_trust(
        &self,
        keys: Vec<VerifyingKey>,
        revoked: Vec<(TokenId, u64)>,
    ) -> Result<(), BusError> {
        self.0.backend.entrust(Some(&keys), &revoked).await?;
        self.0.trust_changed.notify_one();
        self.0
            .backend
            .broadcast(self.0.pack(&Envelope::TrustChanged))
            .await
    }

    /// Tells every node that a token is revoked.
    ///
    /// # Errors
    /// When the bus does not answer; some nodes may know already.
    pub async fn revoke(&self, token: TokenId, expires_at_unix_s: u64) -> Result<(), BusError> {
        self.0.trust.revoke(token, expires_at_unix_s);
        self.0
            .backend
            .entrust(None, &[(token, expires_at_unix_s)])
            .await?;
        let revoked = Envelope::Revoked {
            token,
            expires_at: expires_at_unix_s,
        };
        self.0.backend.broadcast(self.0.pack(&revoked)).await
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
    /// Adds to the record. What gives way for it is counted.
    pub(crate) fn tell(&self, fact: Fact) {
        let dropped = self.facts.push(fact);
        self.metrics.facts_dropped.inc_by(dropped as u64);
    }

    /// One connection fewer uses these services.
    fn put_down(&self, digest: Option<Digest>) {
        let last = digest.and_then(|digest| self.shelf.put_down(digest));
        if let Some(digest) = last {
            self.releases.push(Release::Services(digest));
        }
    }

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

    fn announce_takeover(&self, device: &DeviceKey, epoch: Epoch, former: &NodeId) {
        if *former == self.id {
            self.take_over(device, epoch);
            return;
        }
        let device_id = device.device.as_str().into();
        let takeover = Envelope::Takeover {
            org: device.org,
            device: device_id,
            epoch,
        };
        self.post(former, &takeover);
    }

    /// A newer connection of the device exists.
    pub(crate) fn take_over(&self, device: &DeviceKey, epoch: Epoch) {
        self.taken_over.insert(device.clone(), epoch);
        if let Some(host) = self.host() {
            host.takeover(device.org, device.device.as_str(), epoch);
        }
    }

    pub(crate) fn pack(&self, envelope: &Envelope) -> Bytes {
        let mut pack = Vec::new();
        envelope::begin_pack(&mut pack, &self.id);
        envelope::put(&mut pack, envelope);
        pack.into()
    }
}
