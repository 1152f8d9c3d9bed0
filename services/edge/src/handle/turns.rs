//! The turn state machine of one connection: messages from the device, turns for the bus, replies
//! for the device or for its spoken conversation.

mod message;
mod pictures;
mod spoken;

use std::{
    collections::VecDeque,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use switchboard_bus::{NewMessage, SpeakingStyle};
use switchboard_phrases::{Phrase, Preference};
use switchboard_protocol::{
    frame::{Kind, TaskId},
    message::Picture,
};
use switchboard_runtime::{
    budget::{Budget, Exhausted, Owner},
    label,
};
use tokio::sync::Notify;

use self::{
    message::{Beginning, Content, Message},
    pictures::PartialPicture,
};
use super::WaitingBytes;

/// Memory of a reply besides its text.
const REPLY_OVERHEAD_BYTES: usize = size_of::<Turn>();

/// Limits of the turns on one connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnLimits {
    /// Bytes of one message from the device.
    pub(crate) max_message_bytes: usize,
    /// Turns without a complete reply.
    pub(crate) max_in_flight: usize,
    /// Bytes of replies that wait for the socket.
    pub(crate) max_unsent_bytes: usize,
}

/// How a turn ended; the metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    Answered,
    /// The device cancelled the reply, or sent another message on the same task.
    Cancelled,
    TooLong,
    TooMany,
    NotText,
    /// Its picture is too large, or is none.
    BadPicture,
    /// No worker responded in time.
    Unanswered,
    BrokenOff,
    Unreachable,
    /// The connection closed first.
    Gone,
}

label!(TurnEnd {
    Answered => "answered",
    Cancelled => "cancelled",
    TooLong => "too_long",
    TooMany => "too_many",
    NotText => "not_text",
    BadPicture => "bad_picture",
    Unanswered => "unanswered",
    BrokenOff => "broken_off",
    Unreachable => "unreachable",
    Gone => "gone",
});

/// The next part of a reply, to be written to the device or spoken.
pub(crate) struct ReplyChunk {
    pub(crate) serial: u64,
    pub(crate) task: TaskId,
    /// The seq of its first frame.
    pub(crate) seq: u16,
    pub(crate) text: String,
    /// How it is to be spoken, with the first chunk after it is known.
    pub(crate) style: Option<Box<SpeakingStyle>>,
    /// The reply ends with this chunk.
    pub(crate) is_last: bool,
}

/// What [`crate::turn_forwarder`] does next.
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart where it is returned"
)]
pub(crate) enum BusAction {
    /// Queue this turn on the bus.
    Enqueue {
        serial: u64,
        task: TaskId,
        message: NewMessage,
    },
    /// Cancel the reply on this task.
    Cancel(TaskId),
    /// The connection closed and a worker may be replying: cancel all its turns, then exit.
    CancelAll,
    /// The connection closed and no reply is expected: drop its turns on the bus, then exit.
    Discard,
    /// Wait until the turns change, at most this long.
    Wait(Duration, Arc<Notify>),
    /// No turn is open; the forwarder exits.
    Exit,
}

/// All turns of one connection: the only place where a turn changes its state.
///
/// The type does no I/O and has no clock. The connection's task feeds it the device's frames and
/// takes [`ReplyChunk`]s out of it. [`crate::bus_handler`] feeds it the workers' replies. One task
/// per connection, [`crate::turn_forwarder`], takes [`BusAction`]s out of it while turns are open.
///
/// ```text
///  TEXT, PICTURE  END            forwarder           text of a worker
/// ─────► Message ─────► Queued ────────────► Forwarded ───────────────► Replying
///           │             │                      │                          │
///           │ refused     │ CANCEL, or a new     │ CANCEL, bus error,       │ complete, lost,
///           │             │ message on the task  │ timeout                  │ CANCEL, timeout
///           ▼             ▼                      ▼                          ▼
///           └─────────────┴────► Finished ◄──────┴──────────────────────────┘
///                                    │ last chunk and END written
///                                    ▼
///                                 removed
/// ```
///
/// A message is refused when it is too long, is not text, has a bad picture, or exceeds the limit of
/// turns in flight.
/// Each arrow into `Finished` records one [`TurnEnd`]. A turn that was forwarded and is then
/// cancelled, broken off or timed out also queues a [`BusAction::Cancel`].
///
/// Invariant: at most one turn per task is not `Finished`, so text from a worker has one receiver.
/// Invariant: a reply's seq has no gaps and every reply ends with an END frame (I12).
///
/// A connection without turns holds none of this: [`State`] frees it when [`Self::is_idle`].
#[derive(Default)]
pub(crate) struct Turns {
    messages: Vec<Message>,
    turns: Vec<Turn>,
    cancels: VecDeque<TaskId>,
    last_serial: u64,
    /// The language of notices.
    preference: Preference,
    /// A forwarder task runs.
    has_forwarder: bool,
    is_closed: bool,
    /// A worker may have been replying when the connection closed.
    was_replying: bool,
    /// The picture of the spoken message that is being answered.
    spoken_picture: Option<Picture>,
    /// Bytes of the message that the forwarder hands over to the bus.
    forwarding_bytes: usize,
    changed: Arc<Notify>,
    /// Ends that the metric does not count yet.
    pub(super) ended: Vec<TurnEnd>,
    waiting: WaitingBytes,
}

struct Turn {
    serial: u64,
    task: TaskId,
    state: TurnState,
    /// The seq of the next frame of the reply.
    seq: u16,
    /// Text of the reply that is not written yet.
    unsent: String,
    /// The last sign of a worker, or when waiting for one began.
    last_seen: Instant,
    /// The message was spoken: the spoken conversation takes the reply.
    is_spoken: bool,
    style: Option<Box<SpeakingStyle>>,
    /// Of the message, for the language of notices.
    beginning: Beginning,
    preference: Preference,
}

#[expect(
    clippy::large_enum_variant,
    reason = "a connection has few turns, and none while it is idle"
)]
enum TurnState {
    Queued(NewMessage),
    Forwarded,
    Replying,
    Finished,
}

impl Turns {
    pub(super) fn is_idle(&self) -> bool {
        let has_picture = self.spoken_picture.is_some();
        self.has_no_turns() && !self.has_forwarder && !has_picture && self.ended.is_empty()
    }

    pub(super) fn has_no_turns(&self) -> bool {
        self.messages.is_empty() && self.turns.is_empty()
    }

    pub(super) fn exceeds(&self, limits: TurnLimits) -> bool {
        let bytes = |turn: &Turn| turn.unsent.len() + REPLY_OVERHEAD_BYTES;
        self.turns.iter().map(bytes).sum::<usize>() > limits.max_unsent_bytes
    }

    /// Charges what waits of messages and of replies, and returns what no longer waits.
    ///
    /// # Errors
    /// When there is no room for more.
    pub(super) fn charge(&mut self, budget: &Budget, owner: Owner) -> Result<(), Exhausted> {
        self.waiting.set(self.bytes(), budget, owner)
    }

    fn bytes(&self) -> usize {
        let messages = self.messages.iter().map(|message| {
            let text = match &message.content {
                Content::Text(text) => text.len(),
                _ => 0,
            };
            text + message.picture.bytes()
        });
        let turns = self.turns.iter().map(|turn| match &turn.state {
            TurnState::Queued(message) => queued_bytes(message) + turn.unsent.len(),
            _ => turn.unsent.len(),
        });
        let spoken = self.spoken_picture.as_ref().map_or(0, Picture::size_bytes);
        spoken + self.forwarding_bytes + messages.chain(turns).sum::<usize>()
    }

    /// Sets what decides the language of notices for later messages, besides their words.
    pub(super) const fn set_preference(&mut self, preference: Preference) {
        self.preference = preference;
    }

    // From the device.

    /// Ends the task's message of this kind. Returns true when the caller has to start a forwarder.
    pub(super) fn end_message(
        &mut self,
        task: TaskId,
        kind: Kind,
        now: Instant,
        max_in_flight: usize,
    ) -> bool {
        let found = self.messages.iter().position(|part| part.task == task);
        let message = found.map(|index| self.messages.swap_remove(index));
        // A task has one reply at a time: a new message replaces the turn before.
        self.cancel_turn(task);
        let in_flight = self.turns.iter().filter(|turn| turn.is_open()).count();
        let text = message.as_ref().map_or("", |part| part.content.text());
        let beginning = Beginning::of(text);
        let (notice, end) = match message {
            _ if kind == Kind::Audio => (Some(Phrase::TextOnly), TurnEnd::NotText),
            Some(Message {
                content: Content::Text(text),
                picture,
                ..
            }) => match picture.finish() {
                _ if in_flight >= max_in_flight => (Some(Phrase::TooManyTurns), TurnEnd::TooMany),
                Ok(picture) => {
                    let message = NewMessage {
                        picture,
                        ..text.into()
                    };
                    self.push(task, TurnState::Queued(message), beginning, now);
                    return self.start_forwarder();
                }
                Err((notice, end)) => (Some(notice), end),
            },
            Some(Message { content, .. }) => match content {
                Content::TooLong(_) => (Some(Phrase::MessageTooLong), TurnEnd::TooLong),
                Content::TooMany(_) => (Some(Phrase::TooManyTurns), TurnEnd::TooMany),
                Content::Text(_) | Content::Cancelled => (None, TurnEnd::Cancelled),
            },
            // It was withdrawn.
            None => (None, TurnEnd::Cancelled),
        };
        self.refuse(task, notice, beginning, end);
        false
    }

    /// Wakes the forwarder. Returns true when the caller has to start it.
    fn start_forwarder(&mut self) -> bool {
        self.changed.notify_one();
        !mem::replace(&mut self.has_forwarder, true)
    }

    /// Cancels the task's unfinished message and its reply. In a spoken conversation, whose task stays
    /// open, the next message may have a picture again.
    pub(crate) fn cancel(&mut self, task: TaskId, has_audio: bool) {
        if has_audio {
            self.withdraw_picture(task);
        }
        let messages = self.messages.iter_mut();
        for message in messages.filter(|message| message.task == task) {
            message.content = Content::Cancelled;
            message.picture = PartialPicture::None;
        }
        self.cancel_turn(task);
    }

    /// Cancels the task's reply.
    pub(crate) fn cancel_turn(&mut self, task: TaskId) {
        let Some(turn) = self.open_turn(task) else {
            return;
        };
        turn.unsent.clear();
        if !matches!(turn.finish(), TurnState::Queued(_)) {
            self.cancels.push_back(task);
        }
        self.ended.push(TurnEnd::Cancelled);
        self.changed.notify_one();
    }

    fn refuse(
        &mut self,
        task: TaskId,
        notice: Option<Phrase<'_>>,
        beginning: Beginning,
        end: TurnEnd,
    ) {
        self.push(task, TurnState::Finished, beginning, Instant::now());
        if let (Some(notice), Some(turn)) = (notice, self.turns.last_mut()) {
            turn.append_notice(notice);
        }
        self.ended.push(end);
    }

    fn push(&mut self, task: TaskId, state: TurnState, beginning: Beginning, now: Instant) {
        self.last_serial += 1;
        self.turns.push(Turn {
            serial: self.last_serial,
            task,
            state,
            seq: 0,
            unsent: String::new(),
            last_seen: now,
            is_spoken: false,
            style: None,
            beginning,
            preference: self.preference,
        });
    }

    // From the worker that replies.

    /// Appends text to the reply; empty text is a keep-alive.
    pub(crate) fn append_reply(&mut self, task: TaskId, text: &str, now: Instant) {
        if let Some(turn) = self.forwarded_turn(task) {
            turn.state = TurnState::Replying;
            turn.last_seen = now;
            turn.unsent.push_str(text);
        }
    }

    /// How the reply is to be spoken.
    pub(crate) fn set_style(&mut self, task: TaskId, style: SpeakingStyle) {
        if let Some(turn) = self.forwarded_turn(task) {
            turn.style = Some(Box::new(style));
        }
    }

    /// Another worker took the turn over and sends the reply from its beginning.
    pub(crate) fn restart_reply(&mut self, task: TaskId) {
        if let Some(turn) = self.forwarded_turn(task) {
            turn.unsent.push('\n');
            turn.append_notice(Phrase::AnswerRestarts);
            turn.unsent.push('\n');
        }
    }

    /// Ends the reply. `is_whole` is false when a part of it was lost.
    pub(crate) fn finish_reply(&mut self, task: TaskId, is_whole: bool) {
        let Some(turn) = self.forwarded_turn(task) else {
            return;
        };
        turn.finish();
        if is_whole {
            self.ended.push(TurnEnd::Answered);
        } else {
            turn.append_cut_off();
            self.ended.push(TurnEnd::BrokenOff);
            self.cancels.push_back(task);
        }
        self.changed.notify_one();
    }

    fn open_turn(&mut self, task: TaskId) -> Option<&mut Turn> {
        let mut turns = self.turns.iter_mut();
        turns.find(|turn| turn.task == task && turn.is_open())
    }

    /// The task's turn that a worker can reply to. Text that arrives while the turn is still queued
    /// belongs to an earlier turn on the task.
    fn forwarded_turn(&mut self, task: TaskId) -> Option<&mut Turn> {
        self.open_turn(task)
            .filter(|turn| !matches!(turn.state, TurnState::Queued(_)))
    }

    // To the device.

    pub(super) fn has_chunk(&self) -> bool {
        self.turns.iter().any(|turn| turn.has_chunk(false))
    }

    pub(super) fn has_spoken_chunk(&self) -> bool {
        self.turns.iter().any(|turn| turn.has_chunk(true))
    }

    /// Takes the next part of a reply, of spoken messages or of the others.
    pub(super) fn next_chunk(&mut self, is_spoken: bool) -> Option<ReplyChunk> {
        let mut turns = self.turns.iter();
        let index = turns.position(|turn| turn.has_chunk(is_spoken))?;
        let turn = self.turns.get_mut(index)?;
        let chunk = ReplyChunk {
            serial: turn.serial,
            task: turn.task,
            seq: turn.seq,
            text: mem::take(&mut turn.unsent),
            style: turn.style.take(),
            is_last: !turn.is_open(),
        };
        if chunk.is_last {
            self.turns.remove(index);
        }
        Some(chunk)
    }

    /// Records the seq after a written chunk; `None` when the task has no seq left.
    pub(crate) fn advance_seq(&mut self, serial: u64, next: Option<u16>) {
        let Some(index) = self.turns.iter().position(|turn| turn.serial == serial) else {
            return;
        };
        match (next, self.turns.get_mut(index)) {
            (Some(next), Some(turn)) => turn.seq = next,
            _ => {
                let turn = self.turns.remove(index);
                if turn.is_open() {
                    self.cancels.push_back(turn.task);
                    self.ended.push(TurnEnd::BrokenOff);
                    self.changed.notify_one();
                }
            }
        }
    }

    // To the bus.

    /// The forwarder's next action. Ends turns whose worker was silent for `reply_timeout`.
    pub(crate) fn next_action(&mut self, now: Instant, reply_timeout: Duration) -> BusAction {
        self.forwarding_bytes = 0;
        if self.is_closed {
            self.has_forwarder = false;
            return if self.was_replying {
                BusAction::CancelAll
            } else {
                BusAction::Discard
            };
        }
        if let Some(task) = self.cancels.pop_front() {
            return BusAction::Cancel(task);
        }
        if let Some(action) = self.forward(now) {
            return action;
        }
        if let Some(task) = self.time_out(now, reply_timeout) {
            return BusAction::Cancel(task);
        }
        let open = self.turns.iter().filter(|turn| turn.is_open());
        let Some(oldest) = open.map(|turn| turn.last_seen).min() else {
            self.has_forwarder = false;
            return BusAction::Exit;
        };
        let left = reply_timeout.saturating_sub(now.saturating_duration_since(oldest));
        BusAction::Wait(left, Arc::clone(&self.changed))
    }

    /// Hands over the first message that waits. It is charged until the next action.
    fn forward(&mut self, now: Instant) -> Option<BusAction> {
        let mut turns = self.turns.iter();
        let index = turns.position(|turn| matches!(turn.state, TurnState::Queued(_)))?;
        let turn = self.turns.get_mut(index)?;
        let TurnState::Queued(message) = mem::replace(&mut turn.state, TurnState::Forwarded) else {
            return None;
        };
        turn.last_seen = now;
        self.forwarding_bytes = queued_bytes(&message);
        Some(BusAction::Enqueue {
            serial: turn.serial,
            task: turn.task,
            message,
        })
    }

    fn time_out(&mut self, now: Instant, reply_timeout: Duration) -> Option<TaskId> {
        let is_late = |turn: &&mut Turn| {
            turn.is_open() && now.saturating_duration_since(turn.last_seen) >= reply_timeout
        };
        let turn = self.turns.iter_mut().find(is_late)?;
        let end = if matches!(turn.finish(), TurnState::Replying) {
            turn.append_cut_off();
            TurnEnd::BrokenOff
        } else {
            turn.append_notice(Phrase::Unanswered);
            TurnEnd::Unanswered
        };
        self.ended.push(end);
        Some(turn.task)
    }

    /// The bus did not accept the turn.
    pub(crate) fn fail(&mut self, serial: u64) {
        let mut turns = self.turns.iter_mut();
        if let Some(turn) = turns.find(|turn| turn.serial == serial && turn.is_open()) {
            turn.append_notice(Phrase::ChatUnreachable);
            turn.finish();
            self.ended.push(TurnEnd::Unreachable);
        }
    }

    /// Ends all turns with the connection. Returns true when a forwarder will notify the bus.
    pub(super) fn close(&mut self) -> bool {
        self.is_closed = true;
        let open = self.turns.iter().filter(|turn| turn.is_open());
        let is_replying = |turn: &Turn| !matches!(turn.state, TurnState::Queued(_));
        self.was_replying = open.clone().any(is_replying) || !self.cancels.is_empty();
        self.ended.extend(open.map(|_| TurnEnd::Gone));
        self.turns = Vec::new();
        self.messages = Vec::new();
        self.drop_spoken_picture();
        self.changed.notify_one();
        self.has_forwarder
    }
}

impl Turn {
    const fn is_open(&self) -> bool {
        !matches!(self.state, TurnState::Finished)
    }

    fn has_chunk(&self, is_spoken: bool) -> bool {
        self.is_spoken == is_spoken && (!self.unsent.is_empty() || !self.is_open())
    }

    /// Appends a notice. Few turns have one, so the language is detected here.
    fn append_notice(&mut self, notice: Phrase<'_>) {
        let language = self.preference.language_of(self.beginning.as_str());
        self.unsent.push_str(&notice.text(language));
    }

    fn append_cut_off(&mut self) {
        self.unsent.push('\n');
        self.append_notice(Phrase::AnswerCutOff);
    }

    /// Moves the turn to `Finished` and returns the state it had.
    const fn finish(&mut self) -> TurnState {
        mem::replace(&mut self.state, TurnState::Finished)
    }
}

/// Bytes of a message for the bus. The picture of a spoken one is counted until its answer has ended.
fn queued_bytes(message: &NewMessage) -> usize {
    let counted = message.picture.as_ref().filter(|_| message.is_spoken);
    message.bytes() - counted.map_or(0, Picture::size_bytes)
}
