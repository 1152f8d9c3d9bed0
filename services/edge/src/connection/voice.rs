//! Audio on the connection: inputs for the spoken conversation of the device, and its frames.

use std::sync::Arc;

use switchboard_protocol::{
    frame::{self, Kind, TaskId},
    message::DeviceVoice,
};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Connection, turns::FRAME_OVERHEAD_BYTES};
use crate::{
    handle::{Delivery, VoiceFrame, VoiceInput},
    metrics::Note,
    voice::{self, Packet},
};

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    pub(super) fn append_audio(&self, task: TaskId, chunk: &[u8]) {
        self.edge.metrics.notes.inc(Note::Audio);
        let bytes = chunk.to_vec();
        self.push_voice(VoiceInput::Audio { task, bytes });
    }

    pub(super) fn handle_voice(&self, task: TaskId, message: DeviceVoice<'_>) {
        self.push_voice(match message {
            DeviceVoice::Listen(listen) => VoiceInput::Listen { task, listen },
            DeviceVoice::Wake(_) => VoiceInput::Wake { task },
            DeviceVoice::Played { ms } => VoiceInput::Played { ms },
        });
    }

    /// Hands an input to the conversation, and starts it if none runs. Returns whether the device has
    /// audio.
    pub(super) fn push_voice(&self, input: VoiceInput) -> bool {
        let delivery = self.handle.push_voice(self.edge, input);
        match delivery {
            Delivery::Start => {
                let (edge, handle) = (Arc::clone(self.edge), Arc::clone(self.handle));
                self.edge.tasks.spawn(voice::run(edge, handle));
            }
            Delivery::Dropped => self.edge.metrics.voice.packets.inc(Packet::Dropped),
            Delivery::Queued | Delivery::Ignored => {}
        }
        delivery != Delivery::Ignored
    }

    /// Writes a frame of the conversation. All frames of one answer have consecutive seqs.
    pub(super) fn send_voice_frame(&mut self, frame: &VoiceFrame) {
        let limit = self.edge.config.device_max_frame_bytes as usize;
        let max_payload = limit.saturating_sub(FRAME_OVERHEAD_BYTES);
        match frame {
            VoiceFrame::Audio { task, bytes, .. } => {
                let out = self.io.out();
                self.handle.number_voice_frame(|seq| {
                    frame::encode_stream(out, Kind::Audio, *task, seq, bytes, max_payload)
                        .unwrap_or(seq)
                });
            }
            VoiceFrame::Text { task, text } => {
                let (out, text) = (self.io.out(), text.as_bytes());
                self.handle.number_voice_frame(|seq| {
                    frame::encode_stream(out, Kind::Text, *task, seq, text, max_payload)
                        .unwrap_or(seq)
                });
            }
            VoiceFrame::End { task } => {
                let io = &mut *self.io;
                self.handle.number_voice_frame(|seq| {
                    io.put(Kind::End, *task, seq, &[]);
                    0
                });
            }
            VoiceFrame::Unanswered { task } => self.io.put(Kind::End, *task, 0, &[]),
            VoiceFrame::Message { task, payload } => self.io.put(Kind::Voice, *task, 0, payload),
            VoiceFrame::Cancel { task, decided } => {
                self.io.put(Kind::Cancel, *task, 0, &[]);
                let took = decided.elapsed().as_secs_f64();
                self.edge.metrics.voice.stop_seconds.observe(took);
            }
        }
    }
}
