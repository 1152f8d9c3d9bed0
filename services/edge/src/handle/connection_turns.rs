//! The turns of a connection, behind its lock: what its own task, the bus and the sweeper change.

use std::{mem, time::Instant};

use switchboard_protocol::frame::{Kind, TaskId};
use switchboard_runtime::budget::Owner;

use super::{Command, ConnectionHandle, Eviction, Phase, State, turns::Turns};
use crate::edge::Edge;

impl State {
    pub(super) fn next_chunk(&mut self) -> Option<Command> {
        let chunk = self.turns.as_mut()?.next_chunk(false).map(Command::Reply);
        self.free_idle_turns();
        chunk
    }

    pub(super) fn has_chunk(&self) -> bool {
        self.turns.as_ref().is_some_and(|turns| turns.has_chunk())
    }

    /// No message is incomplete and every reply is written.
    pub(super) fn has_no_turns(&self) -> bool {
        self.turns.as_ref().is_none_or(|turns| turns.has_no_turns())
    }

    pub(super) fn count_ended(&mut self, edge: &Edge) {
        if let Some(turns) = &mut self.turns {
            for end in mem::take(&mut turns.ended) {
                edge.metrics.turns.inc(end);
            }
        }
        self.free_idle_turns();
    }

    pub(super) fn free_idle_turns(&mut self) {
        self.turns.take_if(|turns| turns.is_idle());
    }
}

impl ConnectionHandle {
    /// Appends text of an incomplete message. Called by the connection's own task.
    pub(crate) fn append_text(&self, edge: &Edge, task: TaskId, text: &str) {
        let mut state = self.state.lock();
        let turns = state.turns.get_or_insert_default();
        turns.append_text(task, text, edge.turn_limits().max_message_bytes);
        if turns.charge(&edge.messages, self.owner()).is_err() {
            turns.drop_message(task);
        }
    }

    /// Appends a piece of the picture of an incomplete message. Called by the connection's own task.
    pub(crate) fn append_picture(&self, edge: &Edge, task: TaskId, chunk: &[u8]) {
        let mut state = self.state.lock();
        let turns = state.turns.get_or_insert_default();
        turns.append_picture(task, chunk, &edge.messages, self.owner());
        state.free_idle_turns();
    }

    /// Ends a message of the device, which begins a turn unless `is_allowed` is false. Returns true
    /// when the caller has to start a [`crate::turn_forwarder`].
    pub(crate) fn end_message(
        &self,
        edge: &Edge,
        task: TaskId,
        kind: Kind,
        is_allowed: bool,
    ) -> bool {
        let preference = self.preference(edge);
        self.change(|state| {
            state.had_turns = true;
            // A connection that is about to close could not finish the reply.
            let is_refused = !is_allowed || state.phase >= Phase::Finishing;
            let max_in_flight = if is_refused {
                0
            } else {
                edge.turn_limits().max_in_flight
            };
            let turns = state.turns.get_or_insert_default();
            turns.set_preference(preference);
            let start_forwarder = turns.end_message(task, kind, Instant::now(), max_in_flight);
            state.evict_slow_reader(edge, self.owner());
            state.count_ended(edge);
            start_forwarder
        })
    }

    /// Changes the turns, if there are any, and wakes the connection's task. Evicts a device that
    /// leaves too much of its replies unread.
    pub(crate) fn update_turns<T>(
        &self,
        edge: &Edge,
        update: impl FnOnce(&mut Turns) -> T,
    ) -> Option<T> {
        self.change(|state| {
            let result = state.turns.as_deref_mut().map(update);
            state.evict_slow_reader(edge, self.owner());
            state.count_ended(edge);
            state.notify_voice();
            result
        })
    }

    /// Changes the turns, if there are any, without waking the connection's task: the caller is
    /// that task, or the change leaves it nothing to write.
    pub(crate) fn edit_turns<T>(
        &self,
        edge: &Edge,
        edit: impl FnOnce(&mut Turns) -> T,
    ) -> Option<T> {
        let mut state = self.state.lock();
        let result = state.turns.as_deref_mut().map(edit);
        state.evict_slow_reader(edge, self.owner());
        state.count_ended(edge);
        state.notify_voice();
        result
    }

    /// Ends all turns with the connection. Returns true when the caller has to drop the turns that
    /// the bus still holds; otherwise a forwarder does it, or there were none.
    pub(crate) fn close_turns(&self, edge: &Edge) -> bool {
        let mut state = self.state.lock();
        let has_forwarder = state.turns.as_mut().is_some_and(|turns| turns.close());
        state.close_voice();
        state.count_ended(edge);
        state.had_turns && !has_forwarder
    }
}

impl State {
    fn evict_slow_reader(&mut self, edge: &Edge, owner: Owner) {
        let Some(turns) = &mut self.turns else {
            return;
        };
        let charged = turns.charge(&edge.messages, owner);
        if charged.is_err() || turns.exceeds(edge.turn_limits()) {
            self.evict(Eviction::SlowReader);
        }
    }
}
