//! The turns of this node's devices that are being answered.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use switchboard_protocol::id::{DeviceId, DeviceKey};

use super::{position::TurnPosition, turn::ReplyTarget};
use crate::{
    node::Epoch,
    transport::{Chunk, ChunkMessage},
};

/// Turns that are stored for a device, those in progress and those that have ended. Protects
/// memory; an edge allows a device fewer turns in progress.
const MAX_TURNS_PER_DEVICE: usize = 16;

/// Decides which chunk of which reply is passed to a device.
///
/// ```text
///   expect ─► expected ──begin(position)──► in progress ──end, gap or cancel──► ended
///                │                              ▲
///                ├─ abandon ─► (forgotten)      │
///                └─ first chunk arrives before the position is known ─┘
/// ```
///
/// An entry exists until the device's connection ends.
///
/// Invariant: no chunk is passed on that belongs to a cancelled turn, to an earlier worker than
/// the current one, or that comes after a gap.
#[derive(Debug, Default)]
pub(crate) struct TurnTracker(Mutex<HashMap<DeviceKey, DeviceTurns>>);

/// The turns of one device.
#[derive(Debug)]
struct DeviceTurns {
    /// The newest connection with a turn.
    epoch: Epoch,
    /// The newest connection that has ended.
    ended_epoch: Option<Epoch>,
    /// The connection whose last reply was complete.
    answered_epoch: Option<Epoch>,
    /// Turns that are being enqueued, by connection and task: their positions are not known yet.
    expected: Vec<(Epoch, [u8; 8])>,
    in_progress: VecDeque<TrackedTurn>,
    /// Turns that were answered or cancelled, the latest last.
    ended: VecDeque<TurnPosition>,
    /// The last turn that was begun.
    last: TurnPosition,
}

/// A turn that is being answered.
#[derive(Debug)]
struct TrackedTurn {
    position: TurnPosition,
    epoch: Epoch,
    task: [u8; 8],
    /// Whether the turn was reported as enqueued, and not only a chunk of its reply received.
    is_confirmed: bool,
    attempt: u32,
    next: u32,
    /// The attempt that sent the last text.
    text_from: Option<u32>,
}

/// The result of a cancellation.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CancelledTurns {
    /// The turns that were in progress.
    pub(super) turns: Vec<TurnPosition>,
    /// Turns that the device begins from now on are not before this position.
    pub(super) before: TurnPosition,
}

/// What to do with a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkCheck {
    /// It is the next one.
    Next,
    /// It is the next one, and the first text of a worker after another has sent some.
    Restarted,
    /// An earlier one was lost: the reply has ended.
    Gap,
    /// It is a duplicate, or of a former worker.
    Stale,
    /// No turn expects it.
    Orphan,
}

impl TurnTracker {
    /// A turn is about to be enqueued. Returns whether all earlier turns of the connection have ended,
    /// the last one with a complete reply: then no worker answers one.
    pub(super) fn expect(&self, target: &ReplyTarget) -> bool {
        let mut devices = self.0.lock();
        let turns = devices.entry(target.device.clone());
        let turns = turns.or_insert_with(|| DeviceTurns::new(target.epoch));
        turns.epoch = turns.epoch.max(target.epoch);
        let is_alone = turns.answered_epoch == Some(target.epoch)
            && turns.expected.is_empty()
            && turns.in_progress.is_empty();
        turns.expected.push((target.epoch, target.task));
        is_alone
    }

    /// A turn was not enqueued, as far as is known.
    pub(super) fn abandon(&self, target: &ReplyTarget) {
        let mut devices = self.0.lock();
        if let Some(turns) = devices.get_mut(&target.device) {
            turns.answered_epoch = None;
            turns.remove_expected(target.epoch, target.task);
        }
    }

    /// A turn was enqueued at this position.
    pub(super) fn begin(&self, target: &ReplyTarget, position: TurnPosition) {
        let mut devices = self.0.lock();
        // The connection may have ended in the meantime.
        if let Some(turns) = devices.get_mut(&target.device) {
            turns.begin(target.epoch, target.task, position);
            turns.remove_expected(target.epoch, target.task);
        }
    }

    /// Ends the turns of a task, or all turns of a connection that has ended.
    pub(super) fn cancel(
        &self,
        device: &DeviceKey,
        epoch: Epoch,
        task: Option<[u8; 8]>,
    ) -> CancelledTurns {
        let mut devices = self.0.lock();
        let Some(turns) = devices.get_mut(device) else {
            return CancelledTurns::default();
        };
        let cancelled = turns.cancel(epoch, task);
        if task.is_none() {
            turns.ended_epoch = turns.ended_epoch.max(Some(epoch));
            // A newer connection may have turns.
            if turns.in_progress.is_empty() && Some(turns.epoch) <= turns.ended_epoch {
                devices.remove(device);
            }
        }
        cancelled
    }

    /// Decides what to do with a chunk, and records it.
    pub(super) fn check(&self, message: &ChunkMessage) -> ChunkCheck {
        let Ok(device) = message.device.parse::<DeviceId>() else {
            return ChunkCheck::Orphan;
        };
        let key = DeviceKey {
            org: message.org,
            device,
        };
        let mut devices = self.0.lock();
        match devices.get_mut(&key) {
            Some(turns) => turns.check(message),
            None => ChunkCheck::Orphan,
        }
    }
}

impl DeviceTurns {
    const fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            ended_epoch: None,
            answered_epoch: None,
            expected: Vec::new(),
            in_progress: VecDeque::new(),
            ended: VecDeque::new(),
            last: TurnPosition { ms: 0, number: 0 },
        }
    }

    fn begin(&mut self, epoch: Epoch, task: [u8; 8], position: TurnPosition) {
        self.last = self.last.max(position);
        if self.ended.contains(&position) {
            return;
        }
        // A chunk of the reply may have arrived earlier.
        let mut in_progress = self.in_progress.iter_mut();
        match in_progress.find(|turn| turn.position == position) {
            Some(turn) => turn.is_confirmed = true,
            None => {
                let turn = TrackedTurn::new(position, (epoch, task), true);
                push_bounded(&mut self.in_progress, turn);
            }
        }
    }

    /// One turn less is expected on this task. When none is left, unconfirmed replies there belong
    /// to abandoned turns, and end.
    fn remove_expected(&mut self, epoch: Epoch, task: [u8; 8]) {
        let target = (epoch, task);
        if let Some(index) = self.expected.iter().position(|known| *known == target) {
            self.expected.swap_remove(index);
        }
        if self.expected.contains(&target) {
            return;
        }
        self.end_where(|turn| !turn.is_confirmed && (turn.epoch, turn.task) == target);
    }

    /// Ends the turns that match. Returns their positions.
    fn end_where(&mut self, matches: impl Fn(&TrackedTurn) -> bool) -> Vec<TurnPosition> {
        let ended = self.in_progress.iter().filter(|turn| matches(turn));
        let ended: Vec<TurnPosition> = ended.map(|turn| turn.position).collect();
        self.in_progress.retain(|turn| !matches(turn));
        for position in &ended {
            push_bounded(&mut self.ended, *position);
        }
        ended
    }

    fn cancel(&mut self, epoch: Epoch, task: Option<[u8; 8]>) -> CancelledTurns {
        let turns =
            self.end_where(|turn| turn.epoch == epoch && task.is_none_or(|task| turn.task == task));
        if !turns.is_empty() {
            self.answered_epoch = None;
        }
        let before = self.last.next();
        CancelledTurns { turns, before }
    }

    /// The turn that a chunk belongs to, if its reply is wanted.
    fn find_or_begin(&mut self, message: &ChunkMessage) -> Option<&mut TrackedTurn> {
        let (position, target) = (message.position, (message.epoch, message.task));
        let is_in_progress = self
            .in_progress
            .iter()
            .any(|turn| turn.position == position);
        // A later chunk of an unknown reply belongs to an earlier turn.
        let is_first = message.number == 0 || !message.chunk.is_numbered();
        let may_begin = is_first && self.expected.contains(&target);
        if !is_in_progress && !self.ended.contains(&position) && may_begin {
            self.last = self.last.max(position);
            let turn = TrackedTurn::new(position, target, false);
            push_bounded(&mut self.in_progress, turn);
        }
        let mut in_progress = self.in_progress.iter_mut();
        in_progress.find(|turn| turn.position == position)
    }

    fn check(&mut self, message: &ChunkMessage) -> ChunkCheck {
        let Some(turn) = self.find_or_begin(message) else {
            return ChunkCheck::Orphan;
        };
        let check = turn.check(message);
        let is_end = check == ChunkCheck::Next && message.chunk == Chunk::End;
        if is_end || check == ChunkCheck::Gap {
            self.answered_epoch = is_end.then_some(message.epoch);
            self.end_where(|turn| turn.position == message.position);
        }
        check
    }
}

impl TrackedTurn {
    const fn new(
        position: TurnPosition,
        (epoch, task): (Epoch, [u8; 8]),
        is_confirmed: bool,
    ) -> Self {
        Self {
            position,
            epoch,
            task,
            is_confirmed,
            attempt: 0,
            next: 0,
            text_from: None,
        }
    }

    fn check(&mut self, message: &ChunkMessage) -> ChunkCheck {
        if message.attempt < self.attempt {
            return ChunkCheck::Stale;
        }
        if message.attempt > self.attempt {
            // The next worker starts from the beginning.
            (self.attempt, self.next) = (message.attempt, 0);
        }
        // A keep-alive may overtake the chunk before it, so its number proves no gap.
        if !message.chunk.is_numbered() {
            return ChunkCheck::Next;
        }
        if message.number != self.next {
            return if message.number > self.next {
                ChunkCheck::Gap
            } else {
                ChunkCheck::Stale
            };
        }
        self.next += 1;
        if !matches!(message.chunk, Chunk::Text(_)) {
            return ChunkCheck::Next;
        }
        match self.text_from.replace(message.attempt) {
            Some(before) if before < message.attempt => ChunkCheck::Restarted,
            _ => ChunkCheck::Next,
        }
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() >= MAX_TURNS_PER_DEVICE {
        queue.pop_front();
    }
    queue.push_back(item);
}

#[cfg(test)]
mod tests {
    use switchboard_protocol::id::OrgId;
    use uuid::Uuid;

    use super::*;

    const TASK: [u8; 8] = *b"task0001";

    fn target() -> ReplyTarget {
        ReplyTarget {
            device: DeviceKey {
                org: OrgId::from_uuid(Uuid::from_u128(7)),
                device: "toy-1".parse().unwrap(),
            },
            epoch: Epoch(1),
            task: TASK,
        }
    }

    fn position(ms: u64) -> TurnPosition {
        TurnPosition { ms, number: 0 }
    }

    fn chunk(ms: u64, attempt: u32, number: u32, chunk: Chunk) -> ChunkMessage {
        ChunkMessage {
            position: position(ms),
            attempt,
            number,
            org: target().device.org,
            epoch: Epoch(1),
            task: TASK,
            device: "toy-1".into(),
            chunk,
        }
    }

    fn text(ms: u64, attempt: u32, number: u32) -> ChunkMessage {
        chunk(ms, attempt, number, Chunk::Text("a".into()))
    }

    fn expecting() -> TurnTracker {
        let tracker = TurnTracker::default();
        tracker.expect(&target());
        tracker
    }

    #[test]
    fn chunks_pass_in_order_and_once() {
        let tracker = expecting();
        tracker.begin(&target(), position(5));
        assert_eq!(tracker.check(&text(5, 1, 0)), ChunkCheck::Next);
        assert_eq!(tracker.check(&text(5, 1, 0)), ChunkCheck::Stale);
        assert_eq!(tracker.check(&text(5, 1, 1)), ChunkCheck::Next);
        assert_eq!(tracker.check(&chunk(5, 1, 2, Chunk::End)), ChunkCheck::Next);
        assert_eq!(tracker.check(&text(5, 1, 3)), ChunkCheck::Orphan);
    }

    #[test]
    fn turn_is_alone_after_a_complete_reply() {
        let tracker = TurnTracker::default();
        let answer = |ms, number| {
            tracker.begin(&target(), position(ms));
            tracker.check(&chunk(ms, 1, number, Chunk::End))
        };
        // An earlier connection may have turns.
        assert!(!tracker.expect(&target()));
        assert_eq!(answer(1, 0), ChunkCheck::Next);
        assert!(tracker.expect(&target()));
        assert!(!tracker.expect(&target()));
        assert_eq!(answer(2, 0), ChunkCheck::Next);
        assert!(!tracker.expect(&target()));
        assert_eq!([3, 4].map(|ms| answer(ms, 0)), [ChunkCheck::Next; 2]);
        assert!(tracker.expect(&target()));
        // The worker of an incomplete reply may continue.
        assert_eq!(answer(5, 1), ChunkCheck::Gap);
        assert!(!tracker.expect(&target()));
        tracker.cancel(&target().device, Epoch(1), Some(TASK));
        tracker.abandon(&target());
        assert!(!tracker.expect(&target()));
        assert_eq!(answer(6, 0), ChunkCheck::Next);
        let later = ReplyTarget {
            epoch: Epoch(2),
            ..target()
        };
        assert!(!tracker.expect(&later));
    }

    #[test]
    fn keep_alive_of_any_number_is_no_gap() {
        let tracker = expecting();
        tracker.begin(&target(), position(5));
        for number in [0, 1, 7] {
            let keep_alive = chunk(5, 1, number, Chunk::KeepAlive);
            assert_eq!(tracker.check(&keep_alive), ChunkCheck::Next, "{number}");
        }
        assert_eq!(tracker.check(&text(5, 1, 0)), ChunkCheck::Next);
        assert_eq!(
            tracker.check(&chunk(5, 1, 0, Chunk::KeepAlive)),
            ChunkCheck::Next
        );
        assert_eq!(tracker.check(&text(5, 1, 1)), ChunkCheck::Next);
        // A keep-alive of a former worker is stale.
        assert_eq!(
            tracker.check(&chunk(5, 2, 1, Chunk::KeepAlive)),
            ChunkCheck::Next
        );
        assert_eq!(
            tracker.check(&chunk(5, 1, 2, Chunk::KeepAlive)),
            ChunkCheck::Stale
        );
    }

    #[test]
    fn gap_ends_the_reply() {
        let tracker = expecting();
        assert_eq!(tracker.check(&text(5, 1, 0)), ChunkCheck::Next);
        assert_eq!(tracker.check(&text(5, 1, 2)), ChunkCheck::Gap);
        assert_eq!(tracker.check(&text(5, 1, 1)), ChunkCheck::Orphan);
    }

    #[test]
    fn next_worker_restarts_and_silences_the_former() {
        let tracker = expecting();
        assert_eq!(tracker.check(&text(5, 1, 0)), ChunkCheck::Next);
        assert_eq!(
            tracker.check(&chunk(5, 2, 0, Chunk::KeepAlive)),
            ChunkCheck::Next
        );
        assert_eq!(tracker.check(&text(5, 2, 0)), ChunkCheck::Restarted);
        assert_eq!(tracker.check(&text(5, 1, 1)), ChunkCheck::Stale);
        assert_eq!(tracker.check(&text(5, 2, 1)), ChunkCheck::Next);
        assert_eq!(tracker.check(&text(5, 3, 0)), ChunkCheck::Restarted);
        assert_eq!(tracker.check(&chunk(5, 4, 0, Chunk::End)), ChunkCheck::Next);
    }

    #[test]
    fn later_chunk_does_not_begin_a_reply() {
        let tracker = TurnTracker::default();
        tracker.expect(&target());
        assert_eq!(tracker.check(&text(5, 1, 1)), ChunkCheck::Orphan);
        tracker.begin(&target(), position(6));
        assert_eq!(tracker.check(&text(6, 1, 0)), ChunkCheck::Next);
    }

    #[test]
    fn reply_without_text_is_not_restarted() {
        let tracker = expecting();
        assert_eq!(
            tracker.check(&chunk(5, 1, 0, Chunk::KeepAlive)),
            ChunkCheck::Next
        );
        assert_eq!(tracker.check(&text(5, 2, 0)), ChunkCheck::Next);
    }

    #[test]
    fn reply_to_abandoned_turn_is_orphaned() {
        let tracker = expecting();
        assert_eq!(tracker.check(&text(5, 1, 0)), ChunkCheck::Next);
        tracker.abandon(&target());
        assert_eq!(tracker.check(&text(5, 1, 1)), ChunkCheck::Orphan);
        assert_eq!(tracker.check(&text(6, 1, 0)), ChunkCheck::Orphan);
        // The reply to the next turn on the same task is another one.
        tracker.expect(&target());
        assert_eq!(tracker.check(&text(6, 1, 0)), ChunkCheck::Next);
        assert_eq!(tracker.check(&text(7, 1, 0)), ChunkCheck::Next);
        tracker.begin(&target(), position(7));
        assert_eq!(tracker.check(&text(6, 1, 1)), ChunkCheck::Orphan);
        assert_eq!(tracker.check(&text(7, 1, 1)), ChunkCheck::Next);
    }

    #[test]
    fn cancelled_turn_is_distinct_from_next_on_task() {
        let tracker = expecting();
        tracker.expect(&target());
        let device = target().device;
        // The first chunk arrives before the turns are reported as enqueued.
        assert_eq!(tracker.check(&text(6, 1, 0)), ChunkCheck::Next);
        tracker.begin(&target(), position(5));
        tracker.begin(&target(), position(6));
        let cancelled = tracker.cancel(&device, Epoch(1), Some(TASK));
        assert_eq!(cancelled.turns.len(), 2);
        assert!(position(6) < cancelled.before && cancelled.before < position(7));
        tracker.expect(&target());
        tracker.begin(&target(), position(7));
        assert_eq!(tracker.check(&text(5, 1, 0)), ChunkCheck::Orphan);
        assert_eq!(tracker.check(&text(6, 1, 1)), ChunkCheck::Orphan);
        assert_eq!(tracker.check(&text(7, 1, 0)), ChunkCheck::Next);
        assert_eq!(tracker.cancel(&device, Epoch(2), None).turns, []);
        assert_eq!(tracker.cancel(&device, Epoch(1), None).turns, [position(7)]);
        assert_eq!(tracker.check(&text(8, 1, 0)), ChunkCheck::Orphan);
        assert!(tracker.0.lock().is_empty());
        let nothing = tracker.cancel(&device, Epoch(1), Some(TASK));
        assert_eq!(nothing, CancelledTurns::default());
    }

    #[test]
    fn cancellation_covers_a_reply_that_ended_in_a_gap() {
        let tracker = expecting();
        tracker.begin(&target(), position(5));
        assert_eq!(tracker.check(&text(5, 1, 1)), ChunkCheck::Gap);
        let cancelled = tracker.cancel(&target().device, Epoch(1), Some(TASK));
        assert_eq!(cancelled.turns, []);
        assert!(position(5) < cancelled.before && cancelled.before < position(6));
    }

    #[test]
    fn late_end_of_old_connection_spares_its_successor() {
        let tracker = expecting();
        let mut successor = target();
        successor.epoch = Epoch(2);
        tracker.expect(&successor);
        tracker.cancel(&target().device, Epoch(1), None);
        tracker.begin(&successor, position(5));
        assert_eq!(tracker.check(&text(5, 1, 0)), ChunkCheck::Next);
        tracker.cancel(&target().device, Epoch(2), None);
        assert!(tracker.0.lock().is_empty());
    }
}
