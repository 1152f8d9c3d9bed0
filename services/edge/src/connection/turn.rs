//! A device's turns on its connection: its words as they come in, the answers as they go out.
//! Never: an answer whose seq has a gap, or that is left without its end.

use std::sync::Arc;

use switchboard_protocol::frame::{self, Kind, TaskId};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Live;
use crate::{
    errands,
    link::{Step, TurnLimits},
};

/// What a frame holds beside its payload, generously.
const FRAME_BYTES: usize = 32;

impl<S: AsyncRead + AsyncWrite + Unpin> Live<'_, S> {
    pub(super) fn take_words(&self, task: TaskId, text: &str) {
        self.link.gather(task, text, self.edge.turn_limits());
    }

    /// A text or a sound is complete.
    pub(super) fn take_turn(&mut self, task: TaskId) {
        let config = &self.edge.config;
        let (burst, every_ms) = (config.device_turn_burst, config.device_turn_every_ms);
        let now_ms = self.edge.now_ms();
        let turns = &mut self.unasked().turns;
        let is_allowed = turns.take(burst, every_ms, now_ms).is_ok();
        let limits = self.edge.turn_limits();
        let limits = TurnLimits {
            // Too often is too much.
            under_way: if is_allowed { limits.under_way } else { 0 },
            ..limits
        };
        if self.link.complete(task, limits) {
            let (edge, link) = (Arc::clone(self.edge), Arc::clone(self.link));
            self.edge.connections.spawn(errands::run(edge, link));
        }
        self.edge.count_turns(&self.link.take_ended());
    }

    pub(super) fn cancel_turn(&self, task: TaskId) {
        self.link.cancel_turn(task);
        self.edge.count_turns(&self.link.take_ended());
    }

    pub(super) fn send_answer(&mut self, step: &Step) {
        let limit = self.edge.config.device_max_frame_bytes as usize;
        let payload = limit.saturating_sub(FRAME_BYTES);
        let (task, text) = (step.task, step.text.as_bytes());
        let out = self.wire.out();
        let written = frame::encode_stream(out, Kind::Text, task, step.seq, text, payload).ok();
        if step.is_last || written.is_none() {
            let seq = written.unwrap_or(step.seq);
            self.wire.put(Kind::End, task, seq, &[]);
        }
        if !step.is_last {
            self.link.written(step, written);
        }
    }
}
