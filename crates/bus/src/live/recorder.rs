//! Records the live events of this node in the logs of organisations that are watched.
//!
//! Invariant: recording never waits. What is not written becomes a gap in the log.

use std::{collections::HashMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use switchboard_protocol::id::OrgId;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use super::{
    event::LiveEvent,
    log::{LOG_TTL, StoredEvent},
};
use crate::{
    backend::Release,
    bus::{Bus, Node},
    clock::unix_now_ms,
};

/// Events of an organisation that wait to be written; further ones become a gap. With the interval,
/// it bounds what one node writes of one organisation: about 1,000 in a second.
const MAX_WAITING: usize = 256;
/// Organisations whose events are written at the same time.
const WRITES_AT_ONCE: usize = 16;
const WRITE_INTERVAL: Duration = Duration::from_millis(250);
/// How long a node records without being told that the organisation is watched: longer than the log
/// exists, so that no event is missing in a log.
const WATCHED_LEASE: Duration = LOG_TTL.saturating_add(Duration::from_secs(30));
/// How often the leases are checked.
const LEASE_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The watched organisations, as this node knows them.
#[derive(Default)]
pub(crate) struct LiveRecorder {
    orgs: ArcSwap<HashMap<OrgId, Arc<Recording>>>,
    /// Held while the organisations are replaced.
    changing: Mutex<()>,
    filled: Notify,
}

struct Recording {
    lease_ends: Mutex<Instant>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    events: Vec<StoredEvent>,
    /// Events before the first one are missing.
    has_gap: bool,
    is_writing: bool,
}

impl Recording {
    fn new(has_gap: bool) -> Self {
        Self {
            lease_ends: Mutex::new(Instant::now() + WATCHED_LEASE),
            waiting: Mutex::new(Waiting {
                has_gap,
                ..Waiting::default()
            }),
        }
    }

    fn push(&self, event: StoredEvent) {
        let mut waiting = self.waiting.lock();
        if waiting.events.len() < MAX_WAITING {
            waiting.events.push(event);
        } else {
            waiting.has_gap = true;
        }
    }

    /// What is to be written. A write that was dropped may have been executed or not.
    fn take(&self) -> Vec<StoredEvent> {
        let mut waiting = self.waiting.lock();
        let has_gap = std::mem::take(&mut waiting.has_gap) || waiting.is_writing;
        let mut events = std::mem::take(&mut waiting.events);
        if has_gap {
            events.insert(0, StoredEvent::gap(unix_now_ms()));
        }
        waiting.is_writing = !events.is_empty();
        events
    }

    fn written(&self, is_written: bool) {
        let mut waiting = self.waiting.lock();
        waiting.is_writing = false;
        waiting.has_gap |= !is_written;
    }
}

impl LiveRecorder {
    fn recording(&self, org: OrgId) -> Option<Arc<Recording>> {
        self.orgs.load().get(&org).cloned()
    }

    /// An organisation is watched. Unless its log has just begun, this node may have missed events
    /// that belong in it.
    pub(crate) fn watched(&self, org: OrgId, has_begun: bool) {
        let lease_ends = Instant::now() + WATCHED_LEASE;
        if let Some(known) = self.recording(org) {
            *known.lease_ends.lock() = lease_ends;
            return;
        }
        let _changing = self.changing.lock();
        let mut orgs = HashMap::clone(&self.orgs.load());
        orgs.insert(org, Arc::new(Recording::new(!has_begun)));
        self.orgs.store(Arc::new(orgs));
        self.filled.notify_one();
    }

    /// Forgets organisations that nobody watches any more.
    fn remove_unwatched(&self) {
        let now = Instant::now();
        let is_over = |recording: &Recording| *recording.lease_ends.lock() <= now;
        if !self
            .orgs
            .load()
            .values()
            .any(|recording| is_over(recording))
        {
            return;
        }
        let _changing = self.changing.lock();
        let mut orgs = HashMap::clone(&self.orgs.load());
        orgs.retain(|_, recording| !is_over(recording));
        self.orgs.store(Arc::new(orgs));
    }

    fn renew(&self) {
        let lease_ends = Instant::now() + WATCHED_LEASE;
        for recording in self.orgs.load().values() {
            *recording.lease_ends.lock() = lease_ends;
        }
    }
}

/// Writes what was recorded, for ever.
pub(crate) async fn run(node: &Node) {
    let mut checked = Instant::now();
    loop {
        tokio::select! {
            biased;
            () = node.live.filled.notified() => {}
            () = sleep(LEASE_CHECK_INTERVAL) => {}
        }
        node.write_live().await;
        if checked.elapsed() >= LEASE_CHECK_INTERVAL {
            checked = Instant::now();
            match node.backend.status().disconnected_for {
                None => node.live.remove_unwatched(),
                // Nobody could tell this node.
                Some(_) => node.live.renew(),
            }
        }
        sleep(WRITE_INTERVAL).await;
    }
}

impl Node {
    /// Records an event if its organisation is watched.
    pub(crate) fn record_live(&self, org: OrgId, event: impl FnOnce() -> LiveEvent) {
        let orgs = self.live.orgs.load();
        let Some(recording) = orgs.get(&org) else {
            return;
        };
        if let Some(event) = event().stored(unix_now_ms()) {
            recording.push(event);
            self.live.filled.notify_one();
        }
    }

    /// Records the devices that are offline since their entries were removed. One that has another
    /// entry has moved.
    pub(crate) async fn record_offline(&self, released: &[Release]) {
        let mut watched: HashMap<OrgId, Vec<_>> = HashMap::new();
        for release in released {
            let org = release.device.org;
            if let Some(reason) = release.reason
                && self.live.recording(org).is_some()
            {
                let ended = (release.epoch, reason);
                watched
                    .entry(org)
                    .or_default()
                    .push((&release.device.device, ended));
            }
        }
        for (org, ended) in watched {
            let devices: Vec<_> = ended.iter().map(|(device, _)| (*device).clone()).collect();
            let found = self.backend.find(org, &devices).await.unwrap_or_default();
            for ((device, (epoch, reason)), presence) in ended.into_iter().zip(found) {
                if presence.is_none() {
                    let offline = || LiveEvent::offline(device.clone(), epoch, reason);
                    self.record_live(org, offline);
                }
            }
        }
    }

    /// Writes what was recorded so far.
    pub(crate) async fn write_live(&self) {
        let orgs = self.live.orgs.load_full();
        let mut writes = Vec::new();
        for (org, recording) in orgs.iter() {
            let events = recording.take();
            if !events.is_empty() {
                writes.push(self.write_recorded(*org, recording, events));
            }
        }
        let writes = stream::iter(writes).buffer_unordered(WRITES_AT_ONCE);
        writes.for_each(|()| std::future::ready(())).await;
    }

    async fn write_recorded(&self, org: OrgId, recording: &Recording, events: Vec<StoredEvent>) {
        let written = self.backend.append_log(org, &events).await;
        recording.written(written.is_ok());
        if written.is_err() {
            self.live.filled.notify_one();
        }
    }
}

impl Bus {
    /// Records what happened in an organisation, if somebody watches it. Does not wait; `event` is
    /// not called if nobody does.
    pub fn record_live(&self, org: OrgId, event: impl FnOnce() -> LiveEvent) {
        self.0.record_live(org, event);
    }
}
