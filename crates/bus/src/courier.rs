//! Sends envelopes: one lane for each node. A lone envelope leaves from where it arises; while
//! something is under way, what comes waits for the next round and travels in one pack.
//! Never: a timer that makes a lone envelope wait.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use switchboard_runtime::shutdown::Shutdown;
use tokio::sync::Notify;

use crate::{
    backend::{Backend, Undelivered},
    envelope::{self, Envelope},
    error::BusError,
    metrics::Metrics,
    node::NodeId,
    pending::{Pending, Verdict},
};

/// What may wait in one lane. Protects memory while a node or Redis is slow.
const MAX_WAITING_BYTES: usize = 8 * 1024 * 1024;
/// For how long answers are sent again to a caller that is not listening.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
const ANSWER_PAUSE: Duration = Duration::from_millis(100);
/// Failures further apart than this are not one trouble: longer than a failure takes to show.
const SAME_TROUBLE: Duration = Duration::from_secs(3);
/// A lane without traffic for this long is taken down.
const IDLE_LANE: Duration = Duration::from_secs(60);

/// The lanes of one node.
pub(crate) struct Courier {
    sender: NodeId,
    backend: Arc<dyn Backend>,
    pending: Arc<Pending>,
    metrics: Metrics,
    shutdown: Shutdown,
    lanes: papaya::HashMap<NodeId, Arc<Lane>>,
    /// Lanes with something to send in the next round.
    due: Mutex<Vec<Arc<Lane>>>,
    round: Notify,
}

struct Lane {
    to: NodeId,
    state: Mutex<Waiting>,
}

struct Waiting {
    pack: Vec<u8>,
    /// Whether somebody is about to send the pack.
    awaited: bool,
    trouble: Option<Trouble>,
    used: Instant,
}

/// A lane whose packs do not arrive.
#[derive(Clone, Copy)]
struct Trouble {
    since: Instant,
    last: Instant,
}

impl Courier {
    pub(crate) fn new(
        sender: NodeId,
        backend: Arc<dyn Backend>,
        pending: Arc<Pending>,
        metrics: Metrics,
        shutdown: Shutdown,
    ) -> Self {
        Self {
            sender,
            backend,
            pending,
            metrics,
            shutdown,
            lanes: papaya::HashMap::new(),
            due: Mutex::new(Vec::new()),
            round: Notify::new(),
        }
    }

    /// Puts one envelope on its way.
    ///
    /// # Errors
    /// [`BusError::Overloaded`] when too much waits for that node already.
    pub(crate) fn send(&self, to: &NodeId, envelope: &Envelope) -> Result<(), BusError> {
        let lane = self.lane(to);
        if lane.add(&self.sender, envelope)? {
            self.send_soon(lane);
        }
        Ok(())
    }

    fn lane(&self, to: &NodeId) -> Arc<Lane> {
        let lanes = self.lanes.pin();
        if let Some(lane) = lanes.get(to) {
            return Arc::clone(lane);
        }
        Arc::clone(lanes.get_or_insert_with(to.clone(), || Arc::new(Lane::new(to.clone()))))
    }

    /// At once when nothing is under way, else in the next round.
    fn send_soon(&self, lane: Arc<Lane>) {
        if self.backend.is_clear() {
            self.hand_over(&lane);
            self.backend.flush();
            return;
        }
        let mut due = self.due.lock();
        due.push(lane);
        let first = due.len() == 1;
        drop(due);
        if first {
            self.round.notify_one();
        }
    }

    /// Sends what is due, round after round, for ever.
    pub(crate) async fn make_rounds(&self) {
        let mut round = Vec::new();
        loop {
            self.round.notified().await;
            self.backend.clear().await;
            // Whoever is ready to run adds to this round first.
            tokio::task::yield_now().await;
            std::mem::swap(&mut round, &mut *self.due.lock());
            for lane in round.drain(..) {
                self.hand_over(&lane);
            }
            self.backend.flush();
        }
    }

    fn hand_over(&self, lane: &Lane) {
        if let Some(pack) = lane.take_pack() {
            self.metrics.packs.inc();
            self.backend.post(&lane.to, pack.into());
        }
    }

    /// Whether nothing is under way.
    pub(crate) fn is_still(&self) -> bool {
        let lanes = self.lanes.pin();
        lanes.values().all(|lane| !lane.state.lock().awaited) && self.backend.is_clear()
    }

    /// Takes down the lanes that nothing has used for a while.
    pub(crate) fn sweep(&self) {
        self.lanes.pin().retain(|_, lane| {
            let waiting = lane.state.lock();
            waiting.awaited || waiting.used.elapsed() < IDLE_LANE
        });
    }

    /// Settles the calls of a pack that did not arrive, and sends again what means the same
    /// when it comes twice. Calls never are sent again.
    pub(crate) fn undelivered(self: &Arc<Self>, to: &NodeId, pack: Bytes, why: Undelivered) {
        let again = self.settle_calls(pack, why);
        if again.is_empty() {
            return;
        }
        let lane = self.lane(to);
        if self.shutdown.is_stopping() || !lane.is_worth_trying() {
            self.metrics.dropped.inc_by(again.len() as u64);
            return;
        }
        if lane.put_back(&self.sender, &again) {
            let courier = Arc::clone(self);
            self.shutdown.spawn(async move {
                tokio::time::sleep(ANSWER_PAUSE).await;
                courier.send_soon(lane);
            });
        }
    }

    /// Returns what is worth another try.
    fn settle_calls(&self, pack: Bytes, why: Undelivered) -> Vec<Envelope> {
        let Ok(envelopes) = envelope::unpack(pack) else {
            return Vec::new();
        };
        let mut again = Vec::new();
        for envelope in envelopes.flatten() {
            match envelope {
                Envelope::Call(call) => {
                    let verdict = match why {
                        Undelivered::NobodyThere => Verdict::NotThere,
                        Undelivered::Unsent => Verdict::Unsent,
                        Undelivered::Unknown => {
                            Verdict::Lost("the bus failed while the call was handed over")
                        }
                    };
                    self.pending.settle(call.token, verdict);
                }
                Envelope::Answer { .. }
                | Envelope::NotHere { .. }
                | Envelope::Takeover { .. }
                | Envelope::Cancel { .. } => again.push(envelope),
                Envelope::Probe { .. } | Envelope::Revoked { .. } | Envelope::TrustChanged => {}
            }
        }
        again
    }
}

impl Lane {
    fn new(to: NodeId) -> Self {
        let state = Waiting {
            pack: Vec::new(),
            awaited: false,
            trouble: None,
            used: Instant::now(),
        };
        Self {
            to,
            state: Mutex::new(state),
        }
    }

    /// Adds to the waiting pack; true when nobody was about to send it.
    fn add(&self, sender: &NodeId, envelope: &Envelope) -> Result<bool, BusError> {
        let mut waiting = self.state.lock();
        if waiting.pack.len() > MAX_WAITING_BYTES {
            return Err(BusError::Overloaded);
        }
        waiting.put(sender, envelope);
        Ok(!std::mem::replace(&mut waiting.awaited, true))
    }

    /// Like [`Self::add`], for what was sent before.
    fn put_back(&self, sender: &NodeId, envelopes: &[Envelope]) -> bool {
        let mut waiting = self.state.lock();
        for envelope in envelopes {
            waiting.put(sender, envelope);
        }
        !std::mem::replace(&mut waiting.awaited, true)
    }

    fn take_pack(&self) -> Option<Vec<u8>> {
        let mut waiting = self.state.lock();
        waiting.awaited = false;
        waiting.used = Instant::now();
        Some(std::mem::take(&mut waiting.pack)).filter(|pack| !pack.is_empty())
    }

    /// Notes that a pack did not arrive; false when that has been so for too long.
    fn is_worth_trying(&self) -> bool {
        let now = Instant::now();
        let mut waiting = self.state.lock();
        let same = |trouble: &Trouble| now.duration_since(trouble.last) < SAME_TROUBLE;
        let since = waiting
            .trouble
            .filter(same)
            .map_or(now, |trouble| trouble.since);
        waiting.trouble = Some(Trouble { since, last: now });
        now.duration_since(since) <= ANSWER_PATIENCE
    }
}

impl Waiting {
    fn put(&mut self, sender: &NodeId, envelope: &Envelope) {
        if self.pack.is_empty() {
            envelope::begin_pack(&mut self.pack, sender);
        }
        envelope::put(&mut self.pack, envelope);
    }
}
