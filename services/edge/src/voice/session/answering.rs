//! The answer of a spoken conversation: its turn, what is sent of it, and how it ends.

use std::sync::Arc;

use switchboard_bus::NewMessage;
use switchboard_protocol::{frame::TaskId, message::ListenMode};
use tokio::time::Instant;

use super::{
    super::{
        answer::Answer,
        metrics::{BargeIn, Stage},
    },
    MAX_BACKLOG_MS, Session, append,
    messages::ManualMessage,
};
use crate::{
    handle::{ReplyChunk, VoiceFrame},
    turn_forwarder,
};

impl Session<'_> {
    /// Begins a turn with what the user has said. It extends a message whose answer has not begun, and
    /// replaces its turn.
    pub(super) fn begin_turn(&mut self, task: TaskId, words: &str) {
        let replaced = self.answer.take();
        let extends = replaced.is_some();
        let mut text = String::new();
        if let Some(replaced) = replaced {
            self.played = replaced
                .played(self.speaker.as_ref())
                .or(self.played.take());
            text = replaced.message;
            if replaced.task != task {
                let task = replaced.task;
                self.handle
                    .update_turns(self.edge, |turns| turns.cancel_turn(task));
                self.send_end(task);
            }
        }
        append(&mut text, words);
        if let Some(speaker) = &mut self.speaker {
            speaker.clear();
            // Models answer in the language in which they are asked.
            speaker.set_language(self.handle.preference(self.edge).language_of(&text));
        }
        let played = self.played.take();
        let message = NewMessage {
            text: text.clone(),
            is_spoken: true,
            played: played.clone(),
            audio_ms: self.handle.take_audio_ms(),
            recording: self.listener.take_recording(),
            ..NewMessage::default()
        };
        let (turn, starts) = self
            .handle
            .begin_spoken_turn(self.edge, task, message, extends);
        self.answer = Some(Answer::new(Some(turn), task, text, played));
        self.closed.take_if(|closed| *closed == task);
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
        let is_first = !std::mem::replace(&mut answer.is_taken, true);
        if !chunk.text.is_empty() {
            self.stages.end(&self.edge.metrics.voice, Stage::Reply);
        }
        if let Some(style) = &chunk.style {
            self.listener.set_language(style.language.clone());
        }
        // The default style is not sent.
        if is_first || chunk.style.is_some() {
            let style = chunk.style.as_ref();
            self.listener
                .set_recording(style.is_some_and(|style| style.is_recorded));
        }
        let Some(speaker) = &mut self.speaker else {
            answer.text.push_str(&chunk.text);
            answer.is_whole = chunk.is_last;
            return;
        };
        if let Some(style) = chunk.style {
            speaker.set_style(*style);
        }
        speaker.push(&chunk.text, chunk.is_last);
    }

    /// Sends what is due to the device. Returns when to look again.
    pub(super) fn send_due(&mut self) -> Option<Instant> {
        let answer = self.answer.as_mut()?;
        answer.release_in_time(self.speaker.as_mut());
        let Some(speaker) = &mut self.speaker else {
            self.send_text();
            return None;
        };
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
        let is_waiting = answer.is_held() && !answer.has_begun;
        if !speaker.is_done() || answer.is_interrupted || is_waiting {
            return next;
        }
        let unplayed = speaker.unplayed();
        if unplayed.is_zero() {
            self.end_answer();
            return None;
        }
        Some(Instant::now() + unplayed)
    }

    /// Sends the text of an answer that is not spoken.
    fn send_text(&mut self) {
        let Some(answer) = self.answer.as_mut().filter(|answer| !answer.is_held()) else {
            return;
        };
        if !answer.text.is_empty() {
            answer.has_begun = true;
            let (task, text) = (answer.task, std::mem::take(&mut answer.text));
            self.handle.send_voice([VoiceFrame::Text { task, text }]);
        }
        if answer.is_whole {
            self.end_answer();
        }
    }

    /// Whether the user speaks, or a `manual` device may still send speech.
    pub(super) fn is_hearing(&self) -> bool {
        self.listener.is_hearing() || self.manual.as_ref().is_some_and(|message| message.is_open)
    }

    pub(super) fn hold_answer(&mut self) {
        if let Some(answer) = &mut self.answer {
            answer.hold(self.speaker.as_mut());
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
        answer.interrupt(speaker);
        let task = answer.task;
        self.handle.cancel_voice(task);
    }

    /// Nothing more is being said: begins the turn of a `manual` message or ends one without words, and
    /// continues an answer that was held.
    pub(super) fn finish_speech(&mut self) {
        if self.is_hearing() || self.listener.is_recognizing() {
            return;
        }
        if let Some(task) = self.closed.take() {
            self.handle.withdraw_picture(self.edge, task);
        }
        if let Some(ManualMessage { task, words, .. }) = self.manual.take() {
            if !words.is_empty() || self.handle.has_picture(task) {
                return self.begin_turn(task, &words);
            }
            // An answer on the same task has its own END.
            let answer = self.answer.as_ref();
            if answer.is_none_or(|answer| answer.task != task) {
                self.send_end(task);
            }
        }
        if let Some(answer) = &mut self.answer
            && answer.release(self.speaker.as_mut())
        {
            self.edge.metrics.voice.barge_ins.inc(BargeIn::Resumed);
        }
    }

    /// Ends the answer early, if there is one.
    pub(super) fn stop_answer(&mut self) {
        let Some(answer) = self.answer.take() else {
            return;
        };
        self.played = answer.played(self.speaker.as_ref());
        let task = answer.task;
        self.stopped.take_if(|stopped| *stopped == task);
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
        let Some(Answer {
            task, has_begun, ..
        }) = self.answer.take()
        else {
            return;
        };
        self.stopped.take_if(|stopped| *stopped == task);
        self.handle.send_voice([VoiceFrame::End { task }]);
        self.played = None;
        self.forget_answer();
        if has_begun && self.listener.mode() == ListenMode::Auto {
            // What arrived in the meantime may be the device's own sound.
            self.listener.cancel();
        }
    }

    fn forget_answer(&mut self) {
        if let Some(speaker) = &mut self.speaker {
            speaker.clear();
        }
        self.speech_ended = None;
        self.listener.restart_silence();
    }
}
