//! The contract between the bus and what carries it: Redis, or the memory of one process.
//!
//! A backend moves bytes and stores entries; it knows nothing of calls or call tokens. There is
//! one trait for each subject, and [`Backend`] is all of them. Every future completes in bounded
//! time.

use std::{future::Future, pin::Pin, time::Duration};

use bytes::Bytes;
use switchboard_protocol::{
    id::{DeviceId, DeviceKey, OrgId, TokenId},
    schema::Digest,
    token::VerifyingKey,
};

use crate::{
    conversations::{Conversation, ConversationKey, ConversationWrite, SaveResult},
    directory::CatalogEvent,
    error::BusError,
    events::{ByteSize, DeviceEvent, EventId},
    node::{Epoch, NodeId},
    turns::{ClaimedTurn, Lease, NewTurn, OrgRoom, TurnPosition},
};

/// What a backend's asynchronous methods return.
pub(crate) type BackendFuture<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, BusError>> + Send + 'a>>;

/// Everything that a node needs from a backend.
pub(crate) trait Backend:
    Transport + Directory + KeyStore + EventStream + TurnQueue + ConversationStore
{
}

impl<T> Backend for T where
    T: Transport + Directory + KeyStore + EventStream + TurnQueue + ConversationStore
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
    /// Enters a new connection of a device under this node, with a new epoch.
    fn claim<'a>(&'a self, device: &'a DeviceKey) -> BackendFuture<'a, Claim>;

    /// Writes entries unless a newer one is stored. Returns, in order, the newer epochs.
    fn upsert(&self, entries: Vec<Entry>) -> BackendFuture<'_, Vec<Option<Epoch>>>;

    fn release(&self, releases: Vec<Release>) -> BackendFuture<'_, ()>;

    fn find<'a>(
        &'a self,
        org: OrgId,
        devices: &'a [DeviceId],
    ) -> BackendFuture<'a, Vec<Option<Presence>>>;

    fn list<'a>(
        &'a self,
        org: OrgId,
        after: Option<&'a str>,
        limit: usize,
    ) -> BackendFuture<'a, Vec<(DeviceId, Presence)>>;

    /// The services object behind an entry.
    fn services<'a>(&'a self, presence: &'a Presence) -> BackendFuture<'a, Option<Bytes>>;

    /// Stores services objects where other nodes can read them.
    fn store_services(&self, services: Vec<(Digest, Bytes)>) -> BackendFuture<'_, ()>;

    /// Every entry under this node.
    fn entries(&self) -> BackendFuture<'_, Vec<(DeviceKey, Epoch)>>;

    /// Renews this node's lease. Returns the entries of dead nodes that were removed.
    fn renew_lease(&self) -> BackendFuture<'_, Vec<(DeviceKey, Epoch)>>;

    /// Totals over all nodes. One node counts the directory for all, once a minute.
    fn stats(&self) -> BackendFuture<'_, Stats>;
}

/// Stores the public keys that verify tokens, the revoked tokens, and the suspended organisations.
pub(crate) trait KeyStore: Send + Sync + 'static {
    /// Replaces the keys, if any are given, and adds revocations with their expiry.
    fn publish_keys<'a>(
        &'a self,
        keys: Option<&'a [VerifyingKey]>,
        revoked: &'a [(TokenId, u64)],
    ) -> BackendFuture<'a, ()>;

    /// Replaces the suspended organisations.
    fn publish_suspended_orgs<'a>(&'a self, orgs: &'a [OrgId]) -> BackendFuture<'a, ()>;

    /// The current key set; `None` when nothing is stored.
    fn key_set(&self, now_unix_s: u64) -> BackendFuture<'_, Option<KeySet>>;

    /// All revoked tokens with their expiry in Unix seconds.
    fn revoked_tokens(&self) -> BackendFuture<'_, Vec<(TokenId, u64)>>;
}

/// Carries device events to the control plane, at least once.
pub(crate) trait EventStream: Send + Sync + 'static {
    fn append_events(&self, events: Vec<DeviceEvent>) -> BackendFuture<'_, ()>;

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
    fn claim_due_conversations(
        &self,
        max: usize,
        lease: Duration,
    ) -> BackendFuture<'_, Vec<Conversation>>;
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

/// The result of a claim.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) epoch: Epoch,
    pub(crate) previous: Option<Presence>,
}

/// A connection to be entered under this node.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) device: DeviceKey,
    pub(crate) epoch: Epoch,
    pub(crate) digest: Option<Digest>,
    /// The services object, if this node has not stored it yet.
    pub(crate) services: Option<Bytes>,
}

/// What a node removes from the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Release {
    /// A connection's entry, if it is still the stored one.
    Entry(DeviceKey, Epoch),
    /// Services that no connection of this node uses.
    Services(Digest),
}

impl ByteSize for Release {
    fn byte_size(&self) -> usize {
        size_of::<Self>() + DeviceId::MAX_BYTES
    }
}

/// What decides on access tokens, as published to all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySet {
    /// Changes whenever anything of it changes, revocations included.
    pub version: u64,
    /// The public keys that verify tokens.
    pub keys: Vec<VerifyingKey>,
    /// The number of revoked tokens that have not expired.
    pub revocations: usize,
    /// The organisations whose credentials are refused.
    pub suspended: Vec<OrgId>,
}

/// Totals of what all nodes share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// Entries of the directory.
    pub(crate) devices: i64,
    /// Device events that are not acknowledged.
    pub(crate) events: i64,
    /// Turns that no worker has claimed.
    pub(crate) turns: i64,
}
