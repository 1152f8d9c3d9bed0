//! Turns on the connection: text of the device in, frames of the reply out.

use std::sync::Arc;

use switchboard_protocol::frame::{self, Kind, TaskId};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Connection;
use crate::{
    handle::{ReplyChunk, VoiceInput},
    metrics::Note,
    turn_forwarder,
};

/// An upper bound of a frame's bytes besides its payload.
pub(super) const FRAME_OVERHEAD_BYTES: usize = 32;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    pub(super) fn append_text(&self, task: TaskId, text: &str) {
        self.edge.metrics.notes.inc(Note::Text);
        self.handle.append_text(self.edge, task, text);
    }

    pub(super) fn append_picture(&self, task: TaskId, chunk: &[u8]) {
        self.edge.metrics.notes.inc(Note::Picture);
        self.handle.append_picture(self.edge, task, chunk);
    }

    /// Ends a text or audio message, and starts a forwarder for its turn if none runs.
    pub(super) fn end_message(&mut self, task: TaskId, kind: Kind) {
        if kind == Kind::Audio && self.push_voice(VoiceInput::End { task }) {
            return;
        }
        let config = &self.edge.config;
        let (burst, every_ms) = (config.device_turn_burst, config.device_turn_every_ms);
        let now_ms = self.edge.now_ms();
        let turns = &mut self.unsolicited().turns;
        let is_allowed = turns.take(burst, every_ms, now_ms).is_ok();
        if self.handle.end_message(self.edge, task, kind, is_allowed) {
            let (edge, handle) = (Arc::clone(self.edge), Arc::clone(self.handle));
            self.edge.tasks.spawn(turn_forwarder::run(edge, handle));
        }
    }

    pub(super) fn cancel_turn(&self, task: TaskId) {
        self.edge.metrics.notes.inc(Note::Cancel);
        self.push_voice(VoiceInput::Cancel { task });
        let has_audio = self.handle.voice().is_some();
        self.handle
            .update_turns(self.edge, |turns| turns.cancel(task, has_audio));
    }

    /// Writes a chunk of a reply as TEXT frames, and END after the last one.
    pub(super) fn send_reply(&mut self, chunk: &ReplyChunk) {
        let limit = self.edge.config.device_max_frame_bytes as usize;
        let max_payload = limit.saturating_sub(FRAME_OVERHEAD_BYTES);
        let (task, text) = (chunk.task, chunk.text.as_bytes());
        let out = self.io.out();
        let next = frame::encode_stream(out, Kind::Text, task, chunk.seq, text, max_payload).ok();
        // Without a seq for the text, the reply ends here.
        if chunk.is_last || next.is_none() {
            let seq = next.unwrap_or(chunk.seq);
            self.io.put(Kind::End, task, seq, &[]);
        }
        if !chunk.is_last {
            self.handle
                .edit_turns(self.edge, |turns| turns.advance_seq(chunk.serial, next));
        }
    }
}
