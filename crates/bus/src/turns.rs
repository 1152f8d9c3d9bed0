//! A device's words on their way to whoever holds conversations, and the answer on its way back.
//! Never: a turn that two answer at a time, or an answer with a hole in it that passes for whole.

mod begun;
mod order;
mod stops;
mod strays;
mod superseded;

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use switchboard_protocol::id::{DeviceId, DeviceKey};
use switchboard_runtime::trace::TraceContext;
use tracing::Instrument as _;

pub(crate) use self::begun::Begun;
pub use self::stops::{Stop, StopReason, TurnStops};
pub(crate) use self::{
    order::TurnAt,
    stops::{Stoppers, stoppers},
    strays::Strays,
    superseded::Superseded,
};
use crate::{
    bus::{Bus, Node},
    envelope::{Envelope, PieceEnvelope},
    error::BusError,
    node::{Epoch, NodeId},
    text::Text,
    trace,
};

/// A taker that has not renewed its turns for so long is taken for dead: another takes them.
pub const TURN_LEASE: Duration = Duration::from_secs(10);
/// A turn that nobody has taken for so long is taken by nobody any more.
pub const TURN_PATIENCE: Duration = Duration::from_secs(60);
/// The device of a turn that has waited for so long may have gone meanwhile.
const DOUBTED_AFTER: Duration = Duration::from_secs(1);
/// Turns that wait or are being answered. Protects the memory of Redis.
pub(crate) const MAX_TURNS: usize = 10_000;

/// What a device said, for one who answers it.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Names the turn, and this taking of it.
    pub id: TurnId,
    /// Who said it.
    pub device: DeviceKey,
    /// On which of its connections.
    pub epoch: Epoch,
    /// The node that holds that connection.
    pub node: NodeId,
    /// The task that the answer belongs to.
    pub task: [u8; 8],
    /// The device's words.
    pub text: String,
    /// How often it was taken, this time included.
    pub attempts: u32,
    /// Whether an earlier taker had called a service: whatever it was may have been done.
    pub acted: bool,
    /// The sampled trace that began with those words, if it is one.
    pub trace: Option<TraceContext>,
}

/// Names one taking of a turn: who takes it after this one's lease has ended has another.
#[derive(Clone)]
pub struct TurnId(Arc<Taking>);

/// One taking of a turn, and how much of the answer it has sent.
#[derive(Debug)]
struct Taking {
    at: TurnAt,
    attempt: u32,
    place: Place,
    node: NodeId,
    said: AtomicU32,
}

/// Where an answer goes on the node that holds the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) device: DeviceKey,
    pub(crate) epoch: Epoch,
    pub(crate) task: [u8; 8],
}

/// A turn as its device's node hands it over.
#[derive(Debug, Clone)]
pub(crate) struct NewTurn {
    pub(crate) place: Place,
    pub(crate) node: NodeId,
    pub(crate) text: String,
    pub(crate) trace: Option<TraceContext>,
}

/// A turn as a backend gives it out.
#[derive(Debug, Clone)]
pub(crate) struct TakenTurn {
    pub(crate) at: TurnAt,
    pub(crate) turn: NewTurn,
    pub(crate) attempts: u32,
    pub(crate) acted: bool,
    pub(crate) waited: Duration,
}

/// A turn that this node holds, to the backend: its place in the order, and which taking it is.
pub(crate) type Held = (TurnAt, u32);

impl TurnId {
    fn held(&self) -> Held {
        (self.0.at, self.0.attempt)
    }

    fn at(&self) -> TurnAt {
        self.0.at
    }
}

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.at.fmt(f)
    }
}

impl fmt::Debug for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TurnId({}, {})", self.0.at, self.0.attempt)
    }
}

impl PartialEq for TurnId {
    fn eq(&self, other: &Self) -> bool {
        self.held() == other.held()
    }
}

impl Eq for TurnId {}

impl Hash for TurnId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.held().hash(state);
    }
}

impl From<TakenTurn> for Turn {
    fn from(taken: TakenTurn) -> Self {
        let NewTurn {
            place,
            node,
            text,
            trace,
        } = taken.turn;
        let Place {
            device,
            epoch,
            task,
        } = place.clone();
        let taking = Taking {
            at: taken.at,
            attempt: taken.attempts,
            place,
            node: node.clone(),
            said: AtomicU32::new(0),
        };
        Self {
            id: TurnId(Arc::new(taking)),
            device,
            epoch,
            node,
            task,
            text,
            attempts: taken.attempts,
            acted: taken.acted,
            trace,
        }
    }
}

impl Bus {
    /// Hands a device's words over to whoever takes them first; this node holds the device. That
    /// nobody takes turns at the moment is no error: it waits up to [`TURN_PATIENCE`].
    ///
    /// # Errors
    /// When the bus does not answer, or too many turns wait already. Nothing of an answer comes then,
    /// also when the turn was handed over after all: whoever answers it hears a [`Stop`].
    pub async fn begin_turn(
        &self,
        device: &DeviceKey,
        epoch: Epoch,
        task: [u8; 8],
        text: String,
    ) -> Result<(), BusError> {
        let node = &*self.0;
        let place = Place {
            device: device.clone(),
            epoch,
            task,
        };
        node.begun.expect(&place);
        let span = trace::of_words(device.org, device.device.as_str(), &node.id);
        let turn = NewTurn {
            place: place.clone(),
            node: node.id.clone(),
            text,
            trace: TraceContext::of(&span),
        };
        let begun = node.backend.begin_turn(turn).instrument(span.clone()).await;
        match &begun {
            Ok(at) => node.begun.begin(&place, *at),
            // It may be handed over all the same: whoever answers it will be told that nobody waits.
            Err(_) => {
                span.record("otel.status_code", "ERROR");
                node.begun.give_up(&place);
            }
        }
        begun.map(|_| ())
    }

    /// Tells whoever answers that the device does not want this answer any more, or with no task
    /// that its connection has ended. What nobody has taken yet is taken back.
    ///
    /// # Errors
    /// When the bus does not answer: then the answer comes, and is dropped here.
    pub async fn stop_turns(
        &self,
        device: &DeviceKey,
        epoch: Epoch,
        task: Option<[u8; 8]>,
    ) -> Result<(), BusError> {
        let node = &*self.0;
        let stopped = node.begun.stop(device, epoch, task);
        node.strays.note(&stopped.turns, Instant::now());
        let stop = Stop {
            device: device.clone(),
            epoch,
            task,
            why: StopReason::Unwanted,
            before: task.map(|_| stopped.before),
        };
        let told = node
            .backend
            .broadcast(node.pack(&Envelope::Stop(stop)))
            .await;
        node.backend.withdraw_turns(&stopped.turns).await.and(told)
    }

    /// Forgets the turns of a connection that has ended while none of its answers was open: there is
    /// nobody to be told. Does not wait.
    pub fn forget_turns(&self, device: &DeviceKey, epoch: Epoch) {
        self.0.begun.stop(device, epoch, None);
    }

    /// The next turns for this node, at most so many; empty after `wait`. Turns whose taker died
    /// come again, to whoever asks first once [`TURN_LEASE`] is over. Those whose device has left
    /// that connection do not, nor do superseded ones: these are ended here, and the device is told
    /// so. What is being taken when the future is dropped comes again likewise.
    ///
    /// # Errors
    /// When the bus does not answer.
    pub async fn take_turns(&self, most: usize, wait: Duration) -> Result<Vec<Turn>, BusError> {
        let taken = self.0.backend.take_turns(most, wait).await?;
        let mut turns = Vec::with_capacity(taken.len());
        for taken in taken {
            let is_old = taken.attempts > 1 || taken.waited >= DOUBTED_AFTER;
            let turn = Turn::from(taken);
            let superseded = self.turn_is_superseded(&turn);
            if superseded {
                self.finish(&turn);
            }
            if superseded || (is_old && self.is_gone(&turn).await) {
                if let Err(error) = self.end_turn(&turn.id).await {
                    // It comes again, and the others shall not have to.
                    tracing::debug!(%error, turn.id = %turn.id, "a turn that nobody wants answered stays");
                }
            } else {
                turns.push(turn);
            }
        }
        Ok(turns)
    }

    /// Whether the device is known not to be on that connection any more.
    async fn is_gone(&self, turn: &Turn) -> bool {
        match self.find(&turn.device).await {
            Ok(Some(presence)) => presence.epoch != turn.epoch,
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Says that these turns are still being answered; to be said every 3 s. Their devices' nodes
    /// hear of it as well: they give an answer up of which they hear nothing.
    ///
    /// Returns those that are *lost*: not this taker's any more, because another has taken them, or
    /// has ended them by now, because their device has withdrawn them, or because Redis came back
    /// empty and nobody has them. They are left alone. Who is answering one stops, and neither
    /// [`finish`](Self::finish)es nor ends it: another may be speaking already.
    ///
    /// # Errors
    /// When the bus does not answer; the leases run on, and nothing is known to be lost.
    pub async fn keep_turns(&self, turns: &[TurnId]) -> Result<Vec<TurnId>, BusError> {
        let node = &*self.0;
        let held: Vec<Held> = turns.iter().map(TurnId::held).collect();
        let kept = node.backend.keep_turns(&held).await?;
        let mut lost = Vec::new();
        for turn in turns {
            if kept.contains(&turn.held()) {
                node.speak(turn, turn.0.said.load(Ordering::Relaxed), Piece::Busy);
            } else {
                lost.push(turn.clone());
            }
        }
        Ok(lost)
    }

    /// Notes that a service is about to be called for this turn, so that whoever takes it after
    /// this taker's death sees [`Turn::acted`]. False when the turn is not this taker's any more,
    /// or its device has withdrawn it: nothing may be called for it.
    ///
    /// # Errors
    /// When the bus does not answer; it may be noted or not.
    pub async fn turn_acted(&self, turn: &TurnId) -> Result<bool, BusError> {
        self.0.backend.turn_acted(turn.held()).await
    }

    /// Strikes a turn out that was answered, if it is still this taker's.
    ///
    /// # Errors
    /// When the bus does not answer; it may be taken again.
    pub async fn end_turn(&self, turn: &TurnId) -> Result<(), BusError> {
        self.0.backend.end_turn(turn.held()).await
    }

    /// The next piece of the answer. Does not wait. Pieces come in the order in which they are
    /// said; one that gets lost on its way ends the answer, said to be broken.
    pub fn say(&self, turn: &Turn, text: &str) {
        if text.is_empty() {
            return;
        }
        let number = turn.id.0.said.fetch_add(1, Ordering::Relaxed);
        self.0.speak(&turn.id, number, Piece::Text(text.into()));
    }

    /// The answer is complete. Does not wait.
    pub fn finish(&self, turn: &Turn) {
        let number = turn.id.0.said.fetch_add(1, Ordering::Relaxed);
        self.0.speak(&turn.id, number, Piece::End);
    }

    /// Which answers are not wanted any more, from now on, whoever gives them. Bounded: one that
    /// is too slow misses some.
    #[must_use]
    pub fn stops(&self) -> TurnStops {
        TurnStops::new(self.0.stoppers.subscribe())
    }
}

/// One step of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(Text),
    /// The answer is still being worked on.
    Busy,
    End,
}

impl Node {
    fn speak(&self, turn: &TurnId, number: u32, piece: Piece) {
        let taking = &*turn.0;
        let Place {
            device,
            epoch,
            task,
        } = &taking.place;
        let envelope = PieceEnvelope {
            at: taking.at,
            attempt: taking.attempt,
            number,
            org: device.org,
            epoch: *epoch,
            task: *task,
            device: device.device.as_str().into(),
            piece,
        };
        if taking.node == self.id {
            self.take_piece(&self.id, &envelope);
        } else {
            self.post(&taking.node, &Envelope::Piece(envelope));
        }
    }

    /// Passes a piece on to the connection that it belongs to, in order and once.
    pub(crate) fn take_piece(&self, sender: &NodeId, envelope: &PieceEnvelope) {
        let Some(host) = self.host() else { return };
        let PieceEnvelope {
            org,
            epoch,
            task,
            ref device,
            ..
        } = *envelope;
        let verdict = self.begun.take(envelope);
        match verdict {
            begun::Verdict::Next | begun::Verdict::Again => match envelope.piece {
                Piece::Text(ref text) => {
                    if verdict == begun::Verdict::Again {
                        host.begin_again(org, device, epoch, task);
                    }
                    // It may wait for a slow device, and shall not keep alive the pack that it came in.
                    host.say(org, device, epoch, task, Text::from(&**text));
                }
                Piece::Busy => host.busy(org, device, epoch, task),
                Piece::End => host.finish(org, device, epoch, task, true),
            },
            begun::Verdict::Broken => host.finish(org, device, epoch, task, false),
            begun::Verdict::Stale => self.metrics.late.inc(),
            begun::Verdict::Stray => {
                self.metrics.late.inc();
                self.turn_away(sender, envelope);
            }
        }
    }

    /// Tells whoever says a piece that nobody waits for it, within the bounds of that.
    fn turn_away(&self, sender: &NodeId, stray: &PieceEnvelope) {
        let Ok(device) = stray.device.parse::<DeviceId>() else {
            return;
        };
        if !self.strays.is_to_be_told(stray.at, Instant::now()) {
            return;
        }
        let org = stray.org;
        let stop = Stop {
            device: DeviceKey { org, device },
            epoch: stray.epoch,
            task: Some(stray.task),
            why: StopReason::Unwanted,
            before: Some(stray.at.next()),
        };
        if *sender == self.id {
            // Nobody may be listening here.
            let _ = self.stoppers.send(stop);
        } else {
            self.post(sender, &Envelope::Stop(stop));
        }
    }
}
