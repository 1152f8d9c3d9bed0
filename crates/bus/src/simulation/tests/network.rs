//! Redis in a simulation, and the connection of each node to it.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use switchboard_protocol::id::{DeviceId, DeviceKey, DeviceRange, OrgId, TokenId};
use switchboard_runtime::shutdown::Shutdown;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::process::{Process, at_redis};
use crate::{
    LocalHub,
    backend::{
        Backend, BackendFuture, BatchInbox, Claim, ConnectionStatus, ConversationStore,
        DeliveryFailure, Directory, Entry, EventStream, Inbox, KeySet, KeyStore, LEASE, Presence,
        PublishedKeys, Release, Renewal, Stats, Transport, TurnQueue, Upserted,
    },
    background::spawn_task,
    conversations::{
        Conversation, ConversationKey, ConversationWrite, ConversationsInFlight, SaveResult,
    },
    error::BusError,
    events::{DeviceEvent, EventId},
    live::{KeptLog, LiveLog, LivePosition, LogPage, StoredEvent},
    memory,
    node::{Epoch, NodeId},
    quotas::{QuotaLimits, QuotaStore},
    redis::Deduplicator,
    tickets::TicketSecret,
    turns::{ClaimedTurn, Lease, NewTurn, OrgRoom, TurnPosition},
};

/// Like `redis::COMMAND_TIMEOUT`.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection through which nothing comes counts: silence of 2 s, and two probes.
const SILENCE: Duration = Duration::from_secs(4);

/// What all nodes share: the state of the backend in memory, and leases as Redis has them.
pub(super) struct Redis {
    hub: LocalHub,
    rng: Mutex<StdRng>,
    links: Mutex<BTreeMap<NodeId, Arc<Link>>>,
    /// The last renewal of each lease.
    leases: Mutex<BTreeMap<NodeId, Instant>>,
    /// Whether messages are slow, and some arrive twice or are lost.
    pub(super) has_faults: Mutex<bool>,
    pub(super) tasks: Shutdown,
}

impl Redis {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            hub: LocalHub::default(),
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            links: Mutex::default(),
            leases: Mutex::default(),
            has_faults: Mutex::new(false),
            tasks: Shutdown::new(),
        })
    }

    /// A random number below `end`.
    pub(super) fn draw(&self, end: u64) -> u64 {
        self.rng.lock().random_range(0..end)
    }

    pub(super) fn draw_ms(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.draw(to - from))
    }

    /// Whether one of so many cases occurs, while there are faults.
    pub(super) fn one_in(&self, cases: u64) -> bool {
        *self.has_faults.lock() && self.draw(cases) == 0
    }

    fn delay(&self) -> Duration {
        let max = if self.one_in(20) { 150 } else { 3 };
        self.draw_ms(0, max)
    }

    fn link(&self, node: &NodeId) -> Option<Arc<Link>> {
        self.links.lock().get(node).cloned()
    }

    /// How long the lease of a node lasts.
    fn left(&self, node: &NodeId) -> Duration {
        let renewed = self.leases.lock().get(node).copied();
        renewed.map_or(Duration::ZERO, |at| LEASE.saturating_sub(at.elapsed()))
    }

    fn renew(&self, node: &NodeId) {
        self.leases.lock().insert(node.clone(), Instant::now());
    }

    /// Passes a batch to the subscriber of an inbox, if there is one.
    fn deliver(&self, to: &NodeId, batch: &Bytes) -> bool {
        let link = self.link(to).filter(|link| link.state.lock().is_subscribed);
        if let Some(link) = &link {
            let copies = 1 + u64::from(self.one_in(10));
            (0..copies).for_each(|_| link.send_to_node(batch));
        }
        link.is_some()
    }

    /// Ends the references between the parts.
    pub(super) fn close(&self) {
        self.tasks.stop();
        self.links.lock().clear();
    }
}

/// The connection of a node to Redis: delays what it carries, and keeps its order. It can be cut:
/// what is on the way waits, and is lost when the node gives the connection up.
///
/// ```text
///            cut                  silent for 4 s, or closed            healed, backoff
///   connected ──► nothing passes ─────────────────────────► disconnected ────────────► connected
///       ▲            │ healed
///       └────────────┘
/// ```
pub(super) struct Link {
    redis: Arc<Redis>,
    process: Arc<Process>,
    node: NodeId,
    member: Arc<dyn Backend>,
    inbox: Arc<dyn Inbox>,
    deduplicator: Deduplicator,
    state: Mutex<State>,
    changed: Notify,
    /// What is sent in a lane arrives in the order in which it was sent.
    lanes: [tokio::sync::Mutex<()>; 4],
}

#[derive(Default)]
struct State {
    /// Counts connections that were lost or built: even while there is one.
    incarnation: u64,
    disconnected_at: Option<Instant>,
    is_cut: bool,
    /// Redis has closed the connection, which the node may not have noticed.
    is_closed: bool,
    is_subscribed: bool,
    /// The number of batches that were published.
    published: u64,
    unacknowledged: BTreeMap<u64, (NodeId, Bytes)>,
}

impl State {
    /// Whether nothing passes.
    const fn blocks(&self) -> bool {
        self.is_cut || self.is_closed || self.disconnected_at.is_some()
    }
}

/// The lanes of a link.
const BATCHES: usize = 0;
const INBOX: usize = 1;
const COMMANDS: usize = 2;
const REPLIES: usize = 3;

impl Link {
    pub(super) fn join(
        redis: &Arc<Redis>,
        process: &Arc<Process>,
        stop: &Shutdown,
        node: NodeId,
        inbox: Arc<dyn Inbox>,
    ) -> Arc<Self> {
        // What is published goes through the links.
        let unused = Arc::new(BatchInbox(|_| {}));
        let link = Arc::new(Self {
            redis: Arc::clone(redis),
            process: Arc::clone(process),
            member: memory::join(&redis.hub, node.clone(), unused),
            inbox,
            deduplicator: Deduplicator::new(),
            state: Mutex::new(State {
                is_subscribed: true,
                ..State::default()
            }),
            changed: Notify::new(),
            lanes: Default::default(),
            node: node.clone(),
        });
        link.deduplicator.activate();
        redis.renew(&node);
        redis.links.lock().insert(node, Arc::clone(&link));
        spawn_task(stop, Arc::clone(&link).supervise());
        link
    }

    fn update<T>(&self, update: impl FnOnce(&mut State) -> T) -> T {
        let updated = update(&mut self.state.lock());
        self.changed.notify_waiters();
        updated
    }

    async fn wait<T>(&self, ready: impl Fn(&mut State) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            let found = ready(&mut self.state.lock());
            match found {
                Some(found) => return found,
                None => changed.await,
            }
        }
    }

    /// Cuts the connection: closes it, or lets nothing pass.
    pub(super) fn cut(&self, is_closed: bool) {
        self.update(|state| {
            state.is_cut = true;
            state.is_closed |= is_closed;
            state.is_subscribed &= !is_closed;
        });
    }

    pub(super) fn heal(&self) {
        self.update(|state| state.is_cut = false);
    }

    /// Redis closes the connection of a process that has ended.
    pub(super) fn unsubscribe(&self) {
        self.update(|state| state.is_subscribed = false);
    }

    async fn supervise(self: Arc<Self>) {
        loop {
            self.wait(|state| state.blocks().then_some(())).await;
            let closed = self.wait(|state| match state.blocks() {
                true => state.is_closed.then_some(true),
                false => Some(false),
            });
            if timeout(SILENCE, closed).await == Ok(false) {
                continue;
            }
            self.disconnect();
            let backoff = self.redis.draw_ms(0, 1_000);
            self.wait(|state| (!state.is_cut).then_some(())).await;
            sleep(backoff).await;
            self.connect();
        }
    }

    fn disconnect(&self) {
        let unacknowledged = self.update(|state| {
            state.incarnation += 1;
            state.disconnected_at = Some(Instant::now());
            std::mem::take(&mut state.unacknowledged)
        });
        for (to, batch) in unacknowledged.into_values() {
            self.inbox.undelivered(&to, batch, DeliveryFailure::Unknown);
        }
    }

    fn connect(&self) {
        self.update(|state| {
            state.incarnation += 1;
            state.disconnected_at = None;
            (state.is_closed, state.is_subscribed) = (false, true);
        });
        self.redis.renew(&self.node);
        self.inbox.reconnected();
        // What the former connection brought before it was lost.
        self.process.receive_waiting();
    }

    fn send_to_node(self: &Arc<Self>, batch: &Bytes) {
        let (link, batch) = (Arc::clone(self), batch.clone());
        let incarnation = self.state.lock().incarnation;
        self.redis.tasks.spawn(async move {
            if link.travel(INBOX, incarnation).await && !link.deduplicator.is_duplicate(&batch) {
                let inbox = Arc::clone(&link.inbox);
                link.process.receive(move || inbox.receive(batch));
            }
        });
    }

    /// Something passes in a lane. Returns whether it arrives, at that time.
    async fn travel(&self, lane: usize, incarnation: u64) -> bool {
        let arrives_at = Instant::now() + self.redis.delay();
        let _order = self.lanes[lane].lock().await;
        sleep_until(arrives_at).await;
        self.wait(|state| {
            let is_lost = state.incarnation != incarnation;
            (is_lost || !state.blocks()).then_some(!is_lost)
        })
        .await
    }

    /// Executes a command at Redis, and returns its reply.
    fn command<'a, T: Send + 'a>(
        &'a self,
        execute: impl FnOnce() -> BackendFuture<'a, T> + Send + 'a,
    ) -> BackendFuture<'a, T> {
        let run = async move {
            let status = |state: &State| (state.incarnation, state.disconnected_at.is_none());
            let (incarnation, is_connected) = status(&self.state.lock());
            if !is_connected || !self.travel(COMMANDS, incarnation).await {
                return Err(BusError::Unavailable);
            }
            let reply = at_redis(execute).await;
            match self.travel(REPLIES, incarnation).await {
                true => reply,
                false => Err(BusError::Unavailable),
            }
        };
        Box::pin(async move {
            let reply = timeout(COMMAND_TIMEOUT, run).await;
            reply.unwrap_or(Err(BusError::Timeout(COMMAND_TIMEOUT)))
        })
    }

    /// The same, for something that Redis does itself.
    fn at_redis<'a, T: Send + 'a>(
        &'a self,
        execute: impl FnOnce() -> T + Send + 'a,
    ) -> BackendFuture<'a, T> {
        self.command(|| Box::pin(std::future::ready(Ok(execute()))))
    }
}

impl Transport for Arc<Link> {
    fn status(&self) -> ConnectionStatus {
        let state = self.state.lock();
        ConnectionStatus {
            generation: state.incarnation / 2 + 1,
            disconnected_for: state.disconnected_at.map(|at| at.elapsed()),
        }
    }

    fn publish(&self, to: &NodeId, batch: Bytes) {
        if self.status().disconnected_for.is_some() {
            return self.inbox.undelivered(to, batch, DeliveryFailure::NotSent);
        }
        let (link, to) = (Self::clone(self), to.clone());
        let (incarnation, number) = self.update(|state| {
            state.published += 1;
            let sent = (to.clone(), batch.clone());
            state.unacknowledged.insert(state.published, sent);
            (state.incarnation, state.published)
        });
        self.redis.tasks.spawn(async move {
            if !link.travel(BATCHES, incarnation).await {
                return;
            }
            let has_subscriber = link.redis.deliver(&to, &batch);
            if !link.travel(REPLIES, incarnation).await {
                return;
            }
            link.update(|state| state.unacknowledged.remove(&number));
            if !has_subscriber {
                let inbox = Arc::clone(&link.inbox);
                let reason = DeliveryFailure::NoSubscriber;
                link.process
                    .receive(move || inbox.undelivered(&to, batch, reason));
            }
        });
    }

    fn route_count(&self) -> usize {
        1
    }

    fn route(&self, _: &NodeId) -> usize {
        0
    }

    fn flush(&self, _: usize) {}

    fn is_idle(&self, _: usize) -> bool {
        self.state.lock().unacknowledged.is_empty()
    }

    fn wait_idle(&self, _: usize) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.wait(|state| state.unacknowledged.is_empty().then_some(())))
    }

    fn is_redelivering(&self) -> bool {
        false
    }

    fn broadcast(&self, batch: Bytes) -> BackendFuture<'_, ()> {
        self.at_redis(move || {
            let mut links: Vec<_> = self.redis.links.lock().values().cloned().collect();
            // Broadcasts may be lost.
            links.retain(|link| link.state.lock().is_subscribed && !self.redis.one_in(10));
            links.iter().for_each(|link| link.send_to_node(&batch));
        })
    }

    fn find_unsubscribed<'a>(&'a self, nodes: &'a [NodeId]) -> BackendFuture<'a, Vec<NodeId>> {
        self.at_redis(|| {
            let is_subscribed = |node: &&NodeId| {
                let link = self.redis.link(node);
                link.is_some_and(|link| link.state.lock().is_subscribed)
            };
            let nodes = nodes.iter().filter(|node| !is_subscribed(node));
            nodes.cloned().collect()
        })
    }

    fn close_inbox(&self) -> BackendFuture<'_, ()> {
        self.command(move || {
            self.unsubscribe();
            Box::pin(async move {
                // Behind what is on the way.
                drop(self.lanes[INBOX].lock().await);
                Ok(())
            })
        })
    }

    fn leave(&self, release_lease: bool) -> BackendFuture<'_, ()> {
        self.at_redis(move || {
            if release_lease {
                self.redis.leases.lock().remove(&self.node);
            }
        })
    }
}

/// Commands that the backend in memory executes.
macro_rules! commands {
    ($($name:ident($($argument:ident: $type:ty),*) -> $reply:ty;)*) => {$(
        fn $name<'a>(&'a self, $($argument: $type),*) -> BackendFuture<'a, $reply> {
            self.command(move || self.member.$name($($argument),*))
        }
    )*};
    ($($trait:ident { $($commands:tt)* })*) => {
        $(impl $trait for Arc<Link> { commands! { $($commands)* } })*
    };
}

commands! {
    KeyStore {
        publish_keys(keys: Option<&'a PublishedKeys>, revoked: &'a [(TokenId, u64)]) -> ();
        publish_suspended_orgs(orgs: &'a [OrgId], version: u64) -> ();
        key_set(now_unix_s: u64) -> Option<KeySet>;
        revoked_tokens() -> Vec<(TokenId, u64)>;
        ticket_secrets(proposed: &'a [(u64, TicketSecret)]) -> Vec<TicketSecret>;
    }
    QuotaStore {
        publish_quotas(quotas: &'a QuotaLimits) -> ();
        quotas() -> Option<QuotaLimits>;
        count_devices(org: OrgId) -> u64;
    }
    EventStream {
        append_events(events: &'a [DeviceEvent]) -> Vec<usize>;
        read_events(consumer: &'a str, max: usize, wait: Duration) -> Vec<(EventId, DeviceEvent)>;
        ack_events(ids: &'a [EventId]) -> ();
    }
    LiveLog {
        keep_log(org: OrgId) -> KeptLog;
        append_log(org: OrgId, events: &'a [StoredEvent]) -> ();
        read_log(org: OrgId, after: LivePosition, max: usize) -> LogPage;
    }
    TurnQueue {
        enqueue_turn(turn: NewTurn) -> TurnPosition;
        delete_turns(org: OrgId, turns: &'a [TurnPosition]) -> ();
        claim_turns(max: usize, wait: Duration, room: &'a OrgRoom<'a>) -> Vec<ClaimedTurn>;
        renew_turns(turns: &'a [Lease]) -> Vec<Lease>;
        mark_side_effects(turn: Lease) -> bool;
        complete_turn(org: OrgId, turn: Lease) -> ();
    }
    ConversationStore {
        conversation(key: &'a ConversationKey) -> Option<Conversation>;
        save_conversation(write: ConversationWrite<'a>) -> SaveResult;
        delete_conversation(key: &'a ConversationKey, version: u64) -> bool;
        claim_due_conversations(max: usize, lease: Duration, in_flight: &'a ConversationsInFlight)
            -> Vec<Conversation>;
    }
}

impl Directory for Arc<Link> {
    commands! {
        claim(device: &'a DeviceKey, limit: Option<u64>) -> Claim;
        upsert(entries: Vec<Entry>, max_bytes: u64) -> Vec<Upserted>;
        release(releases: Vec<Release>) -> ();
        list(org: OrgId, range: DeviceRange<'a>, limit: usize) -> Vec<(DeviceId, Presence)>;
        count(org: OrgId, range: DeviceRange<'a>) -> u64;
        services(org: OrgId, presence: &'a Presence) -> Option<Bytes>;
        entries() -> Vec<(DeviceKey, Epoch)>;
        is_moving(device: &'a DeviceKey) -> bool;
        publish_status(status: Bytes) -> ();
        nodes() -> Vec<(NodeId, Option<Bytes>)>;
        stats() -> Stats;
    }

    fn find<'a>(
        &'a self,
        org: OrgId,
        devices: &'a [DeviceId],
    ) -> BackendFuture<'a, Vec<Option<Presence>>> {
        self.command(move || {
            let found = self.member.find(org, devices);
            Box::pin(async move {
                let is_live = |presence: &Presence| !self.redis.left(&presence.node).is_zero();
                let found = found.await?.into_iter();
                Ok(found.map(|presence| presence.filter(is_live)).collect())
            })
        })
    }

    fn await_reply(&self) -> BackendFuture<'_, ()> {
        self.at_redis(|| ())
    }

    fn renew_lease(&self, accepts_devices: bool) -> BackendFuture<'_, Renewal> {
        Box::pin(async move {
            let mut has_expired = false;
            let expired = &mut has_expired;
            let renewal = self.command(move || {
                *expired = self.redis.left(&self.node).is_zero();
                self.redis.renew(&self.node);
                let renewed = self.member.renew_lease(accepts_devices);
                let nodes: Vec<_> = self.redis.leases.lock().keys().cloned().collect();
                let is_dead = |node: &NodeId| self.redis.left(node).is_zero();
                let dead = nodes.into_iter().filter(is_dead).collect();
                Box::pin(async move { renewed.await.map(|renewal| Renewal { dead, ..renewal }) })
            });
            let renewal = renewal.await;
            if has_expired && renewal.is_ok() {
                self.inbox.reconnected();
            }
            renewal
        })
    }

    fn leases<'a>(&'a self, nodes: &'a [NodeId]) -> BackendFuture<'a, Vec<(NodeId, Duration)>> {
        self.at_redis(|| {
            let left = |node: &NodeId| (node.clone(), self.redis.left(node));
            nodes.iter().map(left).collect()
        })
    }

    fn remove_dead<'a>(&'a self, node: &'a NodeId) -> BackendFuture<'a, Vec<(DeviceKey, Epoch)>> {
        self.command(move || {
            let dead = self.redis.link(node);
            Box::pin(async move {
                self.redis.leases.lock().remove(node);
                let Some(dead) = dead else {
                    return Ok(Vec::new());
                };
                let entries = dead.member.entries().await?;
                dead.member.leave(true).await?;
                Ok(entries)
            })
        })
    }
}
