//! The turns of this node's devices that are being answered: which piece of which is next.
//! Never: a piece of an answer that was stopped, or that another taker gives by now.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use switchboard_protocol::id::{DeviceId, DeviceKey};

use super::{Piece, Place, TurnAt};
use crate::{envelope::PieceEnvelope, node::Epoch};

/// Turns that are remembered of a device: those that are over, and those that are not. Protects
/// memory; an edge lets a device have fewer under way.
const REMEMBERED: usize = 16;

/// By device. An entry lives until the device's connection ends.
#[derive(Debug, Default)]
pub(crate) struct Begun(Mutex<HashMap<DeviceKey, DeviceTurns>>);

/// The turns of one device.
#[derive(Debug)]
struct DeviceTurns {
    /// The newest of its connections on which anything was asked.
    epoch: Epoch,
    /// The newest of them that has ended.
    ended: Option<Epoch>,
    /// Turns that are being handed over, by connection and task: their place is not known yet.
    expected: Vec<(Epoch, [u8; 8])>,
    current: VecDeque<Answering>,
    /// Turns that were answered or stopped, the latest last.
    over: VecDeque<TurnAt>,
    /// The last of all that were begun.
    last: TurnAt,
}

/// A turn that is being answered.
#[derive(Debug)]
struct Answering {
    at: TurnAt,
    epoch: Epoch,
    task: [u8; 8],
    /// Whether it was heard that it is on its way, not only a piece of its answer.
    is_known: bool,
    attempt: u32,
    next: u32,
    /// The taker that said something last.
    told_by: Option<u32>,
}

/// What a stop found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stopped {
    /// The turns that were being answered.
    pub(super) turns: Vec<TurnAt>,
    /// What the device begins from now on does not come before this.
    pub(super) before: TurnAt,
}

/// What to do with a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is the next one.
    Next,
    /// It is the next one, and the first text of a taker that follows another that had said some.
    Again,
    /// One before it got lost: the answer is over.
    Broken,
    /// It came twice, or another taker speaks by now.
    Stale,
    /// Nobody waits for what it belongs to.
    Stray,
}

impl Begun {
    /// A turn of this device is about to be handed over.
    pub(super) fn expect(&self, place: &Place) {
        let mut begun = self.0.lock();
        let turns = begun.entry(place.device.clone());
        let turns = turns.or_insert_with(|| DeviceTurns::new(place.epoch));
        turns.epoch = turns.epoch.max(place.epoch);
        turns.expected.push((place.epoch, place.task));
    }

    /// It was not handed over, as far as is known.
    pub(super) fn give_up(&self, place: &Place) {
        let mut begun = self.0.lock();
        if let Some(turns) = begun.get_mut(&place.device) {
            turns.settle(place.epoch, place.task);
        }
    }

    /// It has this place in the order of turns.
    pub(super) fn begin(&self, place: &Place, at: TurnAt) {
        let mut begun = self.0.lock();
        // Not there: its connection has ended meanwhile.
        if let Some(turns) = begun.get_mut(&place.device) {
            turns.begin(place.epoch, place.task, at);
            turns.settle(place.epoch, place.task);
        }
    }

    /// Forgets a device's answer, or all of them when its connection is gone; which they were.
    pub(super) fn stop(&self, device: &DeviceKey, epoch: Epoch, task: Option<[u8; 8]>) -> Stopped {
        let mut begun = self.0.lock();
        let Some(turns) = begun.get_mut(device) else {
            return Stopped::default();
        };
        let stopped = turns.stop(epoch, task);
        if task.is_none() {
            turns.ended = turns.ended.max(Some(epoch));
            // A newer connection may have asked what is not here yet.
            if turns.current.is_empty() && Some(turns.epoch) <= turns.ended {
                begun.remove(device);
            }
        }
        stopped
    }

    /// What to do with a piece that came.
    pub(super) fn take(&self, piece: &PieceEnvelope) -> Verdict {
        let Ok(device) = piece.device.parse::<DeviceId>() else {
            return Verdict::Stray;
        };
        let key = DeviceKey {
            org: piece.org,
            device,
        };
        let mut begun = self.0.lock();
        match begun.get_mut(&key) {
            Some(turns) => turns.take(piece),
            None => Verdict::Stray,
        }
    }
}

impl DeviceTurns {
    const fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            ended: None,
            expected: Vec::new(),
            current: VecDeque::new(),
            over: VecDeque::new(),
            last: TurnAt { ms: 0, number: 0 },
        }
    }

    /// A turn is on its way, in this place.
    fn begin(&mut self, epoch: Epoch, task: [u8; 8], at: TurnAt) {
        self.last = self.last.max(at);
        if self.over.contains(&at) {
            return;
        }
        // The answer may be quicker than this news.
        match self.current.iter_mut().find(|turn| turn.at == at) {
            Some(turn) => turn.is_known = true,
            None => push_bounded(&mut self.current, Answering::new(at, (epoch, task), true)),
        }
    }

    /// Whatever became of it, one turn less is expected on that task. When none is, an answer there
    /// whose turn was not heard of is that of a turn that was given up.
    fn settle(&mut self, epoch: Epoch, task: [u8; 8]) {
        let place = (epoch, task);
        if let Some(index) = self.expected.iter().position(|known| *known == place) {
            self.expected.swap_remove(index);
        }
        if self.expected.contains(&place) {
            return;
        }
        let is_foreign = |turn: &Answering| !turn.is_known && (turn.epoch, turn.task) == place;
        self.end_all(is_foreign);
    }

    /// Ends those that are meant; which they were.
    fn end_all(&mut self, is_meant: impl Fn(&Answering) -> bool) -> Vec<TurnAt> {
        let ended = self.current.iter().filter(|turn| is_meant(turn));
        let ended: Vec<TurnAt> = ended.map(|turn| turn.at).collect();
        self.current.retain(|turn| !is_meant(turn));
        for at in &ended {
            push_bounded(&mut self.over, *at);
        }
        ended
    }

    fn stop(&mut self, epoch: Epoch, task: Option<[u8; 8]>) -> Stopped {
        let turns =
            self.end_all(|turn| turn.epoch == epoch && task.is_none_or(|task| turn.task == task));
        let before = self.last.next();
        Stopped { turns, before }
    }

    /// The answer that a piece belongs to, if it is wanted.
    fn answering(&mut self, piece: &PieceEnvelope) -> Option<&mut Answering> {
        let place = (piece.epoch, piece.task);
        let is_current = self.current.iter().any(|turn| turn.at == piece.at);
        // What goes on with an answer that is not known belongs to an earlier turn.
        let is_first = piece.number == 0 || piece.piece == Piece::Busy;
        let may_be_news = is_first && self.expected.contains(&place);
        if !is_current && !self.over.contains(&piece.at) && may_be_news {
            self.last = self.last.max(piece.at);
            push_bounded(&mut self.current, Answering::new(piece.at, place, false));
        }
        self.current.iter_mut().find(|turn| turn.at == piece.at)
    }

    fn take(&mut self, piece: &PieceEnvelope) -> Verdict {
        let Some(turn) = self.answering(piece) else {
            return Verdict::Stray;
        };
        let verdict = turn.take(piece);
        let is_end = verdict == Verdict::Next && piece.piece == Piece::End;
        if is_end || verdict == Verdict::Broken {
            self.end_all(|turn| turn.at == piece.at);
        }
        verdict
    }
}

impl Answering {
    const fn new(at: TurnAt, (epoch, task): (Epoch, [u8; 8]), is_known: bool) -> Self {
        Self {
            at,
            epoch,
            task,
            is_known,
            attempt: 0,
            next: 0,
            told_by: None,
        }
    }

    fn take(&mut self, piece: &PieceEnvelope) -> Verdict {
        if piece.attempt < self.attempt {
            return Verdict::Stale;
        }
        if piece.attempt > self.attempt {
            // Whoever took the turn over begins anew.
            (self.attempt, self.next) = (piece.attempt, 0);
        }
        // A sign of life may overtake the piece before it: it is no proof that one is missing.
        if piece.piece == Piece::Busy {
            return Verdict::Next;
        }
        if piece.number != self.next {
            return if piece.number > self.next {
                Verdict::Broken
            } else {
                Verdict::Stale
            };
        }
        self.next += 1;
        if !matches!(piece.piece, Piece::Text(_)) {
            return Verdict::Next;
        }
        match self.told_by.replace(piece.attempt) {
            Some(before) if before < piece.attempt => Verdict::Again,
            _ => Verdict::Next,
        }
    }
}

fn push_bounded<T>(to: &mut VecDeque<T>, new: T) {
    if to.len() >= REMEMBERED {
        to.pop_front();
    }
    to.push_back(new);
}

#[cfg(test)]
mod tests {
    use switchboard_protocol::id::OrgId;
    use uuid::Uuid;

    use super::*;

    const TASK: [u8; 8] = *b"task0001";

    fn place() -> Place {
        Place {
            device: DeviceKey {
                org: OrgId::from_uuid(Uuid::from_u128(7)),
                device: "toy-1".parse().unwrap(),
            },
            epoch: Epoch(1),
            task: TASK,
        }
    }

    fn at(ms: u64) -> TurnAt {
        TurnAt { ms, number: 0 }
    }

    fn piece(ms: u64, attempt: u32, number: u32, piece: Piece) -> PieceEnvelope {
        PieceEnvelope {
            at: at(ms),
            attempt,
            number,
            org: place().device.org,
            epoch: Epoch(1),
            task: TASK,
            device: "toy-1".into(),
            piece,
        }
    }

    fn text(ms: u64, attempt: u32, number: u32) -> PieceEnvelope {
        piece(ms, attempt, number, Piece::Text("a".into()))
    }

    fn expecting() -> Begun {
        let begun = Begun::default();
        begun.expect(&place());
        begun
    }

    #[test]
    fn pieces_are_taken_in_order_and_once() {
        let begun = expecting();
        begun.begin(&place(), at(5));
        assert_eq!(begun.take(&text(5, 1, 0)), Verdict::Next);
        assert_eq!(begun.take(&text(5, 1, 0)), Verdict::Stale);
        assert_eq!(begun.take(&text(5, 1, 1)), Verdict::Next);
        assert_eq!(begun.take(&piece(5, 1, 2, Piece::End)), Verdict::Next);
        assert_eq!(begun.take(&text(5, 1, 3)), Verdict::Stray);
    }

    #[test]
    fn a_sign_of_life_breaks_nothing_whatever_its_number() {
        let begun = expecting();
        begun.begin(&place(), at(5));
        for number in [0, 1, 7] {
            let busy = piece(5, 1, number, Piece::Busy);
            assert_eq!(begun.take(&busy), Verdict::Next, "{number}");
        }
        assert_eq!(begun.take(&text(5, 1, 0)), Verdict::Next);
        assert_eq!(begun.take(&piece(5, 1, 0, Piece::Busy)), Verdict::Next);
        assert_eq!(begun.take(&text(5, 1, 1)), Verdict::Next);
        // Of a taker whom another followed it says nothing any more.
        assert_eq!(begun.take(&piece(5, 2, 1, Piece::Busy)), Verdict::Next);
        assert_eq!(begun.take(&piece(5, 1, 2, Piece::Busy)), Verdict::Stale);
    }

    #[test]
    fn a_hole_ends_the_answer() {
        let begun = expecting();
        assert_eq!(begun.take(&text(5, 1, 0)), Verdict::Next);
        assert_eq!(begun.take(&text(5, 1, 2)), Verdict::Broken);
        assert_eq!(begun.take(&text(5, 1, 1)), Verdict::Stray);
    }

    #[test]
    fn who_takes_a_turn_over_begins_anew_and_silences_the_former() {
        let begun = expecting();
        assert_eq!(begun.take(&text(5, 1, 0)), Verdict::Next);
        assert_eq!(begun.take(&piece(5, 2, 0, Piece::Busy)), Verdict::Next);
        assert_eq!(begun.take(&text(5, 2, 0)), Verdict::Again);
        assert_eq!(begun.take(&text(5, 1, 1)), Verdict::Stale);
        assert_eq!(begun.take(&text(5, 2, 1)), Verdict::Next);
        assert_eq!(begun.take(&text(5, 3, 0)), Verdict::Again);
        assert_eq!(begun.take(&piece(5, 4, 0, Piece::End)), Verdict::Next);
    }

    #[test]
    fn the_rest_of_another_answer_is_not_the_beginning_of_this_one() {
        let begun = Begun::default();
        begun.expect(&place());
        assert_eq!(begun.take(&text(5, 1, 1)), Verdict::Stray);
        begun.begin(&place(), at(6));
        assert_eq!(begun.take(&text(6, 1, 0)), Verdict::Next);
    }

    #[test]
    fn nothing_is_begun_again_when_nothing_was_said() {
        let begun = expecting();
        assert_eq!(begun.take(&piece(5, 1, 0, Piece::Busy)), Verdict::Next);
        assert_eq!(begun.take(&text(5, 2, 0)), Verdict::Next);
    }

    #[test]
    fn the_answer_to_a_turn_that_was_given_up_is_wanted_by_nobody() {
        let begun = expecting();
        assert_eq!(begun.take(&text(5, 1, 0)), Verdict::Next);
        begun.give_up(&place());
        assert_eq!(begun.take(&text(5, 1, 1)), Verdict::Stray);
        assert_eq!(begun.take(&text(6, 1, 0)), Verdict::Stray);
        // It is not mistaken for that to the next turn on the same task, either.
        begun.expect(&place());
        assert_eq!(begun.take(&text(6, 1, 0)), Verdict::Next);
        assert_eq!(begun.take(&text(7, 1, 0)), Verdict::Next);
        begun.begin(&place(), at(7));
        assert_eq!(begun.take(&text(6, 1, 1)), Verdict::Stray);
        assert_eq!(begun.take(&text(7, 1, 1)), Verdict::Next);
    }

    #[test]
    fn what_was_stopped_is_not_mistaken_for_a_later_turn_of_the_same_task() {
        let begun = expecting();
        begun.expect(&place());
        let device = place().device;
        // The first pieces come before the news that the turns are on their way.
        assert_eq!(begun.take(&text(6, 1, 0)), Verdict::Next);
        begun.begin(&place(), at(5));
        begun.begin(&place(), at(6));
        let stopped = begun.stop(&device, Epoch(1), Some(TASK));
        assert_eq!(stopped.turns.len(), 2);
        assert!(at(6) < stopped.before && stopped.before < at(7));
        begun.expect(&place());
        begun.begin(&place(), at(7));
        assert_eq!(begun.take(&text(5, 1, 0)), Verdict::Stray);
        assert_eq!(begun.take(&text(6, 1, 1)), Verdict::Stray);
        assert_eq!(begun.take(&text(7, 1, 0)), Verdict::Next);
        assert_eq!(begun.stop(&device, Epoch(2), None).turns, []);
        assert_eq!(begun.stop(&device, Epoch(1), None).turns, [at(7)]);
        assert_eq!(begun.take(&text(8, 1, 0)), Verdict::Stray);
        assert!(begun.0.lock().is_empty());
        let nothing = begun.stop(&device, Epoch(1), Some(TASK));
        assert_eq!(nothing, Stopped::default());
    }

    #[test]
    fn a_stop_reaches_whoever_goes_on_with_an_answer_that_broke_off() {
        let begun = expecting();
        begun.begin(&place(), at(5));
        assert_eq!(begun.take(&text(5, 1, 1)), Verdict::Broken);
        let stopped = begun.stop(&place().device, Epoch(1), Some(TASK));
        assert_eq!(stopped.turns, []);
        assert!(at(5) < stopped.before && stopped.before < at(6));
    }

    #[test]
    fn a_former_connection_that_ends_late_takes_nothing_from_its_successor() {
        let begun = expecting();
        let mut successor = place();
        successor.epoch = Epoch(2);
        begun.expect(&successor);
        begun.stop(&place().device, Epoch(1), None);
        begun.begin(&successor, at(5));
        assert_eq!(begun.take(&text(5, 1, 0)), Verdict::Next);
        begun.stop(&place().device, Epoch(2), None);
        assert!(begun.0.lock().is_empty());
    }
}
