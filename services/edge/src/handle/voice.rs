//! What a connection and its spoken conversation exchange, behind the lock of the connection.

use std::{collections::VecDeque, mem, sync::Arc, time::Instant};

use switchboard_bus::NewMessage;
use switchboard_protocol::{
    frame::TaskId,
    message::{AudioTerms, Listen, ServerVoice},
};
use switchboard_runtime::budget::{Budget, Owner};
use tokio::sync::Notify;

use super::{Command, ConnectionHandle, Phase, ReplyChunk, State, WaitingBytes};
use crate::edge::Edge;

/// Audio of the device that may wait for its conversation: more than two seconds of the largest format.
const MAX_WAITING_BYTES: usize = 256 * 1024;
/// Inputs that may wait for the conversation.
const MAX_INPUTS: usize = 256;
/// Memory of an input besides its audio.
const INPUT_BYTES: usize = size_of::<VoiceInput>();
/// Frames that the socket has not accepted. With more, no further inputs and replies are taken.
const MAX_FRAMES: usize = 256;

/// What a device sends to its spoken conversation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum VoiceInput {
    Audio {
        task: TaskId,
        bytes: Vec<u8>,
    },
    /// Audio that there was no room for is missing here.
    Gap,
    End {
        task: TaskId,
    },
    Listen {
        task: TaskId,
        listen: Listen,
    },
    Wake {
        task: TaskId,
    },
    Played {
        ms: u32,
    },
    Cancel {
        task: TaskId,
    },
}

impl VoiceInput {
    const fn bytes(&self) -> usize {
        match self {
            Self::Audio { bytes, .. } => INPUT_BYTES + bytes.len(),
            _ => INPUT_BYTES,
        }
    }

    /// The task that the input names.
    pub(crate) const fn task(&self) -> Option<TaskId> {
        match self {
            Self::Audio { task, .. }
            | Self::End { task }
            | Self::Listen { task, .. }
            | Self::Wake { task }
            | Self::Cancel { task } => Some(*task),
            Self::Gap | Self::Played { .. } => None,
        }
    }
}

/// What a spoken conversation sends to its device.
#[derive(Debug)]
pub(crate) enum VoiceFrame {
    /// The encoded audio of one frame.
    Audio {
        task: TaskId,
        bytes: Vec<u8>,
        ms: u32,
    },
    /// A part of an answer that is not spoken.
    Text { task: TaskId, text: String },
    /// A VOICE payload.
    Message { task: TaskId, payload: Vec<u8> },
    /// The answer was interrupted: the device drops the audio that it has not played.
    Cancel { task: TaskId, decided: Instant },
    /// The answer is complete.
    End { task: TaskId },
    /// A message has no answer. Another one may be in progress on another task.
    Unanswered { task: TaskId },
}

impl VoiceFrame {
    /// Milliseconds of its audio.
    pub(crate) const fn audio_ms(&self) -> u32 {
        match self {
            Self::Audio { ms, .. } => *ms,
            _ => 0,
        }
    }
}

/// What became of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// A conversation is running and takes it.
    Queued,
    /// The same, and the caller has to start the conversation.
    Start,
    /// There is no room.
    Dropped,
    /// The device has no audio, or this input begins no conversation.
    Ignored,
}

/// The spoken side of a connection. It exists while the device has audio by the terms of AUTH; a
/// conversation runs from the first input to its end.
///
/// Invariant: only frames of one answer are in `frames`, so one `seq` numbers them.
pub(super) struct Voice {
    terms: AudioTerms,
    is_running: bool,
    is_closed: bool,
    /// A reply is awaited or being spoken.
    is_answering: bool,
    inputs: VecDeque<VoiceInput>,
    /// Bytes of `inputs`, and their charge.
    input_bytes: usize,
    waiting: WaitingBytes,
    frames: VecDeque<VoiceFrame>,
    /// The seq of the next frame of the answer.
    seq: u16,
    /// Milliseconds of audio that no message has reported: of utterances and of answers.
    unreported_ms: u32,
    changed: Arc<Notify>,
}

impl Voice {
    /// Adds an input, or joins it to the last one: audio of one task, and reports of the same kind. So a
    /// conversation that is behind takes all of it at once.
    fn push(&mut self, input: VoiceInput, budget: &Budget, owner: Owner) -> Delivery {
        if !self.is_running {
            let begins = !matches!(input, VoiceInput::Cancel { .. } | VoiceInput::Played { .. });
            if !begins || self.is_closed {
                return Delivery::Ignored;
            }
        }
        let input = match (self.inputs.back_mut(), input) {
            (
                Some(VoiceInput::Audio { task, bytes }),
                VoiceInput::Audio {
                    task: next,
                    bytes: more,
                },
            ) if *task == next => {
                let total = self.input_bytes + more.len();
                if !is_admitted(total, &mut self.waiting, budget, owner) {
                    return self.drop_audio();
                }
                self.input_bytes = total;
                bytes.extend_from_slice(&more);
                None
            }
            (Some(VoiceInput::Played { ms }), VoiceInput::Played { ms: latest }) => {
                *ms = latest;
                None
            }
            (_, input) => Some(input),
        };
        if let Some(input) = input {
            let is_audio = matches!(input, VoiceInput::Audio { .. });
            let total = self.input_bytes + input.bytes();
            if self.inputs.len() >= MAX_INPUTS {
                return Delivery::Dropped;
            }
            if !is_admitted(total, &mut self.waiting, budget, owner) && is_audio {
                return self.drop_audio();
            }
            self.input_bytes = total;
            self.inputs.push_back(input);
        }
        self.changed.notify_one();
        if mem::replace(&mut self.is_running, true) {
            Delivery::Queued
        } else {
            Delivery::Start
        }
    }

    fn drop_audio(&mut self) -> Delivery {
        if self.inputs.back() != Some(&VoiceInput::Gap) {
            self.inputs.push_back(VoiceInput::Gap);
        }
        Delivery::Dropped
    }

    const fn count_audio(&mut self, ms: u32) {
        self.unreported_ms = self.unreported_ms.saturating_add(ms);
    }
}

/// Whether this many bytes of inputs may wait. If so, they are charged.
fn is_admitted(total: usize, waiting: &mut WaitingBytes, budget: &Budget, owner: Owner) -> bool {
    total <= MAX_WAITING_BYTES && waiting.set(total, budget, owner).is_ok()
}

impl State {
    pub(super) fn has_voice_frame(&self) -> bool {
        let voice = self.voice.as_ref();
        voice.is_some_and(|voice| !voice.frames.is_empty())
    }

    /// No reply is awaited or being spoken.
    pub(super) fn is_silent(&self) -> bool {
        let voice = self.voice.as_ref();
        voice.is_none_or(|voice| !voice.is_answering && voice.frames.is_empty())
    }

    pub(super) fn next_voice_frame(&mut self) -> Option<Command> {
        let voice = self.voice.as_mut()?;
        let frame = voice.frames.pop_front()?;
        if voice.frames.len() + 1 == MAX_FRAMES {
            // Inputs and replies are taken again.
            voice.changed.notify_one();
        }
        voice.count_audio(frame.audio_ms());
        Some(Command::Voice(frame))
    }

    /// Wakes the conversation when a spoken message has more of its reply.
    pub(super) fn notify_voice(&self) {
        let turns = self.turns.as_ref();
        if turns.is_some_and(|turns| turns.has_spoken_chunk())
            && let Some(voice) = &self.voice
        {
            voice.changed.notify_one();
        }
    }

    /// Ends the conversation with the connection.
    pub(super) fn close_voice(&mut self) {
        if let Some(voice) = &mut self.voice {
            voice.is_closed = true;
            voice.inputs = VecDeque::new();
            voice.frames = VecDeque::new();
            voice.changed.notify_one();
        }
    }
}

/// The side of the connection's own task.
impl ConnectionHandle {
    /// Gives the connection a spoken side.
    pub(crate) fn set_voice(&self, terms: AudioTerms) {
        self.state.lock().voice = Some(Box::new(Voice {
            terms,
            is_running: false,
            is_closed: false,
            is_answering: false,
            inputs: VecDeque::new(),
            input_bytes: 0,
            waiting: WaitingBytes::default(),
            frames: VecDeque::new(),
            seq: 0,
            unreported_ms: 0,
            changed: Arc::default(),
        }));
    }

    /// Hands an input to the conversation.
    pub(crate) fn push_voice(&self, edge: &Edge, input: VoiceInput) -> Delivery {
        let mut state = self.state.lock();
        match &mut state.voice {
            Some(voice) => voice.push(input, &edge.messages, self.owner()),
            None => Delivery::Ignored,
        }
    }

    /// Passes the seq of the next frame of the answer to `write`, which returns the one that follows.
    pub(crate) fn number_voice_frame(&self, write: impl FnOnce(u16) -> u16) {
        let seq = self.state.lock().voice.as_ref().map(|voice| voice.seq);
        let Some(seq) = seq else { return };
        let next = write(seq);
        if let Some(voice) = &mut self.state.lock().voice {
            voice.seq = next;
        }
    }
}

/// The side of the conversation.
impl ConnectionHandle {
    /// Returns the terms of AUTH, and what is notified when there is an input or a part of a reply.
    pub(crate) fn voice(&self) -> Option<(AudioTerms, Arc<Notify>)> {
        let state = self.state.lock();
        let voice = state.voice.as_ref()?;
        Some((voice.terms, Arc::clone(&voice.changed)))
    }

    /// Takes the inputs that wait, unless the device reads nothing; `None` when the connection has closed.
    pub(crate) fn take_voice_inputs(&self) -> Option<VecDeque<VoiceInput>> {
        let mut state = self.state.lock();
        let voice = state.voice.as_mut().filter(|voice| !voice.is_closed)?;
        if voice.frames.len() >= MAX_FRAMES {
            return Some(VecDeque::new());
        }
        voice.waiting = WaitingBytes::default();
        voice.input_bytes = 0;
        Some(mem::take(&mut voice.inputs))
    }

    /// Takes the next part of the reply to a spoken message, unless the device reads nothing.
    pub(crate) fn next_spoken_chunk(&self) -> Option<ReplyChunk> {
        let mut state = self.state.lock();
        let voice = state.voice.as_ref();
        if voice.is_some_and(|voice| voice.frames.len() >= MAX_FRAMES) {
            return None;
        }
        let chunk = state.turns.as_mut()?.next_chunk(true);
        state.free_idle_turns();
        chunk
    }

    /// Whether a picture waits for the words of this task.
    pub(crate) fn has_picture(&self, task: TaskId) -> bool {
        let state = self.state.lock();
        let turns = state.turns.as_ref();
        turns.is_some_and(|turns| turns.has_picture(task))
    }

    /// Drops a picture for which there are no words, and what it was charged.
    pub(crate) fn withdraw_picture(&self, edge: &Edge, task: TaskId) {
        self.change(|state| {
            if let Some(turns) = &mut state.turns {
                turns.withdraw_picture(task);
                // Less than before.
                let _ = turns.charge(&edge.messages, self.owner());
                state.free_idle_turns();
            }
        });
    }

    /// Makes a picture belong to the words of another task.
    pub(crate) fn move_picture(&self, from: TaskId, to: TaskId) {
        self.change(|state| {
            if let Some(turns) = &mut state.turns {
                turns.move_picture(from, to);
            }
        });
    }

    /// Begins a turn with what the user said, or with more of it if it `extends` the message. Returns its
    /// serial, and whether the caller has to start a [`crate::turn_forwarder`].
    pub(crate) fn begin_spoken_turn(
        &self,
        edge: &Edge,
        task: TaskId,
        message: NewMessage,
        extends: bool,
    ) -> (u64, bool) {
        let preference = self.preference(edge);
        self.change(|state| {
            state.had_turns = true;
            let max_in_flight = if state.phase >= Phase::Finishing {
                0
            } else {
                edge.turn_limits().max_in_flight
            };
            let turns = state.turns.get_or_insert_default();
            turns.set_preference(preference);
            let begun = turns.begin_spoken(task, message, extends, Instant::now(), max_in_flight);
            turns.charge_recording(&edge.messages, self.owner());
            state.count_ended(edge);
            state.notify_voice();
            begun
        })
    }

    /// Counts milliseconds of an utterance that was recognised. Audio of answers counts when the socket
    /// takes it.
    pub(crate) fn count_audio(&self, ms: u32) {
        if let Some(voice) = &mut self.state.lock().voice {
            voice.count_audio(ms);
        }
    }

    /// Takes what was counted since the last message. A conversation that ends leaves it to the next one
    /// of the connection.
    pub(crate) fn take_audio_ms(&self) -> u32 {
        let mut state = self.state.lock();
        let voice = state.voice.as_mut();
        voice.map_or(0, |voice| mem::take(&mut voice.unreported_ms))
    }

    /// Records whether a reply is awaited or being spoken: a draining connection waits for its end.
    pub(crate) fn set_answering(&self, is_answering: bool) {
        self.change(|state| {
            if let Some(voice) = &mut state.voice {
                voice.is_answering = is_answering;
            }
            if !is_answering && let Some(turns) = &mut state.turns {
                turns.drop_spoken_picture();
                state.free_idle_turns();
            }
        });
    }

    /// Ends the turns of a conversation that is over.
    pub(crate) fn cancel_spoken(&self, edge: &Edge) {
        self.update_turns(edge, |turns| turns.cancel_spoken());
    }

    /// Queues a CANCEL of the answer on a task, and its END, in place of its audio that waits.
    pub(crate) fn cancel_voice(&self, task: TaskId) {
        let decided = Instant::now();
        self.change(|state| {
            if let Some(voice) = state.voice.as_mut().filter(|voice| !voice.is_closed) {
                let is_audio = |frame: &VoiceFrame| matches!(frame, VoiceFrame::Audio { .. });
                voice.frames.retain(|frame| !is_audio(frame));
                voice.frames.extend([
                    VoiceFrame::Cancel { task, decided },
                    VoiceFrame::End { task },
                ]);
            }
        });
    }

    /// Queues frames for the device, after those that wait.
    pub(crate) fn send_voice(&self, frames: impl IntoIterator<Item = VoiceFrame>) {
        self.change(|state| {
            if let Some(voice) = state.voice.as_mut().filter(|voice| !voice.is_closed) {
                voice.frames.extend(frames);
            }
        });
    }

    /// Queues a VOICE message.
    pub(crate) fn send_voice_message(&self, task: TaskId, message: &ServerVoice<'_>) {
        let mut payload = Vec::new();
        message.write(&mut payload);
        self.send_voice([VoiceFrame::Message { task, payload }]);
    }

    /// Milliseconds of audio that wait for the socket.
    pub(crate) fn voice_backlog_ms(&self) -> u32 {
        let state = self.state.lock();
        let frames = state.voice.iter().flat_map(|voice| &voice.frames);
        frames.map(VoiceFrame::audio_ms).sum()
    }

    /// The conversation ends, unless an input has arrived. Returns whether it ends.
    pub(crate) fn end_voice(&self) -> bool {
        let mut state = self.state.lock();
        let Some(voice) = &mut state.voice else {
            return true;
        };
        let ends = voice.inputs.is_empty() || voice.is_closed;
        voice.is_running &= !ends;
        ends
    }
}
