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
    /// What was played of the answer before it; its turn has carried that to the conversation.
    carried: Option<Played>,
    /// A worker has taken its turn.
    pub(super) is_taken: bool,
    /// The device has received a part of it.
    pub(super) has_begun: bool,
    /// Speech has stopped it. It continues unless the speech has words.
    pub(super) is_interrupted: bool,
    /// What the device had played then.
    played: Option<Played>,
    /// Nothing is sent, because the user speaks.
    is_held: bool,
    /// Until then, if it has begun.
    held_until: Option<Instant>,
    /// The device knows that a part of it cannot be spoken.
    pub(super) has_failed: bool,
    /// Text that was not sent, of an answer that is not spoken.
    pub(super) text: String,
    /// The text is complete.
    pub(super) is_whole: bool,
}

impl Answer {
    pub(super) const fn new(
        turn: Option<u64>,
        task: TaskId,
        message: String,
        carried: Option<Played>,
    ) -> Self {
        Self {
            turn,
            task,
            message,
            carried,
            is_taken: false,
            has_begun: false,
            is_interrupted: false,
            played: None,
            is_held: false,
            held_until: None,
            has_failed: false,
            text: String::new(),
            is_whole: false,
        }
    }

    /// The user begins to speak. An answer that has begun pauses for as long as its lead can hide it; one
    /// that has not waits until the user has finished.
    pub(super) fn hold(&mut self, speaker: Option<&mut Speaker>) {
        self.is_held = true;
        self.held_until = self.has_begun.then(|| Instant::now() + MIN_INTERRUPTION);
        if let Some(speaker) = speaker {
            speaker.hold();
        }
    }

    /// Speech stops it for longer than that.
    pub(super) fn interrupt(&mut self, speaker: &mut Speaker) {
        self.played = self.played(Some(speaker));
        self.is_interrupted = true;
        self.hold(Some(speaker));
        self.held_until = None;
    }

    /// The user has finished: it continues. Returns whether it was interrupted.
    pub(super) fn release(&mut self, speaker: Option<&mut Speaker>) -> bool {
        self.is_held = false;
        self.held_until = None;
        let was_interrupted = std::mem::take(&mut self.is_interrupted);
        if let Some(speaker) = speaker {
            speaker.release();
            if was_interrupted {
                speaker.repeat_sentence();
            }
        }
        was_interrupted
    }

    /// Continues when the speech was none so far.
    pub(super) fn release_in_time(&mut self, speaker: Option<&mut Speaker>) {
        if self.held_until.is_some_and(|until| until <= Instant::now()) {
            self.release(speaker);
        }
    }

    /// When to look at it again while it is held.
    pub(super) const fn held_until(&self) -> Option<Instant> {
        self.held_until
    }

    pub(super) const fn is_held(&self) -> bool {
        self.is_held
    }

    /// What the device has played of it, if that is not all. Of an answer in text it is unknown.
    pub(super) fn played(&self, speaker: Option<&Speaker>) -> Option<Played> {
        if self.is_interrupted {
            return self.played.clone();
        }
        if !self.is_taken {
            // It has not reached the conversation, and what it carried may not have either.
            return self.carried.clone();
        }
        let words = speaker?.played_words()?;
        Some(Played {
            message: self.message.clone(),
            words,
        })
    }
}
