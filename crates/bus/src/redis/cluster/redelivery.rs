//! Publishes batches again that were not delivered because their slot has moved.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::sleep};

use super::{routes::parse_moved, slots::slot};
use crate::{
    backend::{DeliveryFailure, Inbox},
    node::NodeId,
    redis::{
        keys::Keys,
        publisher::{Attempt, FailedPublish, FailureSink},
    },
};

/// How long after a slot has moved its subscribers may not have followed it, so that a batch
/// without a subscriber is tried again. It is also how long a batch is retried.
const MOVE_GRACE: Duration = Duration::from_secs(2);
const RETRY_DELAY: Duration = Duration::from_millis(10);
/// Protects memory while many slots move.
const MAX_QUEUED_BYTES: usize = 64 * 1024 * 1024;
/// Batches that may wait for the role of their server. Protects memory while it does not answer.
const MAX_ABSENCES: usize = 10_000;

/// Queues undelivered batches, until they are published again or have failed.
///
/// ```text
///   publish failed ─┬─ NotSent or NoSubscriber, slot moved within 2 s ──► queue ─► publish again
///                   ├─ NoSubscriber, slot has not moved ─► absences ─► role of the server:
///                   │                         replica ─► queue; master ─► NoSubscriber
///                   └─ else ─► reported to the inbox
/// ```
///
/// Invariant: a batch is not retried if a subscriber of a master may have received it, and not
/// for longer than 2 s.
pub(crate) struct Redelivery {
    keys: Keys,
    inbox: Arc<dyn Inbox>,
    state: Mutex<State>,
    queued: Notify,
    absent: Notify,
    /// A shard refused a batch because it knows no owner of the slot.
    pub(super) owner_unknown: Notify,
}

pub(super) struct QueuedBatch {
    pub(super) to: NodeId,
    pub(super) batch: Bytes,
    pub(super) attempt: Attempt,
}

#[derive(Default)]
struct State {
    /// Slots that have moved, and when.
    moved_at: HashMap<u16, Instant>,
    /// Owners that were reported by `MOVED`.
    moved_to: Vec<(u16, String)>,
    batches: Vec<QueuedBatch>,
    /// Batches without a subscriber whose server may not be a master, and that server.
    absences: Vec<(QueuedBatch, Arc<str>)>,
    is_resolving: bool,
    bytes: usize,
    /// Receivers of queued batches, and of those about to be sent: later ones queue behind them.
    receivers: HashSet<NodeId>,
}

impl Redelivery {
    pub(in crate::redis) fn new(keys: Keys, inbox: Arc<dyn Inbox>) -> Self {
        Self {
            keys,
            inbox,
            state: Mutex::default(),
            queued: Notify::new(),
            absent: Notify::new(),
            owner_unknown: Notify::new(),
        }
    }

    /// Records that slots have moved.
    pub(super) fn record_moves(&self, slots: impl IntoIterator<Item = u16>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.moved_at.retain(|_, at| at.elapsed() < MOVE_GRACE);
        let moves = slots.into_iter().map(|slot| (slot, now));
        state.moved_at.extend(moves);
    }

    /// Whether a slot has moved within the grace period.
    pub(super) fn has_moved(&self, slot: u16) -> bool {
        self.has_moved_within(slot, MOVE_GRACE)
    }

    pub(super) fn has_moved_within(&self, slot: u16, window: Duration) -> bool {
        let state = self.state.lock();
        let moved_at = state.moved_at.get(&slot);
        moved_at.is_some_and(|at| at.elapsed() < window)
    }

    /// Queues a batch behind others for the same node. Returns the batch when there are none.
    pub(super) fn queue_behind(
        &self,
        to: &NodeId,
        batch: Bytes,
        attempt: Attempt,
    ) -> Option<Bytes> {
        let mut state = self.state.lock();
        if !state.receivers.contains(to) {
            return Some(batch);
        }
        let refused = state.queue(to, batch, attempt);
        drop(state);
        if let Some(batch) = refused {
            self.fail(to, batch, DeliveryFailure::NotSent);
        }
        None
    }

    /// Waits for queued batches. Returns them after a delay, with the owners that were reported.
    pub(super) async fn take(&self) -> (Vec<(u16, String)>, Vec<QueuedBatch>) {
        loop {
            let has_work = {
                let state = self.state.lock();
                !state.batches.is_empty() || !state.moved_to.is_empty()
            };
            if has_work {
                sleep(RETRY_DELAY).await;
                let mut state = self.state.lock();
                let batches = std::mem::take(&mut state.batches);
                state.bytes = 0;
                return (std::mem::take(&mut state.moved_to), batches);
            }
            self.queued.notified().await;
        }
    }

    /// Waits for batches without a subscriber that no moved slot explains.
    pub(super) async fn absences(&self) -> Vec<(QueuedBatch, Arc<str>)> {
        loop {
            {
                let mut state = self.state.lock();
                let absences = std::mem::take(&mut state.absences);
                state.is_resolving = !absences.is_empty();
                if state.is_resolving {
                    return absences;
                }
            }
            self.absent.notified().await;
        }
    }

    /// Every absence that was taken is queued again or has failed.
    pub(super) fn absences_resolved(&self) {
        self.state.lock().is_resolving = false;
    }

    /// Whether no batch is queued or being resolved.
    pub(in crate::redis) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.receivers.is_empty() && state.absences.is_empty() && !state.is_resolving
    }

    /// Reports a batch that did not arrive.
    pub(super) fn fail(&self, to: &NodeId, batch: Bytes, reason: DeliveryFailure) {
        self.inbox.undelivered(to, batch, reason);
    }

    /// Queues a batch to be published again.
    pub(super) fn retry(&self, to: &NodeId, batch: Bytes, attempt: Attempt) {
        let refused = self.state.lock().queue(to, batch, attempt);
        match refused {
            Some(batch) if attempt.may_have_arrived => {
                self.fail(to, batch, DeliveryFailure::Unknown);
            }
            Some(batch) => self.fail(to, batch, DeliveryFailure::NotSent),
            None => self.queued.notify_one(),
        }
    }

    /// The batches that were taken are published: later ones need not queue behind them.
    pub(super) fn resent(&self) {
        let mut state = self.state.lock();
        let receivers = state.batches.iter().map(|queued| queued.to.clone());
        state.receivers = receivers.collect();
    }
}

impl State {
    /// Queues a batch. Returns it when the queue is full.
    fn queue(&mut self, to: &NodeId, batch: Bytes, attempt: Attempt) -> Option<Bytes> {
        if self.bytes + batch.len() > MAX_QUEUED_BYTES {
            return Some(batch);
        }
        self.bytes += batch.len();
        self.receivers.insert(to.clone());
        let to = to.clone();
        self.batches.push(QueuedBatch { to, batch, attempt });
        None
    }
}

impl FailureSink for Redelivery {
    fn publish_failed(&self, failed: FailedPublish) {
        let FailedPublish {
            to,
            batch,
            reason,
            error,
            attempt,
            server,
        } = failed;
        let slot_moved = self.has_moved(slot(&self.keys.inbox(&to)));
        let moved_to = error.as_deref().and_then(parse_moved);
        let moved_to = moved_to.map(|(slot, address)| (slot, address.to_owned()));
        let is_redirected = moved_to.is_some();
        if error.is_some_and(|error| error.starts_with("CLUSTERDOWN")) {
            self.owner_unknown.notify_one();
        }
        if let Some(moved_to) = moved_to {
            self.state.lock().moved_to.push(moved_to);
            self.queued.notify_one();
        }
        let in_time = attempt.since.elapsed() < MOVE_GRACE;
        match reason {
            DeliveryFailure::NoSubscriber | DeliveryFailure::NotSent
                if in_time && (slot_moved || is_redirected) =>
            {
                self.retry(&to, batch, attempt);
            }
            DeliveryFailure::NoSubscriber => {
                let mut state = self.state.lock();
                match server {
                    Some(server) if state.absences.len() < MAX_ABSENCES => {
                        let queued = QueuedBatch { to, batch, attempt };
                        state.absences.push((queued, server));
                        self.absent.notify_one();
                    }
                    _ => {
                        drop(state);
                        self.fail(&to, batch, DeliveryFailure::Unknown);
                    }
                }
            }
            DeliveryFailure::NotSent if attempt.may_have_arrived => {
                self.fail(&to, batch, DeliveryFailure::Unknown);
            }
            DeliveryFailure::NotSent | DeliveryFailure::Unknown => self.fail(&to, batch, reason),
        }
    }
}
