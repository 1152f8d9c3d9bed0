//! What carries packs, and what holds the shared state: the seam between the bus and Redis.
//! Never: knowledge of calls or tokens; a backend moves bytes and keeps entries.

use std::{future::Future, pin::Pin, time::Duration};

use bytes::Bytes;
use switchboard_protocol::{
    access::VerifyingKey,
    id::{DeviceId, DeviceKey, OrgId, TokenId},
    schema::Digest,
};

use crate::{
    backlog::Weighed,
    conversations::{Conversation, ConversationKey, Keeping, NewVersion},
    error::BusError,
    fact::{Fact, FactId},
    node::{Epoch, NodeId},
    offers::OfferChange,
    turns::{Held, NewTurn, TakenTurn, TurnAt},
};

/// A backend's answer, later.
pub(crate) type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, BusError>> + Send + 'a>>;

/// Receives what was published to a node. Must not block.
pub(crate) trait Inbox: Send + Sync + 'static {
    fn receive(&self, pack: Bytes);

    /// A pack of this node did not arrive, as far as is known.
    fn undelivered(&self, to: &NodeId, pack: Bytes, why: Undelivered);

    /// The connection was (re)built and verified.
    fn healed(&self);

    /// Something that is said to every node may not have been heard here.
    fn missed(&self);

    /// Whether the node wants to hear of registrations.
    fn follows(&self) -> bool;

    /// The services in a device's entry changed. Only of use to a node that follows this.
    fn offer_changed(&self, event: &OfferChange);
}

/// What is known of a pack that did not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undelivered {
    /// Nobody listened at that inbox.
    NobodyThere,
    /// It certainly did not leave this node.
    Unsent,
    /// It may have arrived.
    Unknown,
}

/// A live connection, as the directory has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// The node that holds it.
    pub node: NodeId,
    /// Which connection of the device it is.
    pub epoch: Epoch,
    /// The services it registered, if it did.
    pub digest: Option<Digest>,
}

/// What a claim found and left.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) epoch: Epoch,
    pub(crate) former: Option<Presence>,
}

/// A connection to be entered under this node.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) device: DeviceKey,
    pub(crate) epoch: Epoch,
    pub(crate) digest: Option<Digest>,
    /// The services, when this node has not shelved them yet.
    pub(crate) shelve: Option<Bytes>,
}

/// What a node takes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Release {
    /// A connection's entry, if it still stands.
    Entry(DeviceKey, Epoch),
    /// Services that no connection of this node uses any more.
    Services(Digest),
}

impl Weighed for Release {
    fn bytes(&self) -> usize {
        size_of::<Self>() + DeviceId::MAX_BYTES
    }
}

/// Whom to trust: the newest keys and everything revoked.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrustRecord {
    pub(crate) version: u64,
    pub(crate) keys: Vec<VerifyingKey>,
    pub(crate) revoked: Vec<(TokenId, u64)>,
}

/// How much there is of what all nodes share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Entries of the directory.
    pub(crate) devices: i64,
    /// Facts that wait to be written.
    pub(crate) facts: i64,
    /// Turns that nobody has taken.
    pub(crate) turns: i64,
}

/// How well a node is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Condition {
    /// Counts the verified connections so far; 0 before the first.
    pub(crate) generation: u64,
    /// How long there has been no verified connection; `None` while there is one.
    pub(crate) deaf_for: Option<Duration>,
}

/// Redis, or this process. Every future ends in bounded time.
pub(crate) trait Backend: Send + Sync + 'static {
    fn condition(&self) -> Condition;

    /// Takes a pack for a node, without waiting; [`Self::flush`] sends what was taken. A pack
    /// that does not arrive is told to [`Inbox::undelivered`].
    fn post(&self, to: &NodeId, pack: Bytes);
    /// By how many ways packs leave, that do not wait for each other.
    fn ways(&self) -> usize;
    /// By which of them a pack for this node would leave now.
    fn way(&self, to: &NodeId) -> usize;
    fn flush(&self, way: usize);
    /// Whether nothing is under way there, so that a pack had better leave at once than wait for others.
    fn is_clear(&self, way: usize) -> bool;
    /// Whether no pack has come back that goes on from here without its sender.
    fn is_settled(&self) -> bool;
    /// Waits until nothing is under way there.
    fn clear(&self, way: usize) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    fn broadcast(&self, pack: Bytes) -> Reply<'_, ()>;
    /// Which of these nodes have nobody listening at their inbox.
    fn silent<'a>(&'a self, nodes: &'a [NodeId]) -> Reply<'a, Vec<NodeId>>;

    fn claim<'a>(&'a self, device: &'a DeviceKey) -> Reply<'a, Claimed>;
    /// Enters all that is not older than what stands; answers the newer epochs that stand.
    fn enter(&self, entries: Vec<Entry>) -> Reply<'_, Vec<Option<Epoch>>>;
    fn release(&self, releases: Vec<Release>) -> Reply<'_, ()>;
    fn find<'a>(&'a self, org: OrgId, devices: &'a [DeviceId]) -> Reply<'a, Vec<Option<Presence>>>;
    fn list<'a>(
        &'a self,
        org: OrgId,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(DeviceId, Presence)>>;
    fn services<'a>(&'a self, presence: &'a Presence) -> Reply<'a, Option<Bytes>>;
    /// Puts services where other nodes can read them.
    fn shelve(&self, services: Vec<(Digest, Bytes)>) -> Reply<'_, ()>;
    /// Every entry under this node.
    fn entered(&self) -> Reply<'_, Vec<(DeviceKey, Epoch)>>;
    /// Renews this node's lease and takes out what dead nodes left.
    fn beat(&self) -> Reply<'_, Vec<(DeviceKey, Epoch)>>;
    /// How much is shared now. The directory is counted by one node for all, and seldom.
    fn figures(&self) -> Reply<'_, Figures>;
    /// Takes no pack in any more, so that whoever posts one from now on is told that nobody is there; every pack that came
    /// before has been received when this ends. Asked for once, at the end of a node that still says what it has to say.
    fn close_inbox(&self) -> Reply<'_, ()>;
    /// Ends this node: nobody is heard here any more. With `clean` it leaves nothing behind and
    /// gives its lease back; else the lease ends by itself and what is left is reaped.
    fn leave(&self, clean: bool) -> Reply<'_, ()>;

    /// Adds to what is trusted; keys replace, revocations are added.
    fn entrust<'a>(
        &'a self,
        keys: Option<&'a [VerifyingKey]>,
        revoked: &'a [(TokenId, u64)],
    ) -> Reply<'a, ()>;
    /// The record if its version is not `known`.
    fn trust(&self, known: u64) -> Reply<'_, Option<TrustRecord>>;

    fn record(&self, facts: Vec<Fact>) -> Reply<'_, ()>;
    fn facts<'a>(
        &'a self,
        consumer: &'a str,
        max: usize,
        wait: Duration,
    ) -> Reply<'a, Vec<(FactId, Fact)>>;
    fn acknowledge<'a>(&'a self, ids: &'a [FactId]) -> Reply<'a, ()>;

    /// Puts a turn where one of those who take them finds it; its place in their order.
    fn begin_turn(&self, turn: NewTurn) -> Reply<'_, TurnAt>;
    /// Takes out turns that nobody wants answered any more, taken or not.
    fn withdraw_turns<'a>(&'a self, turns: &'a [TurnAt]) -> Reply<'a, ()>;
    /// The next turns, for this node alone until its lease of them ends.
    fn take_turns(&self, most: usize, wait: Duration) -> Reply<'_, Vec<TakenTurn>>;
    /// Renews leases; of which turns, because they are still this node's.
    fn keep_turns<'a>(&'a self, turns: &'a [Held]) -> Reply<'a, Vec<Held>>;
    /// Notes that the turn's taker acts; false when it is not this node's any more.
    fn turn_acted(&self, turn: Held) -> Reply<'_, bool>;
    /// Strikes a turn out, if it still is this node's.
    fn end_turn(&self, turn: Held) -> Reply<'_, ()>;

    fn conversation<'a>(&'a self, key: &'a ConversationKey) -> Reply<'a, Option<Conversation>>;
    /// Keeps it if what stands is what is to be replaced.
    fn keep_conversation<'a>(&'a self, new: NewVersion<'a>) -> Reply<'a, Keeping>;
    /// Forgets it in this version; whether it stood.
    fn drop_conversation<'a>(&'a self, key: &'a ConversationKey, version: u64) -> Reply<'a, bool>;
    /// Those that are due, for nobody else until the lease ends.
    fn take_due_conversations(&self, most: usize, lease: Duration) -> Reply<'_, Vec<Conversation>>;
}
