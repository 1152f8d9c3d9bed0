//! The bus inside one process, for `up` and tests: same packs, same directory, no Redis.
//! Never: a shortcut that Redis could not take; packs are written and read here too.

mod conversations;
mod state;
mod turns;

use std::{
    collections::HashSet,
    future::{Future, ready},
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use switchboard_protocol::{
    access::VerifyingKey,
    id::{DeviceId, DeviceKey, OrgId, TokenId},
    schema::Digest,
};
use switchboard_runtime::clock::unix_now_ms;
use tokio::{sync::Notify, time::timeout};

use self::state::State;
use crate::{
    backend::{
        Backend, Claimed, Condition, Entry, Figures, Inbox, Presence, Release, Reply, TrustRecord,
        Undelivered,
    },
    conversations::{Conversation, ConversationKey, Keeping, NewVersion},
    error::BusError,
    fact::{Fact, FactId},
    node::{Epoch, NodeId},
    turns::{Held, NewTurn, TakenTurn, TurnAt},
};

/// What the nodes of one process share; cheap to clone.
#[derive(Clone, Default)]
pub struct LocalHub(Arc<Hub>);

impl std::fmt::Debug for LocalHub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalHub")
            .field("nodes", &self.0.state.lock().inboxes.len())
            .finish()
    }
}

#[derive(Default)]
struct Hub {
    state: Mutex<State>,
    recorded: Notify,
    begun: Notify,
}

struct Member {
    hub: LocalHub,
    node: NodeId,
    /// Keeps the inbox alive for as long as the node is: the hub holds it weakly.
    inbox: Arc<dyn Inbox>,
}

/// Adds a node to the hub; it leaves when its backend is dropped.
pub(crate) fn join(hub: &LocalHub, node: NodeId, inbox: Arc<dyn Inbox>) -> Arc<dyn Backend> {
    hub.0
        .state
        .lock()
        .inboxes
        .insert(node.clone(), Arc::downgrade(&inbox));
    Arc::new(Member {
        hub: hub.clone(),
        node,
        inbox,
    })
}

impl Drop for Member {
    fn drop(&mut self) {
        self.hub.0.state.lock().leave(&self.node);
    }
}

impl Member {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> Reply<'_, T>
    where
        T: Send + 'static,
    {
        Box::pin(ready(Ok(change(&mut self.hub.0.state.lock()))))
    }
}

impl Backend for Member {
    fn condition(&self) -> Condition {
        Condition {
            generation: 1,
            deaf_for: None,
        }
    }

    fn post(&self, to: &NodeId, pack: Bytes) {
        let receiver = self.hub.0.state.lock().inbox(to);
        match receiver {
            Some(receiver) => receiver.receive(pack),
            None => self.inbox.undelivered(to, pack, Undelivered::NobodyThere),
        }
    }

    fn ways(&self) -> usize {
        1
    }

    fn way(&self, _: &NodeId) -> usize {
        0
    }

    fn flush(&self, _: usize) {}

    fn is_settled(&self) -> bool {
        true
    }

    fn is_clear(&self, _: usize) -> bool {
        true
    }

    fn clear(&self, _: usize) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(ready(()))
    }

    fn broadcast(&self, pack: Bytes) -> Reply<'_, ()> {
        let inboxes: Vec<_> = self
            .hub
            .0
            .state
            .lock()
            .inboxes
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        for inbox in inboxes {
            inbox.receive(pack.clone());
        }
        Box::pin(ready(Ok(())))
    }

    fn silent<'a>(&'a self, nodes: &'a [NodeId]) -> Reply<'a, Vec<NodeId>> {
        self.with(|state| {
            nodes
                .iter()
                .filter(|node| state.inbox(node).is_none())
                .cloned()
                .collect()
        })
    }

    fn claim<'a>(&'a self, device: &'a DeviceKey) -> Reply<'a, Claimed> {
        self.with(|state| {
            let former = state.find(device.org, &device.device);
            let epoch = state.next_epoch();
            let entry = Entry {
                device: device.clone(),
                epoch,
                digest: None,
                shelve: None,
            };
            state.enter(&self.node, entry);
            Claimed { epoch, former }
        })
    }

    fn enter(&self, entries: Vec<Entry>) -> Reply<'_, Vec<Option<Epoch>>> {
        self.with(|state| {
            entries
                .into_iter()
                .map(|entry| state.enter(&self.node, entry))
                .collect()
        })
    }

    fn release(&self, releases: Vec<Release>) -> Reply<'_, ()> {
        self.with(|state| {
            releases
                .into_iter()
                .for_each(|release| state.release(&self.node, release))
        })
    }

    fn find<'a>(&'a self, org: OrgId, devices: &'a [DeviceId]) -> Reply<'a, Vec<Option<Presence>>> {
        self.with(|state| {
            devices
                .iter()
                .map(|device| state.find(org, device))
                .collect()
        })
    }

    fn list<'a>(
        &'a self,
        org: OrgId,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(DeviceId, Presence)>> {
        self.with(|state| {
            let Some(devices) = state.directory.get(&org) else {
                return Vec::new();
            };
            let live = devices
                .iter()
                .filter(|(device, _)| after.is_none_or(|after| device.as_str() > after));
            live.take(limit)
                .map(|(device, presence)| (device.clone(), presence.clone()))
                .collect()
        })
    }

    fn services<'a>(&'a self, presence: &'a Presence) -> Reply<'a, Option<Bytes>> {
        self.with(|state| {
            let digest = presence.digest?;
            state.shelves.get(&(presence.node.clone(), digest)).cloned()
        })
    }

    fn shelve(&self, services: Vec<(Digest, Bytes)>) -> Reply<'_, ()> {
        self.with(|state| {
            for (digest, json) in services {
                state.shelves.insert((self.node.clone(), digest), json);
            }
        })
    }

    fn entered(&self) -> Reply<'_, Vec<(DeviceKey, Epoch)>> {
        self.with(|state| state.entered(&self.node))
    }

    fn figures(&self) -> Reply<'_, Figures> {
        self.with(|state| state.figures())
    }

    fn close_inbox(&self) -> Reply<'_, ()> {
        self.with(|state| state.close_inbox(&self.node))
    }

    fn leave(&self, _clean: bool) -> Reply<'_, ()> {
        self.with(|state| state.leave(&self.node))
    }

    fn beat(&self) -> Reply<'_, Vec<(DeviceKey, Epoch)>> {
        Box::pin(ready(Ok(Vec::new())))
    }

    fn entrust<'a>(
        &'a self,
        keys: Option<&'a [VerifyingKey]>,
        revoked: &'a [(TokenId, u64)],
    ) -> Reply<'a, ()> {
        self.with(|state| {
            if let Some(keys) = keys {
                state.trust.keys = keys.to_vec();
            }
            let now = unix_now_ms() / 1000;
            state
                .trust
                .revoked
                .retain(|(_, expires_at)| *expires_at > now);
            for revocation in revoked {
                if !state.trust.revoked.contains(revocation) {
                    state.trust.revoked.push(*revocation);
                }
            }
            state.trust.version += 1;
        })
    }

    fn trust(&self, known: u64) -> Reply<'_, Option<TrustRecord>> {
        self.with(|state| (state.trust.version != known).then(|| state.trust.clone()))
    }

    fn record(&self, facts: Vec<Fact>) -> Reply<'_, ()> {
        let recorded = self.with(|state| facts.into_iter().for_each(|fact| state.record(fact)));
        self.hub.0.recorded.notify_waiters();
        recorded
    }

    fn facts<'a>(
        &'a self,
        _consumer: &'a str,
        max: usize,
        wait: Duration,
    ) -> Reply<'a, Vec<(FactId, Fact)>> {
        Box::pin(async move {
            let next = async {
                loop {
                    let recorded = self.hub.0.recorded.notified();
                    let batch = self.hub.0.state.lock().take_facts(max);
                    if !batch.is_empty() {
                        return batch;
                    }
                    recorded.await;
                }
            };
            Ok::<_, BusError>(timeout(wait, next).await.unwrap_or_default())
        })
    }

    fn acknowledge<'a>(&'a self, ids: &'a [FactId]) -> Reply<'a, ()> {
        let struck: HashSet<u64> = ids.iter().filter_map(|id| id.0.parse().ok()).collect();
        self.with(|state| {
            state
                .taken
                .retain(|(number, _, _)| !struck.contains(number))
        })
    }

    fn begin_turn(&self, turn: NewTurn) -> Reply<'_, TurnAt> {
        let begun = self.hub.0.state.lock().turns.begin(turn);
        self.hub.0.begun.notify_waiters();
        Box::pin(ready(begun))
    }

    fn withdraw_turns<'a>(&'a self, turns: &'a [TurnAt]) -> Reply<'a, ()> {
        self.with(|state| state.turns.withdraw(turns))
    }

    fn take_turns(&self, most: usize, wait: Duration) -> Reply<'_, Vec<TakenTurn>> {
        Box::pin(async move {
            let next = async {
                loop {
                    let begun = self.hub.0.begun.notified();
                    let (batch, lease) = {
                        let turns = &mut self.hub.0.state.lock().turns;
                        (turns.take(&self.node, most), turns.next_lease())
                    };
                    if !batch.is_empty() {
                        return batch;
                    }
                    // Whether it was told or a lease ends: look again.
                    let _ = timeout(lease, begun).await;
                }
            };
            Ok::<_, BusError>(timeout(wait, next).await.unwrap_or_default())
        })
    }

    fn keep_turns<'a>(&'a self, turns: &'a [Held]) -> Reply<'a, Vec<Held>> {
        self.with(|state| state.turns.keep(&self.node, turns))
    }

    fn turn_acted(&self, turn: Held) -> Reply<'_, bool> {
        self.with(|state| state.turns.acted(&self.node, turn))
    }

    fn end_turn(&self, turn: Held) -> Reply<'_, ()> {
        self.with(|state| state.turns.end(&self.node, turn))
    }

    fn conversation<'a>(&'a self, key: &'a ConversationKey) -> Reply<'a, Option<Conversation>> {
        self.with(|state| state.conversations.find(key))
    }

    fn keep_conversation<'a>(&'a self, new: NewVersion<'a>) -> Reply<'a, Keeping> {
        self.with(|state| state.conversations.keep(new))
    }

    fn drop_conversation<'a>(&'a self, key: &'a ConversationKey, version: u64) -> Reply<'a, bool> {
        self.with(|state| state.conversations.remove(key, version))
    }

    fn take_due_conversations(&self, most: usize, lease: Duration) -> Reply<'_, Vec<Conversation>> {
        self.with(|state| state.conversations.take_due(most, lease))
    }
}
