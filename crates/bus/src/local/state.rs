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

use crate::{
    backend::{Entry, Inbox, Presence, Release, TrustRecord},
    fact::{FACT_PATIENCE, Fact, FactId},
    node::{Epoch, NodeId},
    trust::unix_now_ms,
};

#[derive(Default)]
pub(super) struct State {
    pub(super) inboxes: HashMap<NodeId, Weak<dyn Inbox>>,
    pub(super) directory: HashMap<OrgId, BTreeMap<DeviceId, Presence>>,
    pub(super) shelves: HashMap<(NodeId, Digest), Bytes>,
    pub(super) last_epoch: u64,
    pub(super) trust: TrustRecord,
    pub(super) values: HashMap<String, (Bytes, Instant)>,
    pub(super) next_fact: u64,
    pub(super) facts: VecDeque<(u64, Fact)>,
    pub(super) taken: Vec<(u64, Fact, Instant)>,
}

impl State {
    pub(super) fn inbox(&self, node: &NodeId) -> Option<Arc<dyn Inbox>> {
        self.inboxes.get(node).and_then(Weak::upgrade)
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
        let standing = devices
            .get(&entry.device.device)
            .map(|presence| presence.epoch);
        if let Some(newer) = standing.filter(|standing| *standing > entry.epoch) {
            return Some(newer);
        }
        let presence = Presence {
            node: node.clone(),
            epoch: entry.epoch,
            digest: entry.digest,
        };
        devices.insert(entry.device.device, presence);
        None
    }

    pub(super) fn release(&mut self, node: &NodeId, release: Release) {
        if let Some(digest) = release.unshelve {
            self.shelves.remove(&(node.clone(), digest));
        }
        let DeviceKey { org, device } = release.device;
        let Some(devices) = self.directory.get_mut(&org) else {
            return;
        };
        if devices
            .get(&device)
            .is_some_and(|presence| presence.epoch == release.epoch)
        {
            devices.remove(&device);
        }
        if devices.is_empty() {
            self.directory.remove(&org);
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
        batch.extend(self.facts.drain(..count));
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
