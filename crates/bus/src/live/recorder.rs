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
    unrecorded::UnrecordedEvents,
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
/// How far the shared clock, as two nodes have read it, is off at most.
const CLOCK_ERROR: Duration = Duration::from_secs(1);
/// How often the leases are checked.
const LEASE_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The watched organisations, as this node knows them.
#[derive(Default)]
pub(crate) struct LiveRecorder {
    orgs: ArcSwap<HashMap<OrgId, Arc<Recording>>>,
    /// Held while the organisations are replaced.
    changing: Mutex<()>,
    filled: Notify,
    unrecorded: UnrecordedEvents,
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

    /// An event could not be recorded.
    fn miss(&self) {
        self.waiting.lock().has_gap = true;
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
    /// The recording of an organisation that has an event now; `None` if it is not watched.
    fn recording(&self, org: OrgId) -> Option<Arc<Recording>> {
        let watched = self.watched_org(org);
        if watched.is_none() {
            self.unrecorded.note(org);
            return self.watched_org(org);
        }
        watched
    }

    fn watched_org(&self, org: OrgId) -> Option<Arc<Recording>> {
        self.orgs.load().get(&org).cloned()
    }

    /// An organisation is watched. `log_age` is how long ago its log began, at most; `None` if the log
    /// is one that this node should have known. The log lacks what happened here since.
    fn watched(&self, org: OrgId, log_age: Option<Duration>) {
        let is_known = || {
            let known = self.watched_org(org);
            if let Some(known) = &known {
                *known.lease_ends.lock() = Instant::now() + WATCHED_LEASE;
            }
            known.is_some()
        };
        if is_known() {
            return;
        }
        let changing = self.changing.lock();
        // Another message may have been handled in the meantime.
        if is_known() {
            return;
        }
        let recording = Arc::new(Recording::new(log_age.is_none()));
        let mut orgs = HashMap::clone(&self.orgs.load());
        orgs.insert(org, Arc::clone(&recording));
        self.orgs.store(Arc::new(orgs));
        drop(changing);
        if log_age.is_some_and(|age| self.unrecorded.were_within(org, age)) {
            recording.miss();
        }
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
    /// An organisation is watched. `began_ms` is when its log began, on the shared clock, if it has just
    /// begun.
    pub(crate) fn org_watched(&self, org: OrgId, began_ms: Option<u64>) {
        let log_age = began_ms.map(|began| {
            let elapsed = self.lease.elapsed_since(began);
            elapsed.map_or(Duration::MAX, |elapsed| elapsed + CLOCK_ERROR)
        });
        self.live.watched(org, log_age);
    }

    /// Records an event if its organisation is watched.
    pub(crate) fn record_live(&self, org: OrgId, event: impl FnOnce() -> LiveEvent) {
        let Some(recording) = self.live.recording(org) else {
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
            let Ok(found) = self.backend.find(org, &devices).await else {
                self.miss_live(org);
                continue;
            };
            for ((device, (epoch, reason)), presence) in ended.into_iter().zip(found) {
                if presence.is_none() {
                    let offline = || LiveEvent::offline(device.clone(), epoch, reason);
                    self.record_live(org, offline);
                }
            }
        }
    }

    /// An event of the organisation may have happened, and is not recorded.
    fn miss_live(&self, org: OrgId) {
        if let Some(recording) = self.live.recording(org) {
            recording.miss();
            self.live.filled.notify_one();
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

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn org() -> OrgId {
        OrgId::from_uuid(Uuid::from_u128(7))
    }

    fn event() -> StoredEvent {
        let id = "a".to_owned();
        let event = LiveEvent::SettingChanged { kind: "npc", id };
        event.stored(1).unwrap()
    }

    /// The types of what is to be written.
    fn written(recorder: &LiveRecorder) -> Vec<String> {
        let events = recorder.watched_org(org()).unwrap().take();
        events.into_iter().map(|event| event.name.into()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn recording_begins_with_a_gap_if_its_log_lacks_events_of_this_node() {
        async fn check(missed: Option<Duration>, log_age: Option<Duration>, expected: &[&str]) {
            let recorder = LiveRecorder::default();
            if let Some(missed) = missed {
                assert!(recorder.recording(org()).is_none());
                tokio::time::advance(missed).await;
            }
            recorder.watched(org(), log_age);
            recorder.recording(org()).unwrap().push(event());
            assert_eq!(written(&recorder), expected, "{missed:?}, {log_age:?}");
        }
        let whole = ["setting.changed"];
        let lacking = ["gap", "setting.changed"];
        check(None, Some(SECOND), &whole).await;
        check(None, Some(Duration::MAX), &whole).await;
        check(Some(2 * SECOND), Some(SECOND), &whole).await;
        check(Some(SECOND / 2), Some(SECOND), &lacking).await;
        check(Some(2 * SECOND), Some(Duration::MAX), &lacking).await;
        // The node knows of another log, or of none.
        check(None, None, &lacking).await;
    }

    #[tokio::test]
    async fn repeated_message_replaces_no_recording() {
        let recorder = LiveRecorder::default();
        recorder.watched(org(), Some(SECOND));
        recorder.recording(org()).unwrap().push(event());
        recorder.watched(org(), None);
        assert_eq!(written(&recorder), ["setting.changed"]);
    }
}
