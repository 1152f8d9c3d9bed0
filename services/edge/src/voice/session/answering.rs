//! The answer of a spoken conversation: its turn, what is sent of it, and how it ends.

use std::sync::Arc;

use switchboard_bus::NewMessage;
use switchboard_protocol::message::ListenMode;
use tokio::time::Instant;

use super::{
    super::{
        answer::Answer,
        metrics::{BargeIn, Stage},
    },
    MAX_BACKLOG_MS, ManualMessage, Session,
};
use crate::{
    handle::{ReplyChunk, VoiceFrame},
    turn_forwarder,
};

impl Session<'_> {
    /// Begins a turn with what the user has said, in place of one whose answer has not begun.
    pub(super) fn begin_turn(&mut self) {
        let replaced = self.answer.take();
        let extends = replaced.is_some();
        if let Some(replaced) = replaced {
            self.played = replaced
                .played(self.speaker.as_ref())
                .or(self.played.take());
            if replaced.task != self.task {
                let task = replaced.task;
                self.handle
                    .update_turns(self.edge, |turns| turns.cancel_turn(task));
                self.handle.send_voice([VoiceFrame::End { task }]);
            }
        }
        if let Some(speaker) = &mut self.speaker {
            speaker.clear();
        }
        let message = NewMessage {
            text: self.said.clone(),
            is_spoken: true,
            played: self.played.take(),
            picture: None,
            audio_ms: self.handle.take_audio_ms(),
        };
        let (turn, starts) = self
            .handle
            .begin_spoken_turn(self.edge, self.task, message, extends);
        self.answer = Some(Answer::new(Some(turn), self.task, self.said.clone()));
        if self.is_hearing() || self.listener.is_recognizing() {
            self.hold_answer();
        }
        if starts {
            let (edge, handle) = (Arc::clone(self.edge), Arc::clone(self.handle));
            self.edge.tasks.spawn(turn_forwarder::run(edge, handle));
        }
    }

    /// Takes a part of the reply. Parts of an earlier turn are dropped.
    pub(super) fn take_reply(&mut self, chunk: ReplyChunk) {
        let Some(answer) = &mut self.answer else {
            return;
        };
        if answer.turn != Some(chunk.serial) {
            return;
        }
        if !chunk.text.is_empty() {
            self.stages.end(&self.edge.metrics.voice, Stage::Reply);
        }
        if let Some(style) = &chunk.style {
            self.listener.set_language(style.language.clone());
        }
        let Some(speaker) = &mut self.speaker else {
            answer.has_begun |= !chunk.text.is_empty();
            let (task, text) = (answer.task, chunk.text);
            self.handle.send_voice([VoiceFrame::Text { task, text }]);
            if chunk.is_last {
                self.end_answer();
            }
            return;
        };
        if let Some(style) = chunk.style {
            speaker.set_style(*style);
        }
        speaker.push(&chunk.text, chunk.is_last);
    }

    /// Sends what is due to the device. Returns when to look again.
    pub(super) fn send_due(&mut self) -> Option<Instant> {
        let (answer, speaker) = (self.answer.as_mut()?, self.speaker.as_mut()?);
        answer.release_in_time(speaker);
        let (frames, next) = speaker.due(answer.task, self.terms.captions);
        let metrics = &self.edge.metrics.voice;
        if let Some(lag) = speaker.take_lag() {
            metrics.pace_lag_seconds.observe(lag.as_secs_f64());
        }
        let audio_ms = frames.iter().map(VoiceFrame::audio_ms).sum::<u32>();
        metrics.spoken_seconds.inc_by(f64::from(audio_ms) / 1_000.0);
        if audio_ms > 0 && !std::mem::replace(&mut answer.has_begun, true) {
            if let Some(ended) = self.speech_ended.take() {
                let seconds = ended.elapsed().as_secs_f64();
                metrics.response_seconds.observe(seconds);
                self.stages.end(metrics, Stage::Synthesis);
            }
            if self.listener.mode() == ListenMode::Auto {
                self.listener.cancel();
            }
        }
        self.handle.send_voice(frames);
        if self.handle.voice_backlog_ms() > MAX_BACKLOG_MS {
            self.edge.metrics.voice.late.inc();
            self.stop_answer();
            return None;
        }
        if !speaker.is_done() || answer.is_interrupted {
            return next;
        }
        let unplayed = speaker.unplayed();
        if unplayed.is_zero() {
            self.end_answer();
            return None;
        }
        Some(Instant::now() + unplayed)
    }

    /// Whether the user speaks, or a `manual` device may still send speech.
    pub(super) fn is_hearing(&self) -> bool {
        self.listener.is_hearing() || self.manual == ManualMessage::Open
    }

    pub(super) fn hold_answer(&mut self) {
        if let (Some(answer), Some(speaker)) = (&mut self.answer, &mut self.speaker) {
            answer.hold(speaker);
        }
    }

    /// Speech interrupts the answer: the device drops what it has. The answer continues if the speech has
    /// no words.
    pub(super) fn interrupt(&mut self) {
        let (Some(answer), Some(speaker)) = (&mut self.answer, &mut self.speaker) else {
            return;
        };
        if !answer.has_begun || answer.is_interrupted {
            return;
        }
        speaker.hold();
        answer.on_hold_until = None;
        answer.played = answer.played(Some(speaker));
        answer.is_interrupted = true;
        let task = answer.task;
        self.handle.cancel_voice(task);
    }

    /// Nothing more is being said: begins a `manual` turn, continues an answer that was interrupted, or
    /// ends a message without words.
    pub(super) fn settle(&mut self) {
        if self.is_hearing() || self.listener.is_recognizing() {
            return;
        }
        let is_ended = self.manual == ManualMessage::Ended;
        let has_words = !self.said.is_empty() && !self.is_answered();
        if is_ended && (has_words || self.handle.has_picture(self.task)) {
            return self.begin_turn();
        }
        match (&mut self.answer, &mut self.speaker) {
            (Some(answer), Some(speaker)) => {
                answer.on_hold_until = None;
                speaker.release();
                if std::mem::take(&mut answer.is_interrupted) {
                    speaker.repeat_sentence();
                    self.edge.metrics.voice.barge_ins.inc(BargeIn::Resumed);
                }
            }
            (None, _) if is_ended => {
                // The device waits for an answer.
                self.manual = ManualMessage::None;
                self.handle
                    .send_voice([VoiceFrame::End { task: self.task }]);
            }
            _ => {}
        }
    }

    /// Whether the answer in progress is that of all that the user has said.
    fn is_answered(&self) -> bool {
        let answer = self.answer.as_ref();
        answer.is_some_and(|answer| answer.turn.is_some() && answer.message == self.said)
    }

    /// Ends the answer early, if there is one.
    pub(super) fn stop_answer(&mut self) {
        let Some(answer) = self.answer.take() else {
            return;
        };
        self.played = answer.played(self.speaker.as_ref());
        let task = answer.task;
        if answer.turn.is_some() {
            self.handle
                .update_turns(self.edge, |turns| turns.cancel_turn(task));
        }
        if !answer.is_interrupted {
            self.handle.cancel_voice(task);
        }
        self.forget_answer();
    }

    /// The answer was sent and played.
    pub(super) fn end_answer(&mut self) {
        let Some(Answer { task, .. }) = self.answer.take() else {
            return;
        };
        self.handle.send_voice([VoiceFrame::End { task }]);
        self.played = None;
        self.forget_answer();
        if self.listener.mode() == ListenMode::Auto {
            // What arrived in the meantime may be the device's own sound.
            self.listener.cancel();
        }
    }

    fn forget_answer(&mut self) {
        if let Some(speaker) = &mut self.speaker {
            speaker.clear();
        }
        self.said.clear();
        self.speech_ended = None;
        if self.manual == ManualMessage::Ended {
            self.manual = ManualMessage::None;
        }
        self.listener.restart_silence();
    }
}
