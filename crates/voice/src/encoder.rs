//! Encodes audio as the byte stream of a task, frame by frame.

use opus_rs::{Application, OpusEncoder};
use switchboard_protocol::message::{AudioFormat, Codec};

use crate::resampler::Resampler;

/// Bits per second of speech.
const BITRATE_BPS: i32 = 24_000;
/// Effort of the encoder, 0 to 10. More than this is inaudible at this bitrate, and takes three times as
/// long.
const COMPLEXITY: i32 = 0;
/// Bytes of the largest packet.
const MAX_PACKET_BYTES: usize = 1_275;
/// One packet of Opus has at most this much audio; a longer frame has several.
const MAX_PACKET_MS: u16 = 60;

/// The audio of one frame as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedFrame {
    /// Samples, or packets with their lengths.
    pub bytes: Vec<u8>,
    /// Milliseconds of audio.
    pub ms: u32,
}

/// Encodes mono audio in frames of equal duration.
///
/// Memory: the state of an Opus encoder has about 250 KiB, and is created with the first frame.
pub struct Encoder {
    format: AudioFormat,
    input_rate: u32,
    resampler: Resampler,
    opus: Option<OpusEncoder>,
    /// Samples at the rate of the format that do not fill a frame.
    waiting: Vec<i16>,
}

impl Encoder {
    /// Begins a stream in this format, of audio with `input_rate` samples per second.
    #[must_use]
    pub fn new(format: AudioFormat, input_rate: u32) -> Self {
        Self {
            format,
            input_rate,
            resampler: Resampler::new(input_rate, format.rate),
            opus: None,
            waiting: Vec::new(),
        }
    }

    /// Changes the rate of the audio that follows.
    pub fn set_input_rate(&mut self, rate: u32) {
        if self.input_rate != rate {
            self.resampler.finish(&mut self.waiting);
            self.resampler = Resampler::new(rate, self.format.rate);
            self.input_rate = rate;
        }
    }

    /// Encodes the next samples, and appends the frames that are complete.
    pub fn encode(&mut self, pcm: &[i16], frames: &mut Vec<EncodedFrame>) {
        self.resampler.convert(pcm, &mut self.waiting);
        self.encode_waiting(frames);
    }

    /// Ends the stream: its last frame is filled with silence. The encoder can begin another one.
    pub fn finish(&mut self, frames: &mut Vec<EncodedFrame>) {
        self.resampler.finish(&mut self.waiting);
        let samples = self.format.frame_samples();
        let partial = self.waiting.len() % samples;
        if partial > 0 {
            let length = self.waiting.len() + samples - partial;
            self.waiting.resize(length, 0);
        }
        self.encode_waiting(frames);
    }

    /// Forgets the samples that do not fill a frame.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.resampler = Resampler::new(self.input_rate, self.format.rate);
    }

    fn encode_waiting(&mut self, frames: &mut Vec<EncodedFrame>) {
        let samples = self.format.frame_samples();
        let waiting = std::mem::take(&mut self.waiting);
        let (whole, rest) = waiting.split_at(waiting.len() / samples * samples);
        for frame in whole.chunks_exact(samples) {
            let bytes = match self.format.codec {
                Codec::PcmS16le => frame.iter().copied().flat_map(i16::to_le_bytes).collect(),
                Codec::Opus => self.encode_opus(frame),
            };
            frames.push(EncodedFrame {
                bytes,
                ms: self.format.frame_ms.into(),
            });
        }
        self.waiting = rest.to_vec();
    }

    fn encode_opus(&mut self, frame: &[i16]) -> Vec<u8> {
        let packet_ms = packet_ms(self.format.frame_ms);
        let samples = self.format.rate as usize / 1_000 * usize::from(packet_ms);
        if self.opus.is_none() {
            self.opus = new_opus(self.format.rate);
        }
        let mut bytes = Vec::new();
        for part in frame.chunks(samples) {
            let mut packet = [0; MAX_PACKET_BYTES];
            let input: Vec<f32> = part
                .iter()
                .map(|sample| f32::from(*sample) / 32_768.0)
                .collect();
            let encoded = self.opus.as_mut().and_then(|opus| {
                let encoded = opus.encode(&input, part.len(), &mut packet);
                encoded.ok()
            });
            // A packet that could not be encoded is a lost one.
            let packet = packet.get(..encoded.unwrap_or(0)).unwrap_or_default();
            let length = u16::try_from(packet.len()).unwrap_or(0);
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(packet);
        }
        bytes
    }
}

/// The longest packets that fill a frame of this duration: 20, 40 or 60 ms.
const fn packet_ms(frame_ms: u16) -> u16 {
    match frame_ms {
        80 => 40,
        100 => 20,
        ms if ms > MAX_PACKET_MS => MAX_PACKET_MS,
        ms => ms,
    }
}

fn new_opus(rate: u32) -> Option<OpusEncoder> {
    let mut opus = OpusEncoder::new(rate.cast_signed(), 1, Application::Audio).ok()?;
    opus.bitrate_bps = BITRATE_BPS;
    opus.complexity = COMPLEXITY;
    Some(opus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoder, RATE};

    #[test]
    fn frames_have_the_negotiated_duration() {
        for codec in [Codec::PcmS16le, Codec::Opus] {
            for (rate, frame_ms) in [
                (8_000, 20),
                (16_000, 60),
                (24_000, 100),
                (24_000, 80),
                (48_000, 40),
            ] {
                let format = AudioFormat {
                    codec,
                    rate,
                    frame_ms,
                };
                let mut encoder = Encoder::new(format, 22_050);
                let mut frames = Vec::new();
                // 1,000 ms, in pieces that fit no frame.
                for piece in vec![1_000; 22_050].chunks(773) {
                    encoder.encode(piece, &mut frames);
                }
                encoder.finish(&mut frames);
                let expect = 1_000_usize.div_ceil(frame_ms.into());
                assert_eq!(frames.len(), expect, "{format:?}");
                assert!(frames.iter().all(|frame| frame.ms == u32::from(frame_ms)));
                let mut decoder = Decoder::new(format);
                let mut pcm = Vec::new();
                for frame in &frames {
                    let decoded = decoder.decode(&frame.bytes, &mut pcm).unwrap();
                    assert_eq!(decoded.bad, 0, "{format:?}");
                }
                decoder.finish(&mut pcm).unwrap();
                let samples = expect * usize::from(frame_ms) * RATE as usize / 1_000;
                assert!(
                    pcm.len().abs_diff(samples) <= 1,
                    "{format:?}: {}",
                    pcm.len()
                );
            }
        }
    }
}
