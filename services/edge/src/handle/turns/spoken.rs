//! Turns of spoken messages: their replies are read by the spoken conversation.

use std::time::Instant;

use switchboard_bus::NewMessage;
use switchboard_phrases::Phrase;
use switchboard_protocol::{frame::TaskId, message::Picture};
use switchboard_runtime::budget::{Budget, Owner};

use super::{TurnEnd, TurnState, Turns, message::Beginning, pictures::Refusal};

impl Turns {
    /// Begins a turn with what the user said, or with more of it if it `extends` the message. Returns
    /// its serial, and whether the caller has to start a forwarder.
    pub(in crate::handle) fn begin_spoken(
        &mut self,
        task: TaskId,
        mut message: NewMessage,
        extends: bool,
        now: Instant,
        max_in_flight: usize,
    ) -> (u64, bool) {
        self.cancel_turn(task);
        let in_flight = self.turns.iter().filter(|turn| turn.is_open()).count();
        let beginning = Beginning::of(&message.text);
        let refusal = match self.take_spoken_picture(task, extends) {
            _ if in_flight >= max_in_flight => Some((Phrase::TooManyTurns, TurnEnd::TooMany)),
            Ok(picture) => {
                message.picture = picture;
                self.push(task, TurnState::Queued(message), beginning, now);
                None
            }
            Err(refusal) => Some(refusal),
        };
        if let Some((notice, end)) = refusal {
            self.refuse(task, Some(notice), beginning, end);
        }
        if let Some(turn) = self.turns.last_mut() {
            turn.is_spoken = true;
        }
        let starts = refusal.is_none() && self.start_forwarder();
        (self.last_serial, starts)
    }

    /// Charges the recording of the message that was just queued, or drops it where there is no room.
    pub(in crate::handle) fn charge_recording(&mut self, budget: &Budget, owner: Owner) {
        if self.charge(budget, owner).is_err()
            && let Some(turn) = self.turns.last_mut()
            && let TurnState::Queued(message) = &mut turn.state
        {
            message.recording = None;
        }
    }

    /// Ends the spoken turns without a reader: their conversation is over.
    pub(in crate::handle) fn cancel_spoken(&mut self) {
        for turn in self
            .turns
            .iter_mut()
            .filter(|turn| turn.is_spoken && turn.is_open())
        {
            if !matches!(turn.finish(), TurnState::Queued(_)) {
                self.cancels.push_back(turn.task);
            }
            self.ended.push(TurnEnd::Cancelled);
        }
        self.turns.retain(|turn| !turn.is_spoken);
        self.drop_spoken_picture();
        self.changed.notify_one();
    }

    /// The picture of a spoken message. Words that extend a message keep its picture.
    fn take_spoken_picture(
        &mut self,
        task: TaskId,
        extends: bool,
    ) -> Result<Option<Picture>, Refusal> {
        if !extends {
            self.spoken_picture = None;
        }
        if let Some(index) = self.messages.iter().position(|part| part.task == task)
            && let Some(picture) = self.messages.swap_remove(index).picture.finish()?
        {
            self.spoken_picture = Some(picture);
        }
        Ok(self.spoken_picture.clone())
    }

    /// The spoken message is answered, or is not any more.
    pub(in crate::handle) fn drop_spoken_picture(&mut self) {
        self.spoken_picture = None;
    }
}
