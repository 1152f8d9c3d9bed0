//! The bus inside one process, for `up` and for tests.
//!
//! Invariant: nothing works here that could not work over Redis; batches are encoded and decoded
//! here, too.

mod conversations;
mod live;
mod quotas;
mod registrations;
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
use switchboard_protocol::id::{DeviceId, DeviceKey, DeviceRange, OrgId, TokenId};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

use self::state::State;
use crate::{
    auth::REVOCATION_KEPT,
    backend::{
        Backend, BackendFuture, Claim, ConnectionStatus, ConversationStore, DeliveryFailure,
        Directory, Entry, EventStream, Inbox, KeySet, KeyStore, LEASE, Presence, PublishedKeys,
        Release, Renewal, Stats, Transport, TurnQueue, Upserted,
    },
    clock::{unix_now_ms, unix_time},
    conversations::{
        Conversation, ConversationKey, ConversationWrite, ConversationsInFlight, SaveResult,
    },
    error::BusError,
    events::{DeviceEvent, EventId},
    node::{Epoch, NodeId},
    quotas::too_many_devices,
    tickets::TicketSecret,
    turns::{ClaimedTurn, Lease, NewTurn, OrgRoom, Rooms, TurnPosition},
};

/// The state that the nodes of one process share; cheap to clone.
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
    events_appended: Notify,
    turns_enqueued: Notify,
}

/// The backend of one node.
struct Member {
    hub: LocalHub,
    node: NodeId,
    /// Keeps the inbox alive: the hub holds a weak reference.
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
    fn with_state<T>(&self, access: impl FnOnce(&mut State) -> T) -> BackendFuture<'_, T>
    where
        T: Send + 'static,
    {
        Box::pin(ready(Ok(access(&mut self.hub.0.state.lock()))))
    }
}

impl Transport for Member {
    fn status(&self) -> ConnectionStatus {
        ConnectionStatus {
            generation: 1,
            disconnected_for: None,
        }
    }

    fn publish(&self, to: &NodeId, batch: Bytes) {
        let receiver = self.hub.0.state.lock().inbox(to);
        match receiver {
            Some(receiver) => receiver.receive(batch),
            None => {
                let reason = DeliveryFailure::NoSubscriber;
                self.inbox.undelivered(to, batch, reason);
            }
        }
    }

    fn route_count(&self) -> usize {
        1
    }

    fn route(&self, _: &NodeId) -> usize {
        0
    }

    fn flush(&self, _: usize) {}

    fn is_idle(&self, _: usize) -> bool {
        true
    }

    fn wait_idle(&self, _: usize) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(ready(()))
    }

    fn is_redelivering(&self) -> bool {
        false
    }

    fn broadcast(&self, batch: Bytes) -> BackendFuture<'_, ()> {
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
            inbox.receive(batch.clone());
        }
        Box::pin(ready(Ok(())))
    }

    fn find_unsubscribed<'a>(&'a self, nodes: &'a [NodeId]) -> BackendFuture<'a, Vec<NodeId>> {
        self.with_state(|state| {
            nodes
                .iter()
                .filter(|node| state.inbox(node).is_none())
                .cloned()
                .collect()
        })
    }

    fn close_inbox(&self) -> BackendFuture<'_, ()> {
        self.with_state(|state| state.close_inbox(&self.node))
    }

    fn leave(&self, _release_lease: bool) -> BackendFuture<'_, ()> {
        self.with_state(|state| state.leave(&self.node))
    }
}

impl Directory for Member {
    fn claim<'a>(&'a self, device: &'a DeviceKey, limit: Option<u64>) -> BackendFuture<'a, Claim> {
        let claim = |state: &mut State| {
            let previous = state.find(device.org, &device.device);
            let used = state.device_count(device.org);
            if let Some(limit) = limit.filter(|limit| previous.is_none() && used >= *limit) {
                return Err(too_many_devices(used, limit));
            }
            let epoch = state.next_epoch();
            let registered = previous.as_ref().and_then(|previous| previous.digest);
            let is_entered = registered.is_none();
            if is_entered {
                let entry = Entry {
                    device: device.clone(),
                    epoch,
                    digest: None,
                    services: None,
                };
                state.upsert(&self.node, entry, 0);
            }
            Ok(Claim {
                epoch,
                previous,
                is_entered,
            })
        };
        Box::pin(ready(claim(&mut self.hub.0.state.lock())))
    }

    fn upsert(&self, entries: Vec<Entry>, max_bytes: u64) -> BackendFuture<'_, Vec<Upserted>> {
        self.with_state(|state| {
            entries
                .into_iter()
                .map(|entry| state.upsert(&self.node, entry, max_bytes))
                .collect()
        })
    }

    fn release(&self, releases: Vec<Release>) -> BackendFuture<'_, ()> {
        self.with_state(|state| {
            releases
                .into_iter()
                .for_each(|release| state.release(release))
        })
    }

    fn find<'a>(
        &'a self,
        org: OrgId,
        devices: &'a [DeviceId],
    ) -> BackendFuture<'a, Vec<Option<Presence>>> {
        self.with_state(|state| {
            devices
                .iter()
                .map(|device| state.find(org, device))
                .collect()
        })
    }

    fn list<'a>(
        &'a self,
        org: OrgId,
        range: DeviceRange<'a>,
        limit: usize,
    ) -> BackendFuture<'a, Vec<(DeviceId, Presence)>> {
        self.with_state(|state| {
            let live = state.range(org, range).take(limit);
            live.map(|(device, presence)| (device.clone(), presence.clone()))
                .collect()
        })
    }

    fn count<'a>(&'a self, org: OrgId, range: DeviceRange<'a>) -> BackendFuture<'a, u64> {
        self.with_state(|state| state.range(org, range).count() as u64)
    }

    fn services<'a>(
        &'a self,
        org: OrgId,
        presence: &'a Presence,
    ) -> BackendFuture<'a, Option<Bytes>> {
        self.with_state(|state| {
            let digest = presence.digest?;
            state.registrations.text(org, digest)
        })
    }

    fn entries(&self) -> BackendFuture<'_, Vec<(DeviceKey, Epoch)>> {
        self.with_state(|state| state.entries(&self.node))
    }

    fn is_moving<'a>(&'a self, device: &'a DeviceKey) -> BackendFuture<'a, bool> {
        self.with_state(|state| {
            let end = state.moving.get(device);
            end.is_some_and(|end| Instant::now() < *end)
        })
    }

    fn await_reply(&self) -> BackendFuture<'_, ()> {
        self.with_state(|_| ())
    }

    fn renew_lease(&self, accepts_devices: bool) -> BackendFuture<'_, Renewal> {
        self.with_state(|state| {
            state.edges.remove(&self.node);
            let other_edges = state.edges.len();
            if accepts_devices {
                state.edges.insert(self.node.clone());
            }
            Renewal {
                now: unix_time(),
                dead: Vec::new(),
                other_edges,
            }
        })
    }

    fn leases<'a>(&'a self, nodes: &'a [NodeId]) -> BackendFuture<'a, Vec<(NodeId, Duration)>> {
        self.with_state(|state| {
            let left = |node: &NodeId| state.inbox(node).map_or(Duration::ZERO, |_| LEASE);
            nodes
                .iter()
                .map(|node| (node.clone(), left(node)))
                .collect()
        })
    }

    fn publish_status(&self, status: Bytes) -> BackendFuture<'_, ()> {
        self.with_state(|state| drop(state.statuses.insert(self.node.clone(), status)))
    }

    fn nodes(&self) -> BackendFuture<'_, Vec<(NodeId, Option<Bytes>)>> {
        self.with_state(|state| {
            let nodes = state.inboxes.keys();
            nodes
                .map(|node| (node.clone(), state.statuses.get(node).cloned()))
                .collect()
        })
    }

    fn remove_dead<'a>(&'a self, _: &'a NodeId) -> BackendFuture<'a, Vec<(DeviceKey, Epoch)>> {
        Box::pin(ready(Ok(Vec::new())))
    }

    fn stats(&self) -> BackendFuture<'_, Stats> {
        self.with_state(|state| state.stats())
    }
}

impl KeyStore for Member {
    fn publish_keys<'a>(
        &'a self,
        keys: Option<&'a PublishedKeys>,
        revoked: &'a [(TokenId, u64)],
    ) -> BackendFuture<'a, ()> {
        self.with_state(|state| {
            if let Some(keys) = keys {
                state.key_set.keys.clone_from(&keys.keys);
                let signed = keys.signed.clone().or(state.key_set.signed.take());
                state.key_set.signed = signed;
            }
            let now = unix_now_ms() / 1000;
            let kept = REVOCATION_KEPT.as_secs();
            state
                .revoked
                .retain(|_, expires_at| *expires_at + kept > now);
            state.revoked.extend(revoked.iter().copied());
            state.key_set.version += 1;
        })
    }

    fn publish_suspended_orgs<'a>(
        &'a self,
        orgs: &'a [OrgId],
        version: u64,
    ) -> BackendFuture<'a, ()> {
        self.with_state(|state| {
            let set = &mut state.key_set;
            if set.suspended_version <= Some(version) {
                set.suspended = orgs.to_vec();
                set.suspended_version = Some(version);
                set.version += 1;
            }
        })
    }

    fn key_set(&self, now_unix_s: u64) -> BackendFuture<'_, Option<KeySet>> {
        self.with_state(|state| {
            let unexpired = state.revoked.values().filter(|at| **at > now_unix_s);
            (state.key_set.version > 0).then(|| KeySet {
                revocations: unexpired.count(),
                ..state.key_set.clone()
            })
        })
    }

    fn revoked_tokens(&self) -> BackendFuture<'_, Vec<(TokenId, u64)>> {
        self.with_state(|state| {
            let revoked = state.revoked.iter();
            revoked.map(|(token, at)| (*token, *at)).collect()
        })
    }

    fn ticket_secrets<'a>(
        &'a self,
        proposed: &'a [(u64, TicketSecret)],
    ) -> BackendFuture<'a, Vec<TicketSecret>> {
        self.with_state(|state| {
            let secrets = &mut state.ticket_secrets;
            secrets.retain(|period, _| proposed.iter().any(|(kept, _)| kept == period));
            let stored =
                |(period, new): &(u64, TicketSecret)| *secrets.entry(*period).or_insert(*new);
            proposed.iter().map(stored).collect()
        })
    }
}

impl EventStream for Member {
    fn append_events<'a>(&'a self, events: &'a [DeviceEvent]) -> BackendFuture<'a, Vec<usize>> {
        let appended = self.with_state(|state| {
            let events = events.iter().enumerate();
            let refused = events.filter(|(_, event)| !state.append_event(event));
            refused.map(|(index, _)| index).collect()
        });
        self.hub.0.events_appended.notify_waiters();
        appended
    }

    fn read_events<'a>(
        &'a self,
        _consumer: &'a str,
        max: usize,
        wait: Duration,
    ) -> BackendFuture<'a, Vec<(EventId, DeviceEvent)>> {
        Box::pin(async move {
            let next = async {
                loop {
                    let appended = self.hub.0.events_appended.notified();
                    let events = self.hub.0.state.lock().read_events(max);
                    if !events.is_empty() {
                        return events;
                    }
                    appended.await;
                }
            };
            Ok::<_, BusError>(timeout(wait, next).await.unwrap_or_default())
        })
    }

    fn ack_events<'a>(&'a self, ids: &'a [EventId]) -> BackendFuture<'a, ()> {
        let acked = ids.iter();
        let acked: HashSet<u64> = acked.filter_map(|id| id.entry.parse().ok()).collect();
        self.with_state(|state| state.ack_events(&acked))
    }
}

impl TurnQueue for Member {
    fn enqueue_turn(&self, turn: NewTurn) -> BackendFuture<'_, TurnPosition> {
        let enqueued = self.hub.0.state.lock().turns.enqueue(turn);
        self.hub.0.turns_enqueued.notify_waiters();
        Box::pin(ready(enqueued))
    }

    fn delete_turns<'a>(&'a self, _org: OrgId, turns: &'a [TurnPosition]) -> BackendFuture<'a, ()> {
        self.with_state(|state| state.turns.delete(turns))
    }

    fn claim_turns<'a>(
        &'a self,
        max: usize,
        wait: Duration,
        room: &'a OrgRoom<'a>,
    ) -> BackendFuture<'a, Vec<ClaimedTurn>> {
        Box::pin(async move {
            let next = async {
                loop {
                    let enqueued = self.hub.0.turns_enqueued.notified();
                    let (claimed, next_claim) = {
                        let turns = &mut self.hub.0.state.lock().turns;
                        turns.claim(&self.node, max, Rooms::new(room))
                    };
                    if !claimed.is_empty() {
                        return claimed;
                    }
                    // A new turn, an expired lease, or perhaps room: each ends the wait.
                    let _ = timeout(next_claim, enqueued).await;
                }
            };
            Ok::<_, BusError>(timeout(wait, next).await.unwrap_or_default())
        })
    }

    fn renew_turns<'a>(&'a self, turns: &'a [Lease]) -> BackendFuture<'a, Vec<Lease>> {
        self.with_state(|state| state.turns.renew(&self.node, turns))
    }

    fn mark_side_effects(&self, turn: Lease) -> BackendFuture<'_, bool> {
        self.with_state(|state| state.turns.mark_side_effects(&self.node, turn))
    }

    fn complete_turn(&self, _org: OrgId, turn: Lease) -> BackendFuture<'_, ()> {
        self.with_state(|state| state.turns.complete(&self.node, turn))
    }
}

impl ConversationStore for Member {
    fn conversation<'a>(
        &'a self,
        key: &'a ConversationKey,
    ) -> BackendFuture<'a, Option<Conversation>> {
        self.with_state(|state| state.conversations.find(key))
    }

    fn save_conversation<'a>(
        &'a self,
        write: ConversationWrite<'a>,
    ) -> BackendFuture<'a, SaveResult> {
        self.with_state(|state| state.conversations.save(write))
    }

    fn delete_conversation<'a>(
        &'a self,
        key: &'a ConversationKey,
        version: u64,
    ) -> BackendFuture<'a, bool> {
        self.with_state(|state| state.conversations.delete(key, version))
    }

    fn claim_due_conversations<'a>(
        &'a self,
        max: usize,
        lease: Duration,
        in_flight: &'a ConversationsInFlight,
    ) -> BackendFuture<'a, Vec<Conversation>> {
        self.with_state(|state| state.conversations.claim_due(max, lease, in_flight))
    }
}
