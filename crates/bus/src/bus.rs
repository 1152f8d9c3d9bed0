//! The bus of one node: its state, its start and its health.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use switchboard_protocol::id::{DeviceKey, OrgId};
use switchboard_runtime::shutdown::Shutdown;
use tokio::sync::Notify;

use crate::{
    auth::TokenKeys,
    backend::{Backend, Inbox, Release},
    background,
    config::{self, BusConfig},
    directory::{CatalogChannels, PendingDevices, PresenceCache, RegistrationCache},
    editions::Editions,
    error::BusError,
    events::{DeviceEvent, EventId, MAX_BUFFER_BYTES, MAX_EVENT_BYTES, WriteBuffer},
    lease::OwnLease,
    live::{LiveFeeds, LiveRecorder},
    memory,
    metrics::{self, Metrics},
    node::{Epoch, NodeId},
    quotas::KnownQuotas,
    redis,
    rpc::{ConnectionOwner, NodeInbox, PendingCalls},
    tickets::TicketKeys,
    transport::{Message, Outbox, codec},
    turns::{
        CancellationSender, OrphanReplies, SupersededTurns, TurnTracker, cancellation_channel,
    },
};

/// Takeovers that a node caches, for the time between a claim and its connection.
const TAKEOVER_CACHE_CAPACITY: usize = 4096;
/// A node that has been disconnected for this long accepts no new work.
const UNREADY_GRACE: Duration = Duration::from_secs(5);

/// A node's handle to the bus; cheap to clone.
///
/// The bus carries everything that nodes exchange: calls and their answers, turns and their
/// replies, the directory of connected devices, token keys, device events and conversations. It
/// works over Redis, or inside one process ([`LocalHub`](crate::LocalHub)), with the same
/// contract.
///
/// | subject | begin with | module |
/// |---|---|---|
/// | calls | [`Bus::call`], [`Bus::answer`] | `rpc` |
/// | directory | [`Bus::claim`], [`Bus::register`], [`Bus::find`] | `directory::lookup` |
/// | turns | [`Bus::enqueue_turn`], [`Bus::claim_turns`] | `turns::queue` |
/// | keys | [`Bus::verify`], [`Bus::publish_keys`] | `auth` |
/// | tickets | [`Bus::issue_ticket`], [`Bus::verify_ticket`] | `tickets` |
/// | quotas and settings | [`Bus::quota_limit`], [`Bus::org_locale`], [`Bus::journals_params`], [`Bus::requires_approvals`], [`Bus::publish_quotas`] | `quotas` |
/// | events | [`Bus::read_events`], [`Bus::ack_events`] | `events` |
/// | live events | [`Bus::record_live`], [`Bus::watch_live`] | `live` |
/// | conversations | [`Bus::save_conversation`] | `conversations` |
///
/// A node is connected when a message to its own inbox has come back. It reports one of three
/// states ([`health`](Self::health)):
///
/// ```text
///   start ─► not ready ──inbox verified──► ready ──connection lost──► reconnecting (ready)
///                ▲                           ▲                           │        │
///                │                           └────── inbox verified ─────┘        │
///                └───────────────────────── after 5 s ────────────────────────────┘
/// ```
///
/// While it is disconnected, calls to other nodes fail immediately, device events and releases
/// are buffered, and answers are retried. After the reconnect the node enters its connections in
/// the directory again. Redis stores nothing that must survive: it is filled again by the nodes
/// and by the control plane.
///
/// Invariant: every method completes in bounded time, and none waits while it holds a lock.
#[derive(Clone)]
pub struct Bus(pub(crate) Arc<Node>);

pub(crate) struct Node {
    pub(crate) id: NodeId,
    /// All nodes are in this process.
    is_in_process: bool,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) pending: Arc<PendingCalls>,
    owner: ArcSwapOption<Arc<dyn ConnectionOwner>>,
    pub(crate) presence_cache: PresenceCache,
    pub(crate) lease: OwnLease,
    /// Whether this node accepts devices, and how many others do.
    pub(crate) accepts_devices: AtomicBool,
    pub(crate) acceptance_changed: Notify,
    pub(crate) other_edges: AtomicUsize,
    pub(crate) token_keys: TokenKeys,
    /// Only of a node that owns connections.
    pub(crate) ticket_keys: TicketKeys,
    pub(crate) quotas: ArcSwap<KnownQuotas>,
    pub(crate) approvals: Editions,
    pub(crate) npcs: Editions,
    /// Organisations some of whose device events were refused.
    pub(crate) missed_events: Mutex<HashSet<OrgId>>,
    pub(crate) registrations: RegistrationCache,
    /// The most bytes of an organisation's registrations in the directory.
    pub(crate) registration_bytes: u64,
    pub(crate) events: WriteBuffer<DeviceEvent>,
    pub(crate) releases: WriteBuffer<Release>,
    pub(crate) live: LiveRecorder,
    pub(crate) live_feeds: LiveFeeds,
    pub(crate) metrics: Metrics,
    /// The connection was rebuilt.
    pub(crate) reconnected: Notify,
    /// Recent takeovers: one may arrive before its connection is added here.
    pub(crate) takeover_cache: Cache<DeviceKey, Epoch>,
    /// All connections are to be entered again.
    pub(crate) resync: Notify,
    /// Devices whose claims failed, and may have been executed.
    pub(crate) uncertain_claims: PendingDevices,
    pub(crate) pending_upserts: PendingDevices,
    pub(crate) keys_changed: Notify,
    /// Only of a node that watches the catalog.
    pub(crate) catalog: Option<Arc<CatalogChannels>>,
    /// Turns of this node's devices.
    pub(crate) turns: TurnTracker,
    pub(crate) cancellations: CancellationSender,
    pub(crate) orphan_replies: OrphanReplies,
    pub(crate) superseded_turns: SupersededTurns,
}

/// Whether a node accepts new work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// False when the node has been disconnected for 5 s, or was never connected.
    pub ready: bool,
    /// One sentence for operators.
    pub detail: String,
}

impl Bus {
    /// The most that the device events take that no process has acknowledged.
    pub const EVENT_BYTES: usize = MAX_EVENT_BYTES;
    /// The most that events and removed entries take in memory while the bus is not reachable.
    pub const BUFFERED_BYTES: usize = 2 * MAX_BUFFER_BYTES;

    /// Starts a node. Returns immediately: the connection is built, verified and rebuilt in the
    /// background until `shutdown` stops.
    ///
    /// # Errors
    /// [`BusError::Address`] for an invalid Redis URL, [`BusError::Metrics`] when the registry
    /// already has the metrics of a bus, [`BusError::Invalid`] when a pinned key is not a public
    /// key.
    pub fn start(
        config: BusConfig,
        registry: &prometheus::Registry,
        shutdown: &Shutdown,
    ) -> Result<Self, BusError> {
        let backend = config.backend.clone();
        let prefix = config.key_prefix.clone();
        Self::start_over(config, registry, shutdown, |id, inbox, metrics| {
            match backend {
                config::Backend::Local(hub) => {
                    // Inside one process a node is always connected.
                    metrics.up.set(1);
                    Ok(memory::join(&hub, id, inbox))
                }
                config::Backend::Redis { url, authorities } => {
                    let keys = redis::Keys::new(&prefix);
                    let target = redis::Target {
                        url: &url,
                        authorities: authorities.as_deref(),
                    };
                    redis::start(target, keys, id, inbox, metrics, shutdown)
                }
            }
        })
    }

    /// Starts a node over the backend that `connect` returns.
    pub(crate) fn start_over(
        config: BusConfig,
        registry: &prometheus::Registry,
        shutdown: &Shutdown,
        connect: impl FnOnce(NodeId, Arc<dyn Inbox>, Metrics) -> Result<Arc<dyn Backend>, BusError>,
    ) -> Result<Self, BusError> {
        let to_error = |error| BusError::Metrics(Arc::new(error));
        let metrics = Metrics::new(registry).map_err(to_error)?;
        let id = NodeId::generate(&config.node_name);
        let is_in_process = matches!(config.backend, config::Backend::Local(_));
        let catalog = config
            .watch_catalog
            .then(|| Arc::new(CatalogChannels::new()));
        let inbox = Arc::new(NodeInbox::new(catalog.clone()));
        let backend = connect(id.clone(), Arc::clone(&inbox) as _, metrics.clone())?;
        let token_keys = TokenKeys::new(config.pinned_keys)
            .map_err(|error| BusError::Invalid(error.to_string()))?;
        let pending = Arc::new(PendingCalls::new());
        let outbox = Outbox::new(
            id.clone(),
            Arc::clone(&backend),
            Arc::clone(&pending),
            metrics.clone(),
            shutdown.clone(),
        );
        let node = Arc::new(Node {
            id,
            is_in_process,
            backend,
            outbox: Arc::new(outbox),
            pending,
            owner: ArcSwapOption::empty(),
            presence_cache: PresenceCache::new(config.cached_entries as usize),
            lease: OwnLease::new(),
            accepts_devices: AtomicBool::new(false),
            acceptance_changed: Notify::new(),
            other_edges: AtomicUsize::new(0),
            token_keys,
            ticket_keys: TicketKeys::new(),
            quotas: ArcSwap::default(),
            approvals: Editions::default(),
            npcs: Editions::default(),
            missed_events: Mutex::default(),
            registrations: RegistrationCache::default(),
            registration_bytes: config.registration_bytes,
            events: WriteBuffer::new(),
            releases: WriteBuffer::new(),
            live: LiveRecorder::default(),
            live_feeds: LiveFeeds::new(shutdown),
            metrics,
            reconnected: Notify::new(),
            takeover_cache: Cache::new(TAKEOVER_CACHE_CAPACITY),
            resync: Notify::new(),
            uncertain_claims: PendingDevices::default(),
            pending_upserts: PendingDevices::default(),
            keys_changed: Notify::new(),
            catalog,
            turns: TurnTracker::default(),
            cancellations: cancellation_channel(),
            orphan_replies: OrphanReplies::default(),
            superseded_turns: SupersededTurns::default(),
        });
        metrics::register_gauges(&node, registry).map_err(to_error)?;
        inbox.open(&node);
        background::start(&node, shutdown);
        Ok(Self(node))
    }

    /// The id of this node.
    #[must_use]
    pub fn node(&self) -> &NodeId {
        &self.0.id
    }

    /// The most that cached entries of the directory take in memory.
    #[must_use]
    pub fn cached_bytes(&self) -> usize {
        self.0.presence_cache.max_bytes()
    }

    /// Whether this node accepts new work.
    #[must_use]
    pub fn health(&self) -> Health {
        let status = self.0.backend.status();
        match status.disconnected_for {
            None => Health {
                ready: true,
                detail: "connected".into(),
            },
            Some(elapsed) if status.generation > 0 && elapsed < UNREADY_GRACE => Health {
                ready: true,
                detail: "reconnecting".into(),
            },
            Some(elapsed) => Health {
                ready: false,
                detail: format!("not connected for {} s", elapsed.as_secs()),
            },
        }
    }

    /// Whether this node is connected now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.0.backend.status().disconnected_for.is_none()
    }

    /// Waits until this node's inbox is verified.
    ///
    /// # Errors
    /// [`BusError::Timeout`] when that takes longer than `limit`.
    pub async fn wait_ready(&self, limit: Duration) -> Result<(), BusError> {
        let connected = async {
            loop {
                let reconnected = self.0.reconnected.notified();
                if self.0.backend.status().disconnected_for.is_none() {
                    return;
                }
                reconnected.await;
            }
        };
        tokio::time::timeout(limit, connected)
            .await
            .map_err(|_| BusError::Timeout(limit))
    }

    /// The number of this node's calls that wait for their answer.
    #[must_use]
    pub fn pending_calls(&self) -> usize {
        self.0.pending.len()
    }

    /// Makes this node one that owns device connections.
    pub fn attach(&self, owner: Arc<dyn ConnectionOwner>) {
        self.0.owner.store(Some(Arc::new(owner)));
        self.0.keys_changed.notify_one();
        self.set_accepting(true);
    }

    /// Announces to other nodes whether this node accepts devices.
    pub fn set_accepting(&self, accepts_devices: bool) {
        let node = &self.0;
        node.accepts_devices
            .store(accepts_devices, Ordering::Release);
        node.acceptance_changed.notify_one();
    }

    /// Whether all nodes are in this process: a claim that is dropped before it completes has taken nothing.
    #[must_use]
    pub fn is_in_process(&self) -> bool {
        self.0.is_in_process
    }

    /// How many other nodes accept devices, as of the last renewal of the lease: 3 s ago at most
    /// while the bus is reachable.
    #[must_use]
    pub fn other_edges(&self) -> usize {
        self.0.other_edges.load(Ordering::Acquire)
    }

    /// The next device events for one of several consumers that share the stream; empty after
    /// `wait`. Events that a consumer does not acknowledge are delivered again.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn read_events(
        &self,
        consumer: &str,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<(EventId, DeviceEvent)>, BusError> {
        self.0.backend.read_events(consumer, max, wait).await
    }

    /// Waits until the device events of this node can be read by a consumer: forever while the bus is
    /// not reachable.
    pub async fn events_written(&self) {
        self.0.events.written().await;
    }

    /// Acknowledges and deletes device events that are stored elsewhere.
    ///
    /// # Errors
    /// When the bus is not reachable; the events may be delivered again.
    pub async fn ack_events(&self, ids: &[EventId]) -> Result<(), BusError> {
        self.0.backend.ack_events(ids).await
    }
}

impl Node {
    pub(crate) fn owner(&self) -> Option<Arc<dyn ConnectionOwner>> {
        self.owner
            .load()
            .as_ref()
            .map(|owner| Arc::clone(owner.as_ref()))
    }

    /// Sends a message to all nodes.
    pub(crate) async fn broadcast(&self, message: &Message) -> Result<(), BusError> {
        let batch = codec::encode_batch(&self.id, message);
        self.backend.broadcast(batch).await
    }
}
