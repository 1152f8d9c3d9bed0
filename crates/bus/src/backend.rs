//! The contract between the bus and what carries it: Redis, or the memory of one process.
//!
//! A backend moves bytes and stores entries; it knows nothing of calls or call tokens. There is
//! one trait for each subject, and [`Backend`] is all of them. Every future completes in bounded
//! time.

use std::{future::Future, pin::Pin, time::Duration};

use bytes::Bytes;
use switchboard_protocol::{
    id::{DeviceId, DeviceKey, DeviceRange, OrgId, TokenId},
    schema::Digest,
    token::VerifyingKey,
};

use crate::{
    conversations::{
        Conversation, ConversationKey, ConversationWrite, ConversationsInFlight, SaveResult,
    },
    directory::CatalogEvent,
    error::BusError,
    events::{ByteSize, DeviceEvent, DisconnectReason, EventId},
    live::LiveLog,
    node::{Epoch, NodeId},
    quotas::QuotaStore,
    tickets::TicketSecret,
    turns::{ClaimedTurn, Lease, NewTurn, OrgRoom, TurnPosition},
};

/// How long a node counts as alive after the last renewal of its lease.
pub(crate) const LEASE: Duration = Duration::from_secs(9);

/// What a backend's asynchronous methods return.
pub(crate) type BackendFuture<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, BusError>> + Send + 'a>>;

/// Everything that a node needs from a backend.
pub(crate) trait Backend:
    Transport
    + Directory
    + KeyStore
    + QuotaStore
    + EventStream
    + LiveLog
    + TurnQueue
    + ConversationStore
{
}

impl<T> Backend for T where
    T: Transport
        + Directory
        + KeyStore
        + QuotaStore
        + EventStream
        + LiveLog
        + TurnQueue
        + ConversationStore
{
}

/// Moves batches of messages between nodes.
///
/// Batches leave by one or several *routes*, which do not wait for each other: one for a single
/// server, several for the shards of a cluster.
pub(crate) trait Transport: Send + Sync + 'static {
    fn status(&self) -> ConnectionStatus;

    /// Accepts a batch for a node without waiting; [`Self::flush`] sends what was accepted. A
    /// batch that does not arrive is reported to [`Inbox::undelivered`].
    fn publish(&self, to: &NodeId, batch: Bytes);

    /// The number of routes; it does not change.
    fn route_count(&self) -> usize;

    /// The route that a batch for this node would take now.
    fn route(&self, to: &NodeId) -> usize;

    /// Sends what was accepted for a route.
    fn flush(&self, route: usize);

    /// Whether every batch of a route is acknowledged, so that the next one need not wait.
    fn is_idle(&self, route: usize) -> bool;

    /// Waits until every batch of a route is acknowledged.
    fn wait_idle(&self, route: usize) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Whether the backend is sending undelivered batches again by itself.
    fn is_redelivering(&self) -> bool;

    /// Publishes a batch to every node, this one included.
    fn broadcast(&self, batch: Bytes) -> BackendFuture<'_, ()>;

    /// Which of these nodes have no subscriber at their inbox.
    fn find_unsubscribed<'a>(&'a self, nodes: &'a [NodeId]) -> BackendFuture<'a, Vec<NodeId>>;

    /// Unsubscribes the inbox: senders learn from now on that this node has no subscriber. When
    /// this completes, every earlier batch has been received. Used once, by a node that
    /// shuts down and still sends what it has queued.
    fn close_inbox(&self) -> BackendFuture<'_, ()>;

    /// Disconnects this node. With `release_lease` it also gives its lease back, because it left
    /// nothing behind; else the lease expires and other nodes remove this node's entries.
    fn leave(&self, release_lease: bool) -> BackendFuture<'_, ()>;
}

/// Stores which node owns the connection of which device.
pub(crate) trait Directory: Send + Sync + 'static {
    /// Assigns an epoch to a new connection of a device, and enters it under this node, unless the
    /// entry of a connection with services stands there. Refuses a device without an entry if its
    /// organisation has this many.
    fn claim<'a>(&'a self, device: &'a DeviceKey, limit: Option<u64>) -> BackendFuture<'a, Claim>;

    /// Writes entries, and the texts of their registrations as far as the backend lacks them. The
    /// texts of one organisation have at most this many bytes together. Returns, in order, what
    /// became of each entry.
    fn upsert(&self, entries: Vec<Entry>, max_bytes: u64) -> BackendFuture<'_, Vec<Upserted>>;

    fn release(&self, releases: Vec<Release>) -> BackendFuture<'_, ()>;

    fn find<'a>(
        &'a self,
        org: OrgId,
        devices: &'a [DeviceId],
    ) -> BackendFuture<'a, Vec<Option<Presence>>>;

    fn list<'a>(
        &'a self,
        org: OrgId,
        range: DeviceRange<'a>,
        limit: usize,
    ) -> BackendFuture<'a, Vec<(DeviceId, Presence)>>;

    /// The number of entries, including those of nodes that were just lost.
    fn count<'a>(&'a self, org: OrgId, range: DeviceRange<'a>) -> BackendFuture<'a, u64>;

    /// The services object behind an entry of an organisation.
    fn services<'a>(
        &'a self,
        org: OrgId,
        presence: &'a Presence,
    ) -> BackendFuture<'a, Option<Bytes>>;

    /// Every entry under this node.
    fn entries(&self) -> BackendFuture<'_, Vec<(DeviceKey, Epoch)>>;

    /// Whether the last connection of a device was released as moving, and that time has not passed.
    fn is_moving<'a>(&'a self, device: &'a DeviceKey) -> BackendFuture<'a, bool>;

    /// Waits for a reply of the server with the leases.
    fn await_reply(&self) -> BackendFuture<'_, ()>;

    /// Renews this node's lease, and announces whether the node accepts devices.
    fn renew_lease(&self, accepts_devices: bool) -> BackendFuture<'_, Renewal>;

    /// How long the lease of each of these nodes lasts; zero for a node without one.
    fn leases<'a>(&'a self, nodes: &'a [NodeId]) -> BackendFuture<'a, Vec<(NodeId, Duration)>>;

    /// Publishes what other nodes see of this one, for as long as a lease lasts.
    fn publish_status(&self, status: Bytes) -> BackendFuture<'_, ()>;

    /// All nodes that have a lease, in any order, with what they published.
    fn nodes(&self) -> BackendFuture<'_, Vec<(NodeId, Option<Bytes>)>>;

    /// Removes the entries of a node whose lease has ended. Returns those that were removed until
    /// something failed; the rest is left to the next attempt.
    fn remove_dead<'a>(&'a self, node: &'a NodeId) -> BackendFuture<'a, Vec<(DeviceKey, Epoch)>>;

    /// Totals over all nodes. One node counts the directory for all, once a minute.
    fn stats(&self) -> BackendFuture<'_, Stats>;
}

/// Stores the public keys that verify tokens, the revoked tokens, the suspended organisations, and the
/// keys of tickets.
pub(crate) trait KeyStore: Send + Sync + 'static {
    /// Replaces the keys, if any are given, and adds revocations with their expiry.
    fn publish_keys<'a>(
        &'a self,
        keys: Option<&'a PublishedKeys>,
        revoked: &'a [(TokenId, u64)],
    ) -> BackendFuture<'a, ()>;

    /// Replaces the suspended organisations, unless a later version of them is stored.
    fn publish_suspended_orgs<'a>(
        &'a self,
        orgs: &'a [OrgId],
        version: u64,
    ) -> BackendFuture<'a, ()>;

    /// The current key set; `None` when nothing is stored.
    fn key_set(&self, now_unix_s: u64) -> BackendFuture<'_, Option<KeySet>>;

    /// All revoked tokens with their expiry in Unix seconds.
    fn revoked_tokens(&self) -> BackendFuture<'_, Vec<(TokenId, u64)>>;

    /// Stores the keys of tickets for these periods, unless others are stored. Returns those that are.
    fn ticket_secrets<'a>(
        &'a self,
        proposed: &'a [(u64, TicketSecret)],
    ) -> BackendFuture<'a, Vec<TicketSecret>>;
}

/// Carries device events to the control plane, at least once.
pub(crate) trait EventStream: Send + Sync + 'static {
    /// Appends events. Returns the indexes of those that do not fit: they are not stored.
    fn append_events<'a>(&'a self, events: &'a [DeviceEvent]) -> BackendFuture<'a, Vec<usize>>;

    /// The next events for one of the consumers; empty after `wait`.
    fn read_events<'a>(
        &'a self,
        consumer: &'a str,
        max: usize,
        wait: Duration,
    ) -> BackendFuture<'a, Vec<(EventId, DeviceEvent)>>;

    fn ack_events<'a>(&'a self, ids: &'a [EventId]) -> BackendFuture<'a, ()>;
}

/// Queues turns, and leases each to one worker at a time.
pub(crate) trait TurnQueue: Send + Sync + 'static {
    /// Appends a turn. Returns its position. Refuses it when the queue, or the share of its
    /// organisation, is full.
    fn enqueue_turn(&self, turn: NewTurn) -> BackendFuture<'_, TurnPosition>;

    /// Deletes turns of an organisation, claimed or not.
    fn delete_turns<'a>(&'a self, org: OrgId, turns: &'a [TurnPosition]) -> BackendFuture<'a, ()>;

    /// Claims the next turns for this node; empty after `wait`. Turns whose organisation has no
    /// room continue to wait: no later turn of the organisation is claimed before them.
    fn claim_turns<'a>(
        &'a self,
        max: usize,
        wait: Duration,
        room: &'a OrgRoom<'a>,
    ) -> BackendFuture<'a, Vec<ClaimedTurn>>;

    /// Renews leases. Returns those that this node still holds.
    fn renew_turns<'a>(&'a self, turns: &'a [Lease]) -> BackendFuture<'a, Vec<Lease>>;

    /// Marks that the worker is about to cause side effects; false when the lease is lost.
    fn mark_side_effects(&self, turn: Lease) -> BackendFuture<'_, bool>;

    /// Deletes a turn of an organisation if this node still holds its lease.
    fn complete_turn(&self, org: OrgId, turn: Lease) -> BackendFuture<'_, ()>;
}

/// Stores the state of conversations between their turns.
pub(crate) trait ConversationStore: Send + Sync + 'static {
    fn conversation<'a>(
        &'a self,
        key: &'a ConversationKey,
    ) -> BackendFuture<'a, Option<Conversation>>;

    /// Stores a version if the stored one is the one that it replaces.
    fn save_conversation<'a>(
        &'a self,
        write: ConversationWrite<'a>,
    ) -> BackendFuture<'a, SaveResult>;

    /// Deletes a conversation in this version. Returns whether it was stored.
    fn delete_conversation<'a>(
        &'a self,
        key: &'a ConversationKey,
        version: u64,
    ) -> BackendFuture<'a, bool>;

    /// Leases conversations that are due to this node.
    fn claim_due_conversations<'a>(
        &'a self,
        max: usize,
        lease: Duration,
        in_flight: &'a ConversationsInFlight,
    ) -> BackendFuture<'a, Vec<Conversation>>;
}

/// Receives what arrives for a node. Implementations must not block: they run on the task that
/// reads the socket.
pub(crate) trait Inbox: Send + Sync + 'static {
    fn receive(&self, batch: Bytes);

    /// A batch of this node did not arrive, as far as is known.
    fn undelivered(&self, to: &NodeId, batch: Bytes, reason: DeliveryFailure);

    /// The connection was built, or rebuilt, and verified.
    fn reconnected(&self);

    /// Broadcasts may have been missed.
    fn lagged(&self);

    /// Whether the node subscribes to catalog events.
    fn watches_catalog(&self) -> bool;

    /// The services in a device's entry changed.
    fn catalog_changed(&self, event: &CatalogEvent);
}

/// An inbox of a test: batches go to the function, and every batch of this node arrives.
#[cfg(test)]
pub(crate) struct BatchInbox<F>(pub(crate) F);

#[cfg(test)]
impl<F: Fn(Bytes) + Send + Sync + 'static> Inbox for BatchInbox<F> {
    fn receive(&self, batch: Bytes) {
        (self.0)(batch);
    }

    fn undelivered(&self, _: &NodeId, _: Bytes, reason: DeliveryFailure) {
        unreachable!("{reason:?}");
    }

    fn reconnected(&self) {}

    fn lagged(&self) {}

    fn watches_catalog(&self) -> bool {
        false
    }

    fn catalog_changed(&self, _: &CatalogEvent) {}
}

/// What is known of a batch that did not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryFailure {
    /// The inbox has no subscriber.
    NoSubscriber,
    /// It certainly did not leave this node.
    NotSent,
    /// It may have arrived.
    Unknown,
}

/// How well a node is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionStatus {
    /// Counts the verified connections so far; 0 before the first.
    pub(crate) generation: u64,
    /// How long there has been no verified connection; `None` while there is one.
    pub(crate) disconnected_for: Option<Duration>,
}

/// A live connection of a device, as stored in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// The node that owns the connection.
    pub node: NodeId,
    /// The connection, among those of the device.
    pub epoch: Epoch,
    /// The digest of the services that the device registered, if it has registered.
    pub digest: Option<Digest>,
}

/// The result of the renewal of a lease.
#[derive(Debug)]
pub(crate) struct Renewal {
    /// The backend's clock, since the Unix epoch.
    pub(crate) now: Duration,
    /// Nodes whose lease has ended, and whose entries are not removed yet.
    pub(crate) dead: Vec<NodeId>,
    /// How many other nodes accept devices.
    pub(crate) other_edges: usize,
}

/// The result of a claim.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) epoch: Epoch,
    /// The entry that the device had.
    pub(crate) previous: Option<Presence>,
    /// Whether the new connection has the entry. If not, the previous one still has it.
    pub(crate) is_entered: bool,
}

/// A connection to be entered under this node.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) device: DeviceKey,
    pub(crate) epoch: Epoch,
    pub(crate) digest: Option<Digest>,
    /// The services object, if the backend may lack it.
    pub(crate) services: Option<Bytes>,
}

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Upserted {
    /// The connection had the entry before.
    Updated,
    /// The connection has the entry from now on; before, an older connection at this node had it.
    Entered(Option<NodeId>),
    /// A newer connection of the device has this epoch, and its entry stays.
    Newer(Epoch),
    /// The text of the registration is not stored, and was not sent. The former entry stays.
    TextMissing,
    /// The text of the registration does not fit. The former entry stays.
    Full,
}

/// A connection's entry, which a node removes from the directory if it is still the stored one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) device: DeviceKey,
    pub(crate) epoch: Epoch,
    /// How long callers wait for the next connection of the device: it was asked to move.
    pub(crate) moving_for: Duration,
    /// Why the connection ended, if it has.
    pub(crate) reason: Option<DisconnectReason>,
}

impl Release {
    pub(crate) fn new(device: DeviceKey, epoch: Epoch) -> Self {
        Self {
            device,
            epoch,
            moving_for: Duration::ZERO,
            reason: None,
        }
    }
}

impl ByteSize for Release {
    fn org(&self) -> OrgId {
        self.device.org
    }

    fn byte_size(&self) -> usize {
        size_of::<Self>() + DeviceId::MAX_BYTES
    }
}

/// The public keys that verify tokens, as the control plane publishes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedKeys {
    /// The keys.
    pub keys: Vec<VerifyingKey>,
    /// The same, signed: a [`SignedKeySet`](switchboard_protocol::token::SignedKeySet). A former
    /// one stays if there is none.
    pub signed: Option<String>,
}

impl From<Vec<VerifyingKey>> for PublishedKeys {
    fn from(keys: Vec<VerifyingKey>) -> Self {
        Self { keys, signed: None }
    }
}

/// What decides on access tokens, as published to all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySet {
    /// Changes whenever anything of it changes, revocations included.
    pub version: u64,
    /// The public keys that verify tokens.
    pub keys: Vec<VerifyingKey>,
    /// The same keys with the signature of the control plane, if it signs them.
    pub signed: Option<String>,
    /// The number of revoked tokens that have not expired.
    pub revocations: usize,
    /// The organisations whose credentials are refused.
    pub suspended: Vec<OrgId>,
    /// The version of that list; `None` if a control plane of an earlier release published it.
    pub suspended_version: Option<u64>,
}

/// Totals of what all nodes share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// Entries of the directory.
    pub(crate) devices: i64,
    /// Device events that are not acknowledged.
    pub(crate) events: i64,
    /// Their bytes.
    pub(crate) event_bytes: i64,
    /// Turns that no worker has claimed.
    pub(crate) turns: i64,
    /// All turns, claimed ones included.
    pub(crate) turn_places: i64,
    /// Bytes of stored conversations.
    pub(crate) conversation_bytes: i64,
}
