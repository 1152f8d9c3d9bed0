//! The state that the nodes of one process share, and the steps on it under the hub's lock.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Weak},
    time::Instant,
};

use bytes::Bytes;
use switchboard_protocol::{
    id::{DeviceId, DeviceKey, OrgId, TokenId},
    schema::Digest,
};
use switchboard_runtime::clock::unix_now_ms;

use super::{conversations::Conversations, turns::Turns};
use crate::{
    backend::{Entry, Inbox, KeySet, Presence, Release, Stats},
    directory::CatalogEvent,
    events::{ByteSize, DeviceEvent, EVENT_ACK_TIMEOUT, EventId},
    node::{Epoch, NodeId},
};

/// Events that wait while no control plane reads them. Protects memory.
const MAX_EVENT_BYTES: usize = 64 * 1024 * 1024;

#[derive(Default)]
pub(super) struct State {
    pub(super) inboxes: HashMap<NodeId, Weak<dyn Inbox>>,
    pub(super) directory: HashMap<OrgId, BTreeMap<DeviceId, Presence>>,
    pub(super) services: HashMap<(NodeId, Digest), Bytes>,
    last_epoch: u64,
    pub(super) key_set: KeySet,
    /// Revoked tokens with their expiry in Unix seconds.
    pub(super) revoked: HashMap<TokenId, u64>,
    last_event: u64,
    event_bytes: usize,
    events: VecDeque<(u64, DeviceEvent)>,
    pub(super) unacked_events: Vec<(u64, DeviceEvent, Instant)>,
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
            turns: count(self.turns.waiting_count()),
        }
    }

    pub(super) fn next_epoch(&mut self) -> Epoch {
        let now_us = unix_now_ms().saturating_mul(1000);
        self.last_epoch = now_us.max(self.last_epoch + 1);
        Epoch(self.last_epoch)
    }

    pub(super) fn find(&self, org: OrgId, device: &DeviceId) -> Option<Presence> {
        self.directory.get(&org)?.get(device).cloned()
    }

    pub(super) fn upsert(&mut self, node: &NodeId, entry: Entry) -> Option<Epoch> {
        if let (Some(digest), Some(json)) = (entry.digest, entry.services) {
            self.services.insert((node.clone(), digest), json);
        }
        let devices = self.directory.entry(entry.device.org).or_default();
        let stored = devices.get(&entry.device.device);
        if let Some(newer) = stored.map(|stored| stored.epoch)
            && newer > entry.epoch
        {
            return Some(newer);
        }
        let has_changed = stored.and_then(|stored| stored.digest) != entry.digest;
        let presence = Presence {
            node: node.clone(),
            epoch: entry.epoch,
            digest: entry.digest,
        };
        devices.insert(entry.device.device.clone(), presence);
        if has_changed {
            self.publish_services(entry.device, entry.digest);
        }
        None
    }

    pub(super) fn release(&mut self, node: &NodeId, release: Release) {
        match release {
            Release::Services(digest) => {
                self.services.remove(&(node.clone(), digest));
            }
            Release::Entry(DeviceKey { org, device }, epoch) => {
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
                if digest.is_some() {
                    self.publish_services(DeviceKey { org, device }, None);
                }
            }
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
    }

    /// Removes a node with all of its entries.
    pub(super) fn leave(&mut self, node: &NodeId) {
        self.close_inbox(node);
        self.services.retain(|(owner, _), _| owner != node);
        let mut removed = Vec::new();
        self.directory.retain(|org, devices| {
            for (device, _) in devices.extract_if(.., |_, presence| presence.node == *node) {
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

    /// Appends an event; beyond the limit, the oldest are dropped.
    pub(super) fn append_event(&mut self, event: DeviceEvent) {
        self.last_event += 1;
        self.event_bytes += event.byte_size();
        self.events.push_back((self.last_event, event));
        while self.event_bytes > MAX_EVENT_BYTES {
            let Some((_, dropped)) = self.events.pop_front() else {
                return;
            };
            self.event_bytes -= dropped.byte_size();
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
        for (number, event) in self.events.drain(..count) {
            self.event_bytes -= event.byte_size();
            events.push((number, event));
        }
        self.unacked_events.extend(
            events
                .iter()
                .cloned()
                .map(|(number, event)| (number, event, now)),
        );
        events
            .into_iter()
            .map(|(number, event)| (EventId(number.to_string()), event))
            .collect()
    }
}
