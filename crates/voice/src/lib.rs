//! Speech in and out of bytes, without I/O and without a clock: a caller feeds bytes and instants, and
//! takes values.
//!
//! ```text
//!  bytes ─► Decoder ─► Segmenter (voice activity) ─► utterance ─► … recognition, reply, synthesis …
//!  bytes ◄─ Pacer ◄─ Encoder ◄─ synthesised sentence ◄─ SentenceCutter ◄─ text
//! ```
//!
//! Audio between the parts is mono, 16-bit, and has [`RATE`] samples per second where nothing else is
//! stated.

pub mod activity;
mod decoder;
mod encoder;
mod markup;
mod pacer;
mod recorder;
mod resampler;
mod segmenter;
mod sentences;
mod utterance;

pub use decoder::{BadAudio, Decoded, Decoder};
pub use encoder::{EncodedFrame, Encoder};
pub use pacer::{Due, Pacer};
pub use recorder::{OggOpus, Recorder};
pub use resampler::Resampler;
pub use segmenter::Segmenter;
pub use sentences::{Sentence, SentenceCutter};
pub use utterance::{Segment, SegmenterSettings, UtteranceEnd};

/// Samples per second of the audio that is analysed and recognised.
pub const RATE: u32 = 16_000;

/// Converts samples of [`RATE`] to milliseconds.
#[must_use]
pub const fn milliseconds(samples: u64) -> u64 {
    samples * 1_000 / RATE as u64
}
