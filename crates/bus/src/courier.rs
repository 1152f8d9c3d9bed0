//! Sends envelopes: one lane for each node, one pack under way in each lane. What comes while
//! a pack is under way travels in the next one, so load makes packs larger and not more.
//! Never: a timer that makes a lone envelope wait.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use switchboard_runtime::shutdown::Shutdown;

use crate::{
    backend::{Backend, Published},
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
}

struct Lane {
    to: NodeId,
    state: Mutex<Waiting>,
}

struct Waiting {
    pack: Vec<u8>,
    under_way: bool,
    used: Instant,
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
        }
    }

    /// Puts one envelope on its way.
    ///
    /// # Errors
    /// [`BusError::Overloaded`] when too much waits for that node already.
    pub(crate) fn send(self: &Arc<Self>, to: &NodeId, envelope: &Envelope) -> Result<(), BusError> {
        let lane = self.lane(to);
        if lane.add(&self.sender, envelope)? {
            let courier = Arc::clone(self);
            self.shutdown
                .spawn(async move { courier.drive(&lane).await });
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

    /// Whether nothing is under way.
    pub(crate) fn is_still(&self) -> bool {
        let lanes = self.lanes.pin();
        lanes.values().all(|lane| !lane.state.lock().under_way)
    }

    /// Takes down the lanes that nothing has used for a while.
    pub(crate) fn sweep(&self) {
        self.lanes.pin().retain(|_, lane| {
            let waiting = lane.state.lock();
            waiting.under_way || waiting.used.elapsed() < IDLE_LANE
        });
    }

    /// Sends pack after pack until nothing waits.
    async fn drive(self: &Arc<Self>, lane: &Lane) {
        let mut failing_since = None;
        while let Some(pack) = lane.next_pack() {
            let pack = Bytes::from(pack);
            self.metrics.packs.inc();
            let published = self.backend.publish(&lane.to, pack.clone()).await;
            if matches!(published, Published::To(receivers) if receivers > 0) {
                failing_since = None;
                continue;
            }
            let since = *failing_since.get_or_insert_with(Instant::now);
            let again = self.undelivered(pack, published);
            if again.is_empty() {
                continue;
            }
            if since.elapsed() > ANSWER_PATIENCE || self.shutdown.is_stopping() {
                self.metrics.dropped.inc_by(again.len() as u64);
                continue;
            }
            lane.put_back(&self.sender, &again);
            tokio::time::sleep(ANSWER_PAUSE).await;
        }
    }

    /// Settles the calls of a pack that was not received; returns what is worth another try:
    /// everything that means the same when it comes twice. Calls never are.
    fn undelivered(&self, pack: Bytes, published: Published) -> Vec<Envelope> {
        let Ok(envelopes) = envelope::unpack(pack) else {
            return Vec::new();
        };
        let mut again = Vec::new();
        for envelope in envelopes.flatten() {
            match envelope {
                Envelope::Call(call) => {
                    let verdict = match published {
                        Published::To(_) => Verdict::NotThere,
                        Published::Unsent => Verdict::Unsent,
                        Published::Unknown => {
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
            under_way: false,
            used: Instant::now(),
        };
        Self {
            to,
            state: Mutex::new(state),
        }
    }

    /// Adds to the waiting pack; true when the lane stood still and must be driven.
    fn add(&self, sender: &NodeId, envelope: &Envelope) -> Result<bool, BusError> {
        let mut waiting = self.state.lock();
        if waiting.pack.len() > MAX_WAITING_BYTES {
            return Err(BusError::Overloaded);
        }
        waiting.put(sender, envelope);
        Ok(!std::mem::replace(&mut waiting.under_way, true))
    }

    fn put_back(&self, sender: &NodeId, envelopes: &[Envelope]) {
        let mut waiting = self.state.lock();
        for envelope in envelopes {
            waiting.put(sender, envelope);
        }
    }

    /// What waits, or `None` when the lane comes to a stand.
    fn next_pack(&self) -> Option<Vec<u8>> {
        let mut waiting = self.state.lock();
        if waiting.pack.is_empty() {
            waiting.under_way = false;
            waiting.used = Instant::now();
            return None;
        }
        Some(std::mem::take(&mut waiting.pack))
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
