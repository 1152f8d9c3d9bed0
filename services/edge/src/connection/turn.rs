//! A device's text or speech turn, as long as nothing here can hold a conversation: every finished
//! turn is answered in plain words.
//! Never: a turn left without an answer.

use switchboard_protocol::frame::{self, Kind, Spelling, TaskId};
use tracing::debug;

const ANSWER: &str = "This Switchboard has no conversation service. Services of this device can \
                      still be called.";

/// Appends the answer to a finished turn: one text frame and the end of the message.
pub(super) fn answer(out: &mut Vec<u8>, task: TaskId, max_frame_bytes: u32) {
    let limit = max_frame_bytes as usize;
    match frame::encode_stream(out, Kind::Text, task, 0, ANSWER.as_bytes(), limit) {
        Ok(next) => frame::encode(out, Kind::End, task, next, Spelling::Plain, &[]),
        Err(error) => debug!(%error, "a turn stays without an answer"),
    }
}
