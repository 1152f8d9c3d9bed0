//! A connection's turns, for those who hear, answer and write: each change wakes whom it concerns.
//! Never: room held for a connection on which nothing is said.

use std::time::{Duration, Instant};

use switchboard_protocol::frame::TaskId;

use super::{Command, Errand, Eviction, Link, Stage, State, Step, TurnEnd, TurnLimits};

impl State {
    /// What waits to be written of answers.
    pub(super) fn next_step(&mut self) -> Option<Command> {
        let turns = self.turns.as_mut()?;
        let step = turns.next_step().map(Command::Answer);
        self.rest();
        step
    }

    pub(super) fn has_steps(&self) -> bool {
        self.turns.as_ref().is_some_and(|turns| turns.has_steps())
    }

    /// Whether nothing is being said, either way.
    pub(super) fn is_silent(&self) -> bool {
        self.turns.as_ref().is_none_or(|turns| turns.is_silent())
    }

    /// Gives the room back when nothing is under way.
    fn rest(&mut self) {
        self.turns.take_if(|turns| turns.is_idle());
    }
}

impl Link {
    /// Words of a device, not whole yet. By the connection's own task.
    pub(crate) fn gather(&self, task: TaskId, text: &str, limits: TurnLimits) {
        let mut state = self.state.lock();
        let turns = state.turns.get_or_insert_default();
        turns.gather(task, text, limits);
    }

    /// A message of the device is whole; whether errands have to be run that nobody runs.
    pub(crate) fn complete(&self, task: TaskId, limits: TurnLimits) -> bool {
        self.change_turns(limits, |state| {
            state.has_spoken = true;
            // What is not over soon would be cut off.
            let is_finishing = state.stage >= Stage::Finishing;
            let under_way = if is_finishing { 0 } else { limits.under_way };
            let limits = TurnLimits {
                under_way,
                ..limits
            };
            let turns = state.turns.get_or_insert_default();
            turns.complete(task, Instant::now(), limits)
        })
    }

    /// The device wants no answer on this task.
    pub(crate) fn cancel_turn(&self, task: TaskId) -> bool {
        self.change(|state| {
            let turns = state.turns.as_mut();
            turns.is_some_and(|turns| turns.cancel(task))
        })
    }

    /// A piece of an answer; with no text it only says that there will be one.
    pub(crate) fn say(&self, task: TaskId, text: &str, limits: TurnLimits) {
        self.change_turns(limits, |state| {
            if let Some(turns) = &mut state.turns {
                turns.say(task, text, Instant::now());
            }
        });
    }

    /// Another goes on with an answer, and says its beginning next.
    pub(crate) fn begin_again(&self, task: TaskId) {
        // What is said next wakes who writes it.
        if let Some(turns) = &mut self.state.lock().turns {
            turns.begin_again(task);
        }
    }

    /// An answer is over.
    pub(crate) fn finish_answer(&self, task: TaskId, is_whole: bool) {
        self.change(|state| {
            if let Some(turns) = &mut state.turns {
                turns.finish(task, is_whole);
            }
        });
    }

    /// How far an answer was written; none when there is no number for more.
    pub(crate) fn written(&self, step: &Step, next: Option<u16>) {
        let mut state = self.state.lock();
        if let Some(turns) = &mut state.turns {
            turns.written(step.serial, next);
        }
        state.rest();
    }

    /// What the bus is to be told next, and how turns ended meanwhile.
    pub(crate) fn next_errand(&self, patience: Duration) -> (Errand, Vec<TurnEnd>) {
        self.change(|state| {
            let Some(turns) = &mut state.turns else {
                return (Errand::Done, Vec::new());
            };
            let errand = turns.next_errand(Instant::now(), patience);
            let ended = turns.take_ended();
            state.rest();
            (errand, ended)
        })
    }

    /// The turn could not be handed over.
    pub(crate) fn refused(&self, serial: u64) {
        self.change(|state| {
            if let Some(turns) = &mut state.turns {
                turns.refused(serial);
            }
        });
    }

    /// Ends that nobody has counted.
    pub(crate) fn take_ended(&self) -> Vec<TurnEnd> {
        let mut state = self.state.lock();
        let ended = state.turns.as_mut().map(|turns| turns.take_ended());
        state.rest();
        ended.unwrap_or_default()
    }

    /// The connection is gone; whether the bus may remember turns of it that nobody's errands end.
    pub(crate) fn fall_silent(&self) -> bool {
        let mut state = self.state.lock();
        let is_attended = state.turns.as_mut().is_some_and(|turns| turns.close());
        state.has_spoken && !is_attended
    }

    fn change_turns<T>(&self, limits: TurnLimits, change: impl FnOnce(&mut State) -> T) -> T {
        self.change(|state| {
            let result = change(state);
            let turns = state.turns.as_deref();
            if turns.is_some_and(|turns| turns.is_too_much(limits)) {
                state.eviction = state.eviction.or(Some(Eviction::SlowReader));
            }
            result
        })
    }
}
