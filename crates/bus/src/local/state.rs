//! What the nodes of one process share.
//! Never: a wait; every operation is a step under the hub's lock.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Weak},
    time::Instant,
};

use bytes::Bytes;
use switchboard_protocol::{
    id::{DeviceId, DeviceKey, OrgId},
    schema::Digest,
};
use switchboard_runtime::clock::unix_now_ms;

use super::{conversations::Conversations, turns::Turns};
use crate::{
    backend::{Entry, Figures, Inbox, Presence, Release, TrustRecord},
    backlog::Weighed,
    fact::{FACT_PATIENCE, Fact, FactId},
    node::{Epoch, NodeId},
    offers::OfferChange,
};

/// Facts that wait while no control plane reads them. Protects memory.
const MAX_FACT_BYTES: usize = 64 * 1024 * 1024;

#[derive(Default)]
pub(super) struct State {
    pub(super) inboxes: HashMap<NodeId, Weak<dyn Inbox>>,
    pub(super) directory: HashMap<OrgId, BTreeMap<DeviceId, Presence>>,
    pub(super) shelves: HashMap<(NodeId, Digest), Bytes>,
    pub(super) last_epoch: u64,
    pub(super) trust: TrustRecord,
    next_fact: u64,
    fact_bytes: usize,
    pub(super) facts: VecDeque<(u64, Fact)>,
    pub(super) taken: Vec<(u64, Fact, Instant)>,
    pub(super) turns: Turns,
    pub(super) conversations: Conversations,
}

impl State {
    pub(super) fn inbox(&self, node: &NodeId) -> Option<Arc<dyn Inbox>> {
        self.inboxes.get(node).and_then(Weak::upgrade)
    }

    pub(super) fn figures(&self) -> Figures {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let devices = self.directory.values().map(BTreeMap::len).sum();
        Figures {
            devices: count(devices),
            facts: count(self.facts.len() + self.taken.len()),
            turns: count(self.turns.waiting()),
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

    pub(super) fn enter(&mut self, node: &NodeId, entry: Entry) -> Option<Epoch> {
        if let (Some(digest), Some(json)) = (entry.digest, entry.shelve) {
            self.shelves.insert((node.clone(), digest), json);
        }
        let devices = self.directory.entry(entry.device.org).or_default();
        let standing = devices.get(&entry.device.device);
        if let Some(newer) = standing.map(|standing| standing.epoch)
            && newer > entry.epoch
        {
            return Some(newer);
        }
        let changed = standing.and_then(|standing| standing.digest) != entry.digest;
        let presence = Presence {
            node: node.clone(),
            epoch: entry.epoch,
            digest: entry.digest,
        };
        devices.insert(entry.device.device.clone(), presence);
        if changed {
            self.tell(entry.device, entry.digest);
        }
        None
    }

    pub(super) fn release(&mut self, node: &NodeId, release: Release) {
        match release {
            Release::Services(digest) => {
                self.shelves.remove(&(node.clone(), digest));
            }
            Release::Entry(DeviceKey { org, device }, epoch) => {
                let Some(devices) = self.directory.get_mut(&org) else {
                    return;
                };
                let ours = devices
                    .get(&device)
                    .filter(|presence| presence.epoch == epoch);
                let Some(offered) = ours.map(|presence| presence.digest) else {
                    return;
                };
                devices.remove(&device);
                if devices.is_empty() {
                    self.directory.remove(&org);
                }
                if offered.is_some() {
                    self.tell(DeviceKey { org, device }, None);
                }
            }
        }
    }

    pub(super) fn entered(&self, node: &NodeId) -> Vec<(DeviceKey, Epoch)> {
        let mut entered = Vec::new();
        for (org, devices) in &self.directory {
            let theirs = devices
                .iter()
                .filter(|(_, presence)| presence.node == *node);
            entered.extend(theirs.map(|(device, presence)| {
                let device = device.clone();
                (DeviceKey { org: *org, device }, presence.epoch)
            }));
        }
        entered
    }

    /// Takes a node out with all it entered.
    pub(super) fn close_inbox(&mut self, node: &NodeId) {
        self.inboxes.remove(node);
    }

    pub(super) fn leave(&mut self, node: &NodeId) {
        self.close_inbox(node);
        self.shelves.retain(|(holder, _), _| holder != node);
        let mut gone = Vec::new();
        self.directory.retain(|org, devices| {
            for (device, _) in devices.extract_if(.., |_, presence| presence.node == *node) {
                gone.push(DeviceKey { org: *org, device });
            }
            !devices.is_empty()
        });
        gone.into_iter().for_each(|device| self.tell(device, None));
    }

    /// Tells who follows it, in the order of the changes.
    fn tell(&self, device: DeviceKey, digest: Option<Digest>) {
        let event = OfferChange::Services { device, digest };
        for inbox in self.inboxes.values().filter_map(Weak::upgrade) {
            inbox.offer_changed(&event);
        }
    }

    /// Adds a fact; while nobody reads them, the oldest give way.
    pub(super) fn record(&mut self, fact: Fact) {
        self.next_fact += 1;
        self.fact_bytes += fact.bytes();
        self.facts.push_back((self.next_fact, fact));
        while self.fact_bytes > MAX_FACT_BYTES {
            let Some((_, dropped)) = self.facts.pop_front() else {
                return;
            };
            self.fact_bytes -= dropped.bytes();
        }
    }

    pub(super) fn take_facts(&mut self, max: usize) -> Vec<(FactId, Fact)> {
        let now = Instant::now();
        let stale =
            |(_, _, taken): &mut (u64, Fact, Instant)| now.duration_since(*taken) >= FACT_PATIENCE;
        let mut batch: Vec<(u64, Fact)> = self
            .taken
            .extract_if(.., stale)
            .map(|(number, fact, _)| (number, fact))
            .collect();
        let count = self.facts.len().min(max.saturating_sub(batch.len()));
        for (number, fact) in self.facts.drain(..count) {
            self.fact_bytes -= fact.bytes();
            batch.push((number, fact));
        }
        self.taken.extend(
            batch
                .iter()
                .cloned()
                .map(|(number, fact)| (number, fact, now)),
        );
        batch
            .into_iter()
            .map(|(number, fact)| (FactId(number.to_string()), fact))
            .collect()
    }
}
