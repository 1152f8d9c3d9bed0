//! The answer in progress of a spoken conversation.

use std::time::Duration;

use switchboard_bus::Played;
use switchboard_protocol::frame::TaskId;
use tokio::time::Instant;

use super::speaker::Speaker;

/// Speech that interrupts an answer. With less, it was a noise, and the answer continues.
pub(super) const MIN_INTERRUPTION: Duration = Duration::from_millis(300);

/// An answer, from the beginning of its turn to the end of its audio.
pub(super) struct Answer {
    /// Its turn; `None` for a notice of the edge.
    pub(super) turn: Option<u64>,
    /// The task of its frames.
    pub(super) task: TaskId,
    /// The message that it answers.
    pub(super) message: String,
    /// The device has received a part of it.
    pub(super) has_begun: bool,
    /// Speech has stopped it. It continues unless the speech has words.
    pub(super) is_interrupted: bool,
    /// What the device had played then.
    pub(super) played: Option<Played>,
    /// Speech has begun that may interrupt it: until then, nothing is sent.
    pub(super) on_hold_until: Option<Instant>,
    /// The device knows that a part of it cannot be spoken.
    pub(super) has_failed: bool,
}

impl Answer {
    pub(super) const fn new(turn: Option<u64>, task: TaskId, message: String) -> Self {
        Self {
            turn,
            task,
            message,
            has_begun: false,
            is_interrupted: false,
            played: None,
            on_hold_until: None,
            has_failed: false,
        }
    }

    /// The user begins to speak. An answer that has begun pauses for as long as its lead can hide it; one
    /// that has not waits until the user has finished.
    pub(super) fn hold(&mut self, speaker: &mut Speaker) {
        speaker.hold();
        self.on_hold_until = self.has_begun.then(|| Instant::now() + MIN_INTERRUPTION);
    }

    /// Continues when the speech was none so far.
    pub(super) fn release_in_time(&mut self, speaker: &mut Speaker) {
        let is_over = |until: &mut Instant| *until <= Instant::now();
        if self.on_hold_until.take_if(is_over).is_some() {
            speaker.release();
        }
    }

    /// What the device has played of it, if that is not all. Of an answer in text it is unknown.
    pub(super) fn played(&self, speaker: Option<&Speaker>) -> Option<Played> {
        if self.is_interrupted {
            return self.played.clone();
        }
        let words = speaker?.played_words()?;
        Some(Played {
            message: self.message.clone(),
            words,
        })
    }
}
