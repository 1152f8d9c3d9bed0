//! Sends envelopes: one lane for each node. A lone envelope leaves from where it arises; while
//! something is under way, what comes waits for the next round and travels in one pack.
//! Never: a timer that makes a lone envelope wait.

mod lane;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use switchboard_runtime::shutdown::Shutdown;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::lane::Lane;
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
/// What may wait in a lane that still takes notices: a talkative device shall not fill it.
const MAX_BEFORE_NOTICE_BYTES: usize = 1024 * 1024;
/// Between two tries to send an answer.
const ANSWER_PAUSE: Duration = Duration::from_millis(100);

/// The lanes of one node.
pub(crate) struct Courier {
    sender: NodeId,
    backend: Arc<dyn Backend>,
    pending: Arc<Pending>,
    metrics: Metrics,
    shutdown: Shutdown,
    /// The node has said all it had to say.
    pub(crate) left: CancellationToken,
    lanes: papaya::HashMap<NodeId, Arc<Lane>>,
    /// One for each way by which packs leave.
    rounds: Vec<Round>,
}

/// What leaves by one way when what is under way there has arrived.
#[derive(Default)]
struct Round {
    /// Lanes with something to send in the next round.
    due: Mutex<Vec<Arc<Lane>>>,
    begins: Notify,
}

impl Courier {
    pub(crate) fn new(
        sender: NodeId,
        backend: Arc<dyn Backend>,
        pending: Arc<Pending>,
        metrics: Metrics,
        shutdown: Shutdown,
    ) -> Self {
        let rounds = (0..backend.ways()).map(|_| Round::default());
        Self {
            rounds: rounds.collect(),
            sender,
            backend,
            pending,
            metrics,
            shutdown,
            left: CancellationToken::new(),
            lanes: papaya::HashMap::new(),
        }
    }

    /// Puts one envelope on its way.
    ///
    /// # Errors
    /// [`BusError::Overloaded`] when too much waits for that node already.
    pub(crate) fn send(&self, to: &NodeId, envelope: &Envelope) -> Result<(), BusError> {
        self.send_within(to, envelope, MAX_WAITING_BYTES)
    }

    /// Like [`Self::send`], for what may be lost: it leaves most of the lane to the rest.
    ///
    /// # Errors
    /// [`BusError::Overloaded`] when more waits for that node than notices may add to.
    pub(crate) fn send_notice(&self, to: &NodeId, notice: &Envelope) -> Result<(), BusError> {
        self.send_within(to, notice, MAX_BEFORE_NOTICE_BYTES)
    }

    fn send_within(&self, to: &NodeId, envelope: &Envelope, room: usize) -> Result<(), BusError> {
        let lane = self.lane(to);
        if lane.add(&self.sender, envelope, room)? {
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
        let way = self.backend.way(&lane.to);
        if self.backend.is_clear(way) {
            let more = self.hand_over(&lane);
            self.backend.flush(way);
            if !more {
                return;
            }
        }
        self.send_later(lane, way);
    }

    fn send_later(&self, lane: Arc<Lane>, way: usize) {
        // There is a round for each way.
        let Some(round) = self.rounds.get(way) else {
            return;
        };
        let mut due = round.due.lock();
        due.push(lane);
        let first = due.len() == 1;
        drop(due);
        if first {
            round.begins.notify_one();
        }
    }

    /// By how many ways packs leave.
    pub(crate) fn ways(&self) -> usize {
        self.rounds.len()
    }

    /// Sends what is due by one way, round after round, for ever.
    pub(crate) async fn make_rounds(&self, way: usize) {
        let Some(Round { due, begins }) = self.rounds.get(way) else {
            return;
        };
        let mut round = Vec::new();
        loop {
            begins.notified().await;
            self.backend.clear(way).await;
            // Whoever is ready to run adds to this round first.
            tokio::task::yield_now().await;
            std::mem::swap(&mut round, &mut *due.lock());
            for lane in round.drain(..) {
                let now = self.backend.way(&lane.to);
                if now != way {
                    // What is under way there goes first.
                    self.send_later(lane, now);
                } else if self.hand_over(&lane) {
                    self.send_later(lane, way);
                }
            }
            self.backend.flush(way);
        }
    }

    /// Posts what waits in the lane; whether more has come meanwhile. Nobody else posts for this
    /// lane until that is known, so that a later pack can not overtake an earlier one.
    fn hand_over(&self, lane: &Lane) -> bool {
        let (pack, posting) = lane.begin_posting();
        if let Some(pack) = pack {
            self.metrics.packs.inc();
            self.backend.post(&lane.to, pack.into());
        }
        posting.end()
    }

    /// Whether nothing is under way.
    pub(crate) fn is_still(&self) -> bool {
        let lanes = self.lanes.pin();
        lanes.values().all(|lane| lane.is_still())
            && self.backend.is_settled()
            && (0..self.ways()).all(|way| self.backend.is_clear(way))
    }

    /// How many envelopes wait to be published.
    pub(crate) fn waiting(&self) -> usize {
        let lanes = self.lanes.pin();
        lanes.values().map(|lane| lane.waiting()).sum()
    }

    /// Takes down the lanes that nothing has used for a while.
    pub(crate) fn sweep(&self) {
        self.lanes.pin().retain(|_, lane| lane.is_needed());
    }

    /// Settles the calls of a pack that did not arrive, and sends again what means the same
    /// when it comes twice. Calls never are sent again.
    pub(crate) fn undelivered(self: &Arc<Self>, to: &NodeId, pack: Bytes, why: Undelivered) {
        let again = self.settle_calls(pack, why);
        if again.is_empty() {
            return;
        }
        let lane = self.lane(to);
        if self.left.is_cancelled() || !lane.is_worth_trying() {
            self.metrics.dropped.inc_by(again.len() as u64);
            return;
        }
        if lane.put_back(&self.sender, &again) {
            let courier = Arc::clone(self);
            self.shutdown.spawn(async move {
                tokio::time::sleep(ANSWER_PAUSE).await;
                lane.rest_is_over();
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
                | Envelope::Cancel { .. }
                | Envelope::Piece(_) => again.push(envelope),
                Envelope::Notice { .. }
                | Envelope::Stop { .. }
                | Envelope::Withdraw { .. }
                | Envelope::Probe { .. }
                | Envelope::Revoked { .. }
                | Envelope::TrustChanged
                | Envelope::Prompts { .. }
                | Envelope::Resources { .. } => {}
            }
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use tokio::{sync::mpsc, task::JoinSet};

    use super::*;
    use crate::{backend::Inbox, local, offers::OfferChange};

    /// A node whose first pack makes its sender send another, before the first is taken in.
    struct Listener {
        echo: Mutex<Option<Weak<Courier>>>,
        heard: mpsc::Sender<Envelope>,
    }

    impl Inbox for Listener {
        fn receive(&self, pack: Bytes) {
            let echo = self.echo.lock().take();
            if let Some(courier) = echo.and_then(|courier| courier.upgrade()) {
                let second = Envelope::NotHere { token: 2 };
                courier.send(&NodeId::from("listener~1"), &second).unwrap();
            }
            for envelope in envelope::unpack(pack).unwrap() {
                self.heard.try_send(envelope.unwrap()).unwrap();
            }
        }

        fn undelivered(&self, _: &NodeId, _: Bytes, why: Undelivered) {
            unreachable!("{why:?}");
        }

        fn healed(&self) {}

        fn missed(&self) {}

        fn follows(&self) -> bool {
            false
        }

        fn offer_changed(&self, _: &OfferChange) {}
    }

    #[tokio::test]
    async fn a_later_pack_does_not_overtake_one_that_is_being_posted() {
        let (hub, heard) = (local::LocalHub::default(), mpsc::channel(4));
        let [sender, to] = ["sender~1", "listener~1"].map(NodeId::from);
        let listener = Arc::new(Listener {
            echo: Mutex::new(None),
            heard: heard.0,
        });
        let inbox = Arc::clone(&listener) as Arc<dyn Inbox>;
        let _listening = local::join(&hub, to.clone(), Arc::clone(&inbox));
        let courier = Arc::new(Courier::new(
            sender.clone(),
            local::join(&hub, sender, inbox),
            Arc::new(Pending::new()),
            Metrics::new(&prometheus::Registry::new()).unwrap(),
            Shutdown::new(),
        ));
        *listener.echo.lock() = Some(Arc::downgrade(&courier));
        let mut rounds = JoinSet::new();
        let rounding = Arc::clone(&courier);
        rounds.spawn(async move { rounding.make_rounds(0).await });
        courier.send(&to, &Envelope::NotHere { token: 1 }).unwrap();
        let mut heard = heard.1;
        for token in [1, 2] {
            let next = tokio::time::timeout(Duration::from_secs(5), heard.recv()).await;
            assert_eq!(next, Ok(Some(Envelope::NotHere { token })));
        }
    }
}
