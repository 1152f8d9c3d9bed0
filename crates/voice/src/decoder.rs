//! Decodes the audio of a task, which is one byte stream: pieces of it have no meaning.

use opus_rs::OpusDecoder;
use switchboard_protocol::message::{AudioFormat, Codec};

use crate::{
    RATE,
    resampler::{Resampler, to_i16},
};

/// Maximum bytes of an Opus packet: three frames of the largest size.
const MAX_PACKET_BYTES: usize = 4_000;
/// Maximum bytes of one frame of an Opus packet. (RFC 6716, 3.2.1)
const MAX_FRAME_BYTES: usize = 1_275;
/// Maximum duration of an Opus packet, in samples. (RFC 6716, 3.2.5)
const MAX_PACKET_SAMPLES: usize = RATE as usize * 120 / 1_000;
/// So many invalid packets in a row end the stream.
const MAX_BAD_PACKETS: u32 = 50;
const LENGTH_BYTES: usize = 2;

/// Why a stream cannot be decoded any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadAudio {
    /// The length in front of a packet exceeds every packet: the bytes are no records.
    #[error(
        "an Opus packet has at most {MAX_PACKET_BYTES} bytes, and this one would have {bytes}; each packet is preceded by its length, 16 bits big-endian"
    )]
    PacketTooLong {
        /// The length.
        bytes: usize,
    },
    /// The packets are not Opus.
    #[error("{MAX_BAD_PACKETS} Opus packets in a row are invalid")]
    TooManyBadPackets,
    /// The stream ends within a packet or a sample.
    #[error("the audio ends within an Opus packet or a sample: {missing} bytes are missing")]
    Truncated {
        /// The bytes that are missing.
        missing: usize,
    },
}

/// What was decoded of a piece.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Valid packets, or pieces of PCM.
    pub good: u32,
    /// Packets that were invalid. Silence of the usual length stands for them.
    pub bad: u32,
}

/// Decodes a byte stream to mono audio of [`RATE`].
///
/// PCM is resampled. Opus packets are decoded as they state: any duration up to 120 ms, any bandwidth, and
/// stereo is mixed down. A lost packet (length 0), or one of one byte, is concealed.
///
/// Memory: the state of an Opus decoder has about 100 KiB, and is created with the first packet.
pub struct Decoder {
    format: AudioFormat,
    resampler: Resampler,
    opus: Option<OpusDecoder>,
    /// The beginning of a record or of a sample.
    partial: Vec<u8>,
    bad_in_a_row: u32,
    samples: Vec<f32>,
}

impl Decoder {
    /// Begins a stream in this format.
    #[must_use]
    pub fn new(format: AudioFormat) -> Self {
        Self {
            format,
            resampler: Resampler::new(format.rate, RATE),
            opus: None,
            partial: Vec::new(),
            bad_in_a_row: 0,
            samples: Vec::new(),
        }
    }

    /// Decodes the next piece of the stream, and appends the audio.
    ///
    /// # Errors
    /// When the bytes are not in the format. The stream cannot continue.
    pub fn decode(&mut self, bytes: &[u8], pcm: &mut Vec<i16>) -> Result<Decoded, BadAudio> {
        let whole;
        let bytes = if self.partial.is_empty() {
            bytes
        } else {
            self.partial.extend_from_slice(bytes);
            whole = std::mem::take(&mut self.partial);
            &whole
        };
        match self.format.codec {
            Codec::PcmS16le => Ok(self.decode_pcm(bytes, pcm)),
            Codec::Opus => self.decode_records(bytes, pcm),
        }
    }

    /// Ends the stream, and appends what is left of its audio. The decoder can begin another one.
    ///
    /// # Errors
    /// When the stream ends within a record or a sample; the audio before it was decoded.
    pub fn finish(&mut self, pcm: &mut Vec<i16>) -> Result<(), BadAudio> {
        self.resampler.finish(pcm);
        self.opus = None;
        self.bad_in_a_row = 0;
        let partial = std::mem::take(&mut self.partial);
        let expected = match (self.format.codec, partial.as_slice()) {
            (_, []) => return Ok(()),
            (Codec::Opus, [high, low, ..]) => {
                LENGTH_BYTES + usize::from(u16::from_be_bytes([*high, *low]))
            }
            _ => LENGTH_BYTES,
        };
        let missing = expected.saturating_sub(partial.len());
        Err(BadAudio::Truncated { missing })
    }

    fn decode_pcm(&mut self, bytes: &[u8], pcm: &mut Vec<i16>) -> Decoded {
        let (samples, rest) = bytes.as_chunks();
        self.partial = rest.to_vec();
        let samples: Vec<i16> = samples.iter().copied().map(i16::from_le_bytes).collect();
        self.resampler.convert(&samples, pcm);
        Decoded { good: 1, bad: 0 }
    }

    fn decode_records(&mut self, bytes: &[u8], pcm: &mut Vec<i16>) -> Result<Decoded, BadAudio> {
        let mut decoded = Decoded::default();
        let mut rest = bytes;
        while let [high, low, after @ ..] = rest {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            if length > MAX_PACKET_BYTES {
                return Err(BadAudio::PacketTooLong { bytes: length });
            }
            let Some((packet, next)) = after.split_at_checked(length) else {
                break;
            };
            rest = next;
            if self.decode_packet(packet, pcm) {
                decoded.good += 1;
                self.bad_in_a_row = 0;
                continue;
            }
            decoded.bad += 1;
            self.bad_in_a_row += 1;
            if self.bad_in_a_row >= MAX_BAD_PACKETS {
                return Err(BadAudio::TooManyBadPackets);
            }
            let silence = pcm.len() + self.usual_samples();
            pcm.resize(silence, 0);
        }
        self.partial = rest.to_vec();
        Ok(decoded)
    }

    /// Decodes a packet. Returns whether it is valid.
    fn decode_packet(&mut self, packet: &[u8], pcm: &mut Vec<i16>) -> bool {
        let samples = match packet {
            // Lost: as long as the others.
            [] => Some(self.usual_samples()),
            packet => packet_samples(packet),
        };
        let Some(samples) = samples else { return false };
        if self.opus.is_none() {
            self.opus = OpusDecoder::new(RATE.cast_signed(), 1).ok();
        }
        let Some(opus) = &mut self.opus else {
            return false;
        };
        self.samples.clear();
        self.samples.resize(samples, 0.0);
        match opus.decode(packet, samples, &mut self.samples) {
            Ok(written) => {
                let decoded = self.samples.get(..written).unwrap_or_default();
                pcm.extend(decoded.iter().map(|sample| to_i16(*sample)));
                true
            }
            Err(_) => {
                // Its state may be inconsistent.
                self.opus = None;
                false
            }
        }
    }

    /// Samples of a packet of the negotiated duration.
    const fn usual_samples(&self) -> usize {
        RATE as usize / 1_000 * self.format.frame_ms as usize
    }
}

/// Samples of a packet at [`RATE`], from its table of contents; `None` if the packet is invalid. (RFC
/// 6716, 3.1 and 3.2)
fn packet_samples(packet: &[u8]) -> Option<usize> {
    let (toc, rest) = packet.split_first()?;
    let config = toc >> 3;
    // In units of 2.5 ms.
    let units = match config {
        0..=11 => [4, 8, 16, 24].get(usize::from(config & 3)),
        12..=15 => [4, 8].get(usize::from(config & 1)),
        _ => [1, 2, 4, 8].get(usize::from(config & 3)),
    };
    let frames = match toc & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => usize::from(rest.first()? & 0x3f),
    };
    let samples = units? * frames * (RATE as usize / 400);
    let is_valid = (1..=MAX_PACKET_SAMPLES).contains(&samples)
        && rest.len() <= frames * (MAX_FRAME_BYTES + LENGTH_BYTES);
    is_valid.then_some(samples)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::Encoder;

    fn format(codec: Codec, rate: u32) -> AudioFormat {
        AudioFormat {
            codec,
            rate,
            frame_ms: 60,
        }
    }

    /// A second of sound, encoded.
    fn encoded(format: AudioFormat) -> Vec<u8> {
        let mut encoder = Encoder::new(format, RATE);
        let pcm: Vec<i16> = (0..RATE)
            .map(|n| ((n * n / 97) % 8_000) as i16 - 4_000)
            .collect();
        let mut frames = Vec::new();
        encoder.encode(&pcm, &mut frames);
        encoder.finish(&mut frames);
        frames.into_iter().flat_map(|frame| frame.bytes).collect()
    }

    fn decode_pieces(format: AudioFormat, pieces: &[&[u8]]) -> Vec<i16> {
        let mut decoder = Decoder::new(format);
        let mut pcm = Vec::new();
        for piece in pieces {
            decoder.decode(piece, &mut pcm).unwrap();
        }
        decoder.finish(&mut pcm).unwrap();
        pcm
    }

    #[test]
    fn stream_decodes_equally_for_every_split() {
        for format in [
            format(Codec::Opus, 16_000),
            format(Codec::PcmS16le, 16_000),
            format(Codec::PcmS16le, 24_000),
        ] {
            let bytes = encoded(format);
            let whole = decode_pieces(format, &[&bytes]);
            assert!(whole.len() >= RATE as usize, "{} samples", whole.len());
            for at in [1, 2, 3, 4, bytes.len() / 2, bytes.len() - 1] {
                let (first, second) = bytes.split_at(at);
                assert_eq!(decode_pieces(format, &[first, second]), whole, "{at}");
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(decode_pieces(format, &single), whole);
        }
    }

    #[test]
    fn bad_packets_are_replaced_and_bounded() {
        let opus = format(Codec::Opus, 16_000);
        let check = |bytes: &[u8], expect: Result<(u32, u32), BadAudio>, samples: usize| {
            let mut pcm = Vec::new();
            let decoded = Decoder::new(opus).decode(bytes, &mut pcm);
            let decoded = decoded.map(|decoded| (decoded.good, decoded.bad));
            assert_eq!((decoded, pcm.len()), (expect, samples), "{bytes:?}");
        };
        let frame = RATE as usize * 60 / 1_000;
        // A lost packet; one of one byte with 20 ms; code 3 without a frame; a frame that is too long.
        check(&[0, 0], Ok((1, 0)), frame);
        check(&[0, 1, 0b0000_1000], Ok((1, 0)), RATE as usize / 50);
        check(&[0, 2, 3, 0], Ok((0, 1)), frame);
        let mut long = vec![0x05, 0x78];
        long.resize(2 + 1_400, 0);
        check(&long, Ok((0, 1)), frame);
        check(&[0x10, 0], Err(BadAudio::PacketTooLong { bytes: 4_096 }), 0);
        check(
            &[0, 2, 3, 0].repeat(50),
            Err(BadAudio::TooManyBadPackets),
            49 * frame,
        );
        let mut decoder = Decoder::new(opus);
        let mut pcm = Vec::new();
        decoder.decode(&[0, 9, 1, 2], &mut pcm).unwrap();
        assert_eq!(
            decoder.finish(&mut pcm),
            Err(BadAudio::Truncated { missing: 7 })
        );
        let mut decoder = Decoder::new(format(Codec::PcmS16le, 16_000));
        decoder.decode(&[1, 0, 7], &mut pcm).unwrap();
        assert_eq!(
            decoder.finish(&mut pcm),
            Err(BadAudio::Truncated { missing: 1 })
        );
    }

    proptest! {
        #[test]
        fn random_packets_never_panic(packets in vec(vec(any::<u8>(), 0..200), 0..20)) {
            let mut decoder = Decoder::new(format(Codec::Opus, 16_000));
            let mut pcm = Vec::new();
            for packet in packets {
                let length = u16::try_from(packet.len()).unwrap().to_be_bytes();
                decoder.decode(&length, &mut pcm).unwrap();
                decoder.decode(&packet, &mut pcm).unwrap();
            }
            prop_assert!(pcm.len() <= 20 * MAX_PACKET_SAMPLES);
        }
    }
}
