//! The state that the nodes of one process share, and the steps on it under the hub's lock.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque, hash_map},
    sync::{Arc, Weak},
};

use bytes::Bytes;
use switchboard_protocol::{
    id::{DeviceId, DeviceKey, DeviceRange, OrgId, TokenId},
    schema::Digest,
};
use tokio::time::Instant;

use super::{
    conversations::Conversations,
    live::OrgLog,
    registrations::{Refused, Registrations},
    turns::Turns,
};
use crate::{
    backend::{Entry, Inbox, KeySet, Presence, Release, Stats, Upserted},
    clock::unix_now_ms,
    directory::CatalogEvent,
    events::{
        ByteSize, DeviceEvent, EVENT_ACK_TIMEOUT, EventId, MAX_EVENT_BYTES, MAX_ORG_EVENT_BYTES,
    },
    node::{Epoch, NodeId},
    quotas::QuotaLimits,
    tickets::TicketSecret,
};

#[derive(Default)]
pub(super) struct State {
    pub(super) inboxes: HashMap<NodeId, Weak<dyn Inbox>>,
    pub(super) directory: HashMap<OrgId, BTreeMap<DeviceId, Presence>>,
    pub(super) registrations: Registrations,
    /// Devices that were asked to move, until when callers wait for them.
    pub(super) moving: HashMap<DeviceKey, Instant>,
    /// What nodes published of themselves.
    pub(super) statuses: HashMap<NodeId, Bytes>,
    /// Nodes that accept devices.
    pub(super) edges: HashSet<NodeId>,
    last_epoch: u64,
    pub(super) key_set: KeySet,
    pub(super) quotas: Option<QuotaLimits>,
    /// Revoked tokens with their expiry in Unix seconds.
    pub(super) revoked: HashMap<TokenId, u64>,
    pub(super) ticket_secrets: HashMap<u64, TicketSecret>,
    last_event: u64,
    /// Of the events that are not acknowledged, in total and by organisation.
    event_bytes: usize,
    org_event_bytes: HashMap<OrgId, usize>,
    events: VecDeque<(u64, DeviceEvent)>,
    unacked_events: Vec<(u64, DeviceEvent, Instant)>,
    pub(super) live_logs: HashMap<OrgId, OrgLog>,
    pub(super) turns: Turns,
    pub(super) conversations: Conversations,
}

impl State {
    pub(super) fn inbox(&self, node: &NodeId) -> Option<Arc<dyn Inbox>> {
        self.inboxes.get(node).and_then(Weak::upgrade)
    }

    pub(super) fn stats(&self) -> Stats {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let devices = self.directory.values().map(BTreeMap::len).sum();
        Stats {
            devices: count(devices),
            events: count(self.events.len() + self.unacked_events.len()),
            event_bytes: count(self.event_bytes),
            turns: count(self.turns.waiting_count()),
            turn_places: count(self.turns.count()),
            conversation_bytes: count(self.conversations.bytes()),
        }
    }

    pub(super) fn device_count(&self, org: OrgId) -> u64 {
        self.directory
            .get(&org)
            .map_or(0, |devices| devices.len() as u64)
    }

    /// The entries of a range, in byte order.
    pub(super) fn range(
        &self,
        org: OrgId,
        range: DeviceRange<'_>,
    ) -> impl Iterator<Item = (&DeviceId, &Presence)> {
        let entries = self.directory.get(&org).into_iter().flatten();
        entries.filter(move |(device, _)| range.contains(device.as_str()))
    }

    pub(super) fn next_epoch(&mut self) -> Epoch {
        let now_us = unix_now_ms().saturating_mul(1000);
        self.last_epoch = now_us.max(self.last_epoch + 1);
        Epoch(self.last_epoch)
    }

    pub(super) fn find(&self, org: OrgId, device: &DeviceId) -> Option<Presence> {
        self.directory.get(&org)?.get(device).cloned()
    }

    pub(super) fn upsert(&mut self, node: &NodeId, entry: Entry, max_bytes: u64) -> Upserted {
        let org = entry.device.org;
        let devices = self.directory.entry(org).or_default();
        let stored = devices.get(&entry.device.device);
        if let Some(newer) = stored.map(|stored| stored.epoch)
            && newer > entry.epoch
        {
            return Upserted::Newer(newer);
        }
        let upserted = match stored {
            None => Upserted::Entered(None),
            Some(stored) if stored.epoch == entry.epoch => Upserted::Updated,
            Some(stored) => Upserted::Entered(Some(stored.node.clone())),
        };
        let before = stored.and_then(|stored| stored.digest);
        if let Some(digest) = entry.digest {
            let text = (digest, entry.services);
            match self.registrations.add(org, text, before, max_bytes) {
                Ok(()) => {}
                Err(Refused::TextMissing) => return Upserted::TextMissing,
                Err(Refused::Full) => return Upserted::Full,
            }
        }
        self.registrations.remove(org, before);
        let has_changed = before != entry.digest;
        let presence = Presence {
            node: node.clone(),
            epoch: entry.epoch,
            digest: entry.digest,
        };
        devices.insert(entry.device.device.clone(), presence);
        if has_changed {
            self.publish_services(entry.device, entry.digest);
        }
        upserted
    }

    pub(super) fn release(&mut self, release: Release) {
        let Release { epoch, .. } = release;
        let DeviceKey { org, device } = release.device.clone();
        let Some(devices) = self.directory.get_mut(&org) else {
            return;
        };
        let entry = devices
            .get(&device)
            .filter(|presence| presence.epoch == epoch);
        let Some(digest) = entry.map(|presence| presence.digest) else {
            return;
        };
        devices.remove(&device);
        if devices.is_empty() {
            self.directory.remove(&org);
        }
        let now = Instant::now();
        self.moving.retain(|_, end| *end > now);
        if !release.moving_for.is_zero() {
            self.moving.insert(release.device, now + release.moving_for);
        }
        self.registrations.remove(org, digest);
        if digest.is_some() {
            self.publish_services(DeviceKey { org, device }, None);
        }
    }

    pub(super) fn entries(&self, node: &NodeId) -> Vec<(DeviceKey, Epoch)> {
        let mut entries = Vec::new();
        for (org, devices) in &self.directory {
            let of_node = devices
                .iter()
                .filter(|(_, presence)| presence.node == *node);
            entries.extend(of_node.map(|(device, presence)| {
                let device = device.clone();
                (DeviceKey { org: *org, device }, presence.epoch)
            }));
        }
        entries
    }

    pub(super) fn close_inbox(&mut self, node: &NodeId) {
        self.inboxes.remove(node);
        self.edges.remove(node);
    }

    /// Removes a node with all of its entries.
    pub(super) fn leave(&mut self, node: &NodeId) {
        self.close_inbox(node);
        self.statuses.remove(node);
        let mut removed = Vec::new();
        let registrations = &mut self.registrations;
        self.directory.retain(|org, devices| {
            for (device, presence) in devices.extract_if(.., |_, presence| presence.node == *node) {
                registrations.remove(*org, presence.digest);
                removed.push(DeviceKey { org: *org, device });
            }
            !devices.is_empty()
        });
        for device in removed {
            self.publish_services(device, None);
        }
    }

    /// Notifies all nodes, in the order of the changes.
    fn publish_services(&self, device: DeviceKey, digest: Option<Digest>) {
        let event = CatalogEvent::Services { device, digest };
        for inbox in self.inboxes.values().filter_map(Weak::upgrade) {
            inbox.catalog_changed(&event);
        }
    }

    /// Appends an event. Returns whether there is room for it, in total and in the share of its
    /// organisation.
    pub(super) fn append_event(&mut self, event: &DeviceEvent) -> bool {
        let (org, size) = (event.device().org, event.byte_size());
        let of_org = self.org_event_bytes.get(&org).copied().unwrap_or_default() + size;
        if of_org > MAX_ORG_EVENT_BYTES || self.event_bytes + size > MAX_EVENT_BYTES {
            return false;
        }
        self.org_event_bytes.insert(org, of_org);
        self.event_bytes += size;
        self.last_event += 1;
        self.events.push_back((self.last_event, event.clone()));
        true
    }

    /// Removes events that were read.
    pub(super) fn ack_events(&mut self, acked: &HashSet<u64>) {
        let acked = |(number, _, _): &mut (u64, DeviceEvent, Instant)| acked.contains(number);
        for (_, event, _) in self.unacked_events.extract_if(.., acked) {
            let (org, size) = (event.device().org, event.byte_size());
            self.event_bytes -= size;
            if let hash_map::Entry::Occupied(mut bytes) = self.org_event_bytes.entry(org) {
                *bytes.get_mut() -= size;
                if *bytes.get() == 0 {
                    bytes.remove();
                }
            }
        }
    }

    pub(super) fn read_events(&mut self, max: usize) -> Vec<(EventId, DeviceEvent)> {
        let now = Instant::now();
        let has_timed_out = |(_, _, read_at): &mut (u64, DeviceEvent, Instant)| {
            now.duration_since(*read_at) >= EVENT_ACK_TIMEOUT
        };
        let mut events: Vec<(u64, DeviceEvent)> = self
            .unacked_events
            .extract_if(.., has_timed_out)
            .map(|(number, event, _)| (number, event))
            .collect();
        let count = self.events.len().min(max.saturating_sub(events.len()));
        events.extend(self.events.drain(..count));
        self.unacked_events.extend(
            events
                .iter()
                .cloned()
                .map(|(number, event)| (number, event, now)),
        );
        events
            .into_iter()
            .map(|(number, event)| {
                let id = EventId {
                    entry: number.to_string(),
                    org: event.device().org,
                    bytes: event.byte_size(),
                };
                (id, event)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use uuid::Uuid;

    use super::*;

    const EVENT_BYTES: usize = 1024 * 1024;

    fn event(org: u128) -> DeviceEvent {
        DeviceEvent::Custom {
            device: DeviceKey {
                org: OrgId::from_uuid(Uuid::from_u128(org)),
                device: "toy-1".parse().unwrap(),
            },
            epoch: Epoch(1),
            at_ms: 1,
            id: Uuid::nil(),
            json: Bytes::from(vec![b' '; EVENT_BYTES]),
        }
    }

    /// Appends events until one is refused. Returns how many there is room for.
    fn fill(state: &mut State, org: u128) -> usize {
        (0..1000)
            .take_while(|_| state.append_event(&event(org)))
            .count()
    }

    fn ack_one(state: &mut State) -> DeviceEvent {
        let (id, event) = state.read_events(1).remove(0);
        state.ack_events(&HashSet::from([id.entry.parse().unwrap()]));
        event
    }

    #[test]
    fn events_of_one_organisation_leave_room_for_others() {
        let mut state = State::default();
        let share = MAX_ORG_EVENT_BYTES / event(1).byte_size();
        for org in 1..=4 {
            assert_eq!(fill(&mut state, org), share);
        }
        let rest = MAX_EVENT_BYTES / event(1).byte_size() - 4 * share;
        assert_eq!(fill(&mut state, 5), rest);
        // What is read takes room until it is acknowledged.
        assert_eq!(state.read_events(1)[0].1, event(1));
        assert_eq!(fill(&mut state, 1), 0);
        assert_eq!(ack_one(&mut state), event(1));
        assert_eq!(fill(&mut state, 1), 1);
        while state.stats().events > 1 {
            ack_one(&mut state);
        }
        assert_eq!(fill(&mut state, 3), share);
    }
}
