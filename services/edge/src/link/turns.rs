//! What a device says and what it is answered: words gathered until they are whole, turns to be
//! handed over, answers to be written.
//! Never: an answer on a task while another is unfinished there, or more text than limits allow.

use std::{
    collections::VecDeque,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use switchboard_protocol::frame::TaskId;
use switchboard_runtime::label;
use tokio::sync::Notify;

/// Said of a turn with more words than are taken.
const TOO_LONG: &str = "That was too long. Please say it in fewer words.";
/// Said of a turn too many.
const TOO_MANY: &str = "Too much is being answered already. Please wait a moment and ask again.";
/// Said of a sound.
const NOT_TEXT: &str = "There is no conversation service for sound here. Text is understood.";
/// Said when there was no sign of anybody.
const NOBODY: &str = "Nobody answers: there is no conversation service here, or it is busy. Services of this \
                      device can still be called.";
/// Said when whoever was answering is heard of no more, or a piece got lost. Nobody is asked to say once more what may have been done.
const BROKEN_OFF: &str =
    "\nThe answer broke off here. What you asked for may have been done all the same.";
/// Said between the words of one who fell silent and those of another who answers in its place.
const ONCE_MORE: &str = "\nI was interrupted; once more:\n";
/// Said when it is not known that the turn was handed over.
const UNREACHABLE: &str = "The conversation service can not be reached now. Should nothing happen, please ask again in a moment.";
/// What an answer holds in memory beside its text.
const ANSWER_BYTES: usize = 128;

/// What may be under way on one connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnLimits {
    /// Bytes of one turn's words.
    pub(crate) words: usize,
    /// Turns handed over and not answered.
    pub(crate) under_way: usize,
    /// Bytes of answers that wait for the socket.
    pub(crate) unsent: usize,
}

/// How a turn ended; the label of the metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    Answered,
    /// The device did not want the answer, or said something else on its task.
    Cancelled,
    TooLong,
    TooMany,
    NotText,
    /// Nobody was heard of in time.
    Unanswered,
    BrokenOff,
    Unreachable,
    /// The connection ended before.
    Gone,
}

/// A step of an answer, to be written to the device.
pub(crate) struct Step {
    pub(crate) serial: u64,
    pub(crate) task: TaskId,
    /// The seq of its first frame.
    pub(crate) seq: u16,
    pub(crate) text: String,
    /// Whether the message ends with it.
    pub(crate) is_last: bool,
}

/// What the bus is to be told for this connection, one after the other.
pub(crate) enum Errand {
    /// Hand this turn over.
    Begin {
        serial: u64,
        task: TaskId,
        words: String,
    },
    /// Its answer is not wanted any more.
    Stop(TaskId),
    /// The connection is gone, and so is this errand's runner afterwards; whether somebody may be
    /// answering on it.
    Leave { is_awaited: bool },
    /// Nothing for so long, or until it is told.
    Wait(Duration, Arc<Notify>),
    /// Nothing is under way: whoever asked has ended.
    Done,
}

/// The turns of one connection; there is none while nothing is under way.
#[derive(Default)]
pub(crate) struct Turns {
    gathering: Vec<Gathering>,
    answers: Vec<Answer>,
    stops: VecDeque<TaskId>,
    last_serial: u64,
    /// Whether somebody runs the errands.
    is_attended: bool,
    is_closed: bool,
    /// Whether somebody may have been answering when it was closed.
    is_awaited: bool,
    changed: Arc<Notify>,
    /// Ends that were not counted yet.
    ended: Vec<TurnEnd>,
}

struct Gathering {
    task: TaskId,
    words: Words,
}

enum Words {
    Said(String),
    TooLong,
    Cancelled,
}

struct Answer {
    serial: u64,
    task: TaskId,
    /// Not handed over yet.
    words: Option<String>,
    seq: u16,
    waiting: String,
    is_over: bool,
    /// Whether anything was heard of whoever answers.
    is_attended: bool,
    /// When, or since when it is waited for.
    heard: Instant,
}

label!(TurnEnd {
    Answered => "answered",
    Cancelled => "cancelled",
    TooLong => "too_long",
    TooMany => "too_many",
    NotText => "not_text",
    Unanswered => "unanswered",
    BrokenOff => "broken_off",
    Unreachable => "unreachable",
    Gone => "gone",
});

impl Turns {
    /// Whether nothing is under way, so that nothing has to be kept.
    pub(super) fn is_idle(&self) -> bool {
        self.is_silent() && !self.is_attended && self.ended.is_empty()
    }

    /// Whether the device says nothing, and was answered everything to the end.
    pub(super) fn is_silent(&self) -> bool {
        self.gathering.is_empty() && self.answers.is_empty()
    }

    /// Whether something can be written.
    pub(super) fn has_steps(&self) -> bool {
        self.answers.iter().any(Answer::has_step)
    }

    /// Whether more waits for the socket than may.
    pub(super) fn is_too_much(&self, limits: TurnLimits) -> bool {
        let bytes = |answer: &Answer| answer.waiting.len() + ANSWER_BYTES;
        self.answers.iter().map(bytes).sum::<usize>() > limits.unsent
    }

    pub(super) fn take_ended(&mut self) -> Vec<TurnEnd> {
        mem::take(&mut self.ended)
    }

    // From the device.

    pub(super) fn gather(&mut self, task: TaskId, text: &str, limits: TurnLimits) {
        let found = self
            .gathering
            .iter()
            .position(|gathering| gathering.task == task);
        let index = found.unwrap_or_else(|| {
            let words = Words::Said(String::new());
            self.gathering.push(Gathering { task, words });
            self.gathering.len() - 1
        });
        let Some(gathering) = self.gathering.get_mut(index) else {
            return;
        };
        if let Words::Said(said) = &mut gathering.words {
            if said.len() + text.len() > limits.words {
                gathering.words = Words::TooLong;
            } else {
                said.push_str(text);
            }
        }
    }

    /// A message is complete; whether somebody has to be found who runs the errands.
    pub(super) fn complete(&mut self, task: TaskId, now: Instant, limits: TurnLimits) -> bool {
        let gathered = self
            .gathering
            .iter()
            .position(|gathering| gathering.task == task);
        let gathered = gathered.map(|index| self.gathering.swap_remove(index).words);
        // One message at a time on a task: who says something else there is answered that.
        self.cancel_answer(task);
        let under_way = self.answers.iter().filter(|answer| !answer.is_over).count();
        match gathered {
            Some(Words::Said(_)) if under_way >= limits.under_way => {
                self.refuse(task, TOO_MANY, TurnEnd::TooMany);
            }
            Some(Words::Said(words)) => {
                self.open(task, Some(words), "", now);
                self.changed.notify_one();
                return !mem::replace(&mut self.is_attended, true);
            }
            Some(Words::TooLong) => self.refuse(task, TOO_LONG, TurnEnd::TooLong),
            Some(Words::Cancelled) => self.refuse(task, "", TurnEnd::Cancelled),
            None => self.refuse(task, NOT_TEXT, TurnEnd::NotText),
        }
        false
    }

    /// The device wants no answer on this task; whether there was one to come.
    pub(super) fn cancel(&mut self, task: TaskId) -> bool {
        let gathering = self.gathering.iter_mut();
        for gathering in gathering.filter(|gathering| gathering.task == task) {
            gathering.words = Words::Cancelled;
        }
        self.cancel_answer(task)
    }

    fn cancel_answer(&mut self, task: TaskId) -> bool {
        let Some(answer) = self.open_answer(task) else {
            return false;
        };
        answer.waiting.clear();
        let was_handed_over = answer.words.take().is_none();
        answer.is_over = true;
        if was_handed_over {
            self.stops.push_back(task);
        }
        self.ended.push(TurnEnd::Cancelled);
        self.changed.notify_one();
        true
    }

    fn refuse(&mut self, task: TaskId, why: &str, end: TurnEnd) {
        self.open(task, None, why, Instant::now());
        self.ended.push(end);
    }

    /// Opens an answer. Without words to be handed over it is complete.
    fn open(&mut self, task: TaskId, words: Option<String>, said: &str, now: Instant) {
        self.last_serial += 1;
        self.answers.push(Answer {
            serial: self.last_serial,
            task,
            is_over: words.is_none(),
            words,
            seq: 0,
            waiting: said.to_owned(),
            is_attended: false,
            heard: now,
        });
    }

    // From whoever answers.

    /// A piece of the answer, or only a sign of life.
    pub(super) fn say(&mut self, task: TaskId, text: &str, now: Instant) {
        if let Some(answer) = self.answer_to(task) {
            (answer.is_attended, answer.heard) = (true, now);
            answer.waiting.push_str(text);
        }
    }

    /// What comes next is the beginning once more, of another who answers.
    pub(super) fn begin_again(&mut self, task: TaskId) {
        if let Some(answer) = self.answer_to(task) {
            answer.waiting.push_str(ONCE_MORE);
        }
    }

    pub(super) fn finish(&mut self, task: TaskId, is_whole: bool) {
        if let Some(answer) = self.answer_to(task) {
            answer.is_over = true;
            if is_whole {
                self.ended.push(TurnEnd::Answered);
            } else {
                answer.waiting.push_str(BROKEN_OFF);
                self.ended.push(TurnEnd::BrokenOff);
                self.stops.push_back(task);
            }
            self.changed.notify_one();
        }
    }

    fn open_answer(&mut self, task: TaskId) -> Option<&mut Answer> {
        let mut answers = self.answers.iter_mut();
        answers.find(|answer| answer.task == task && !answer.is_over)
    }

    /// Pieces that come before the turn was handed over belong to an earlier one.
    fn answer_to(&mut self, task: TaskId) -> Option<&mut Answer> {
        self.open_answer(task)
            .filter(|answer| answer.words.is_none())
    }

    // To the device.

    pub(super) fn next_step(&mut self) -> Option<Step> {
        let index = self.answers.iter().position(Answer::has_step)?;
        let answer = self.answers.get_mut(index)?;
        let step = Step {
            serial: answer.serial,
            task: answer.task,
            seq: answer.seq,
            text: mem::take(&mut answer.waiting),
            is_last: answer.is_over,
        };
        if step.is_last {
            self.answers.remove(index);
        }
        Some(step)
    }

    /// The step was written up to this seq; none when there is no number left for more.
    pub(super) fn written(&mut self, serial: u64, next: Option<u16>) {
        let index = self
            .answers
            .iter()
            .position(|answer| answer.serial == serial);
        let Some(index) = index else { return };
        match (next, self.answers.get_mut(index)) {
            (Some(next), Some(answer)) => answer.seq = next,
            _ => {
                let answer = self.answers.remove(index);
                if !answer.is_over {
                    self.stops.push_back(answer.task);
                    self.ended.push(TurnEnd::BrokenOff);
                    self.changed.notify_one();
                }
            }
        }
    }

    // To the bus.

    pub(super) fn next_errand(&mut self, now: Instant, patience: Duration) -> Errand {
        if self.is_closed {
            self.is_attended = false;
            let is_awaited = self.is_awaited;
            return Errand::Leave { is_awaited };
        }
        if let Some(task) = self.stops.pop_front() {
            return Errand::Stop(task);
        }
        for answer in &mut self.answers {
            if let Some(words) = answer.words.take() {
                answer.heard = now;
                let (serial, task) = (answer.serial, answer.task);
                return Errand::Begin {
                    serial,
                    task,
                    words,
                };
            }
        }
        if let Some(task) = self.give_up(now, patience) {
            return Errand::Stop(task);
        }
        let open = self.answers.iter().filter(|answer| !answer.is_over);
        let Some(heard) = open.map(|answer| answer.heard).min() else {
            self.is_attended = false;
            return Errand::Done;
        };
        let left = patience.saturating_sub(now.saturating_duration_since(heard));
        Errand::Wait(left, Arc::clone(&self.changed))
    }

    /// Ends an answer of which nothing was heard for too long.
    fn give_up(&mut self, now: Instant, patience: Duration) -> Option<TaskId> {
        let is_late = |answer: &&mut Answer| {
            !answer.is_over && now.saturating_duration_since(answer.heard) >= patience
        };
        let answer = self.answers.iter_mut().find(is_late)?;
        answer.is_over = true;
        let (why, end) = if answer.is_attended {
            (BROKEN_OFF, TurnEnd::BrokenOff)
        } else {
            (NOBODY, TurnEnd::Unanswered)
        };
        answer.waiting.push_str(why);
        self.ended.push(end);
        Some(answer.task)
    }

    /// The turn could not be handed over.
    pub(super) fn refused(&mut self, serial: u64) {
        let mut answers = self.answers.iter_mut();
        let open = |answer: &&mut Answer| answer.serial == serial && !answer.is_over;
        if let Some(answer) = answers.find(open) {
            answer.waiting.push_str(UNREACHABLE);
            answer.is_over = true;
            self.ended.push(TurnEnd::Unreachable);
        }
    }

    /// The connection is gone; whether somebody runs errands who will say so.
    pub(super) fn close(&mut self) -> bool {
        self.is_closed = true;
        let open = self.answers.iter().filter(|answer| !answer.is_over);
        let handed_over = open.clone().any(|answer| answer.words.is_none());
        self.is_awaited = handed_over || !self.stops.is_empty();
        self.ended.extend(open.map(|_| TurnEnd::Gone));
        self.answers = Vec::new();
        self.gathering = Vec::new();
        self.changed.notify_one();
        self.is_attended
    }
}

impl Answer {
    fn has_step(&self) -> bool {
        !self.waiting.is_empty() || self.is_over
    }
}
