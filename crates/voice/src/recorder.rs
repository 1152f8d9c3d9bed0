//! Recordings of utterances: Opus packets, and files of them that browsers play (RFC 7845).

use std::io;

use ogg::{PacketWriteEndInfo, PacketWriter};
use switchboard_protocol::message::{AudioFormat, Codec};

use crate::{EncodedFrame, Encoder, RATE};

/// One packet of Opus for each frame.
const FORMAT: AudioFormat = AudioFormat {
    codec: Codec::Opus,
    rate: RATE,
    frame_ms: 60,
};
/// Samples of a packet at the rate of positions in Ogg Opus, which is 48 kHz.
const PACKET_SAMPLES: u64 = 60 * 48;
/// Samples before the audio, as of every encoder of Opus.
const PRE_SKIP: u16 = 312;
/// Packets of one page: about a second, so that players can seek.
const PAGE_PACKETS: usize = 16;
/// Bytes of a file without packets, and of the header of its last page.
const HEADER_BYTES: usize = 130;
/// A file has one stream.
const SERIAL: u32 = 1;

/// Encodes utterances one after the other, while they are spoken.
pub struct Recorder {
    encoder: Encoder,
    frames: Vec<EncodedFrame>,
}

/// A recording as a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OggOpus {
    /// The file.
    pub bytes: Vec<u8>,
    /// The duration of its audio in milliseconds.
    pub ms: u32,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            encoder: Encoder::new(FORMAT, RATE),
            frames: Vec::new(),
        }
    }
}

impl Recorder {
    /// Begins an utterance; one that has not ended is forgotten.
    pub fn begin(&mut self) {
        self.encoder.clear();
    }

    /// Appends the packets of the next samples: each with its length before it.
    pub fn push(&mut self, pcm: &[i16], packets: &mut Vec<u8>) {
        self.encoder.encode(pcm, &mut self.frames);
        self.append(packets);
    }

    /// Appends the rest of the utterance.
    pub fn end(&mut self, packets: &mut Vec<u8>) {
        self.encoder.finish(&mut self.frames);
        self.append(packets);
    }

    fn append(&mut self, packets: &mut Vec<u8>) {
        for frame in self.frames.drain(..) {
            packets.extend_from_slice(&frame.bytes);
        }
    }
}

impl OggOpus {
    /// The file of these packets, as many as fit into `max_bytes`; `None` if that is none.
    #[must_use]
    pub fn from_packets(packets: &[u8], max_bytes: usize) -> Option<Self> {
        let (mut rest, mut taken, mut bytes) = (packets, Vec::new(), HEADER_BYTES);
        while let Some((length, behind)) = rest.split_at_checked(2) {
            let length = length
                .iter()
                .fold(0, |all, byte| all << 8 | usize::from(*byte));
            let Some((packet, behind)) = behind.split_at_checked(length) else {
                break;
            };
            // With its segments, and its part of a page.
            bytes += packet.len() + packet.len() / 255 + 3;
            if bytes > max_bytes {
                break;
            }
            // A packet that could not be encoded is left out.
            taken.extend((!packet.is_empty()).then_some(packet));
            rest = behind;
        }
        let ms = u32::try_from(taken.len()).ok()? * u32::from(FORMAT.frame_ms);
        let bytes = write(&taken).ok()?;
        (ms > 0).then_some(Self { bytes, ms })
    }
}

fn write(packets: &[&[u8]]) -> io::Result<Vec<u8>> {
    let mut head = b"OpusHead\x01\x01".to_vec();
    head.extend(PRE_SKIP.to_le_bytes());
    head.extend(RATE.to_le_bytes());
    // No gain, and one channel.
    head.extend([0; 3]);
    let vendor = b"switchboard";
    let mut tags = b"OpusTags".to_vec();
    tags.extend((vendor.len() as u32).to_le_bytes());
    tags.extend(vendor);
    // No comments.
    tags.extend([0; 4]);
    let mut file = Vec::new();
    let mut writer = PacketWriter::new(&mut file);
    for header in [head, tags] {
        writer.write_packet(header.into(), SERIAL, PacketWriteEndInfo::EndPage, 0)?;
    }
    let mut position = 0;
    for (index, packet) in packets.iter().enumerate() {
        position += PACKET_SAMPLES;
        let end = if index + 1 == packets.len() {
            PacketWriteEndInfo::EndStream
        } else if (index + 1).is_multiple_of(PAGE_PACKETS) {
            PacketWriteEndInfo::EndPage
        } else {
            PacketWriteEndInfo::NormalPacket
        };
        writer.write_packet((*packet).into(), SERIAL, end, position)?;
    }
    drop(writer);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use ogg::PacketReader;

    use super::*;
    use crate::Decoder;

    /// Speech is not needed: noise takes more bytes.
    fn packets(ms: usize) -> Vec<u8> {
        let mut recorder = Recorder::default();
        let mut packets = Vec::new();
        let pcm: Vec<i16> = (0..ms * 16).map(|at| (at * at % 9_973) as i16).collect();
        recorder.begin();
        recorder.push(&pcm, &mut packets);
        recorder.end(&mut packets);
        packets
    }

    #[test]
    fn file_has_the_packets_of_all_utterances() {
        let packets = [packets(1_000), packets(500)].concat();
        let file = OggOpus::from_packets(&packets, 128 * 1024).unwrap();
        assert_eq!(file.ms, 17 * 60 + 9 * 60);
        let mut reader = PacketReader::new(io::Cursor::new(&file.bytes));
        assert!(
            reader
                .read_packet_expected()
                .unwrap()
                .data
                .starts_with(b"OpusHead")
        );
        assert!(
            reader
                .read_packet_expected()
                .unwrap()
                .data
                .starts_with(b"OpusTags")
        );
        let mut records = Vec::new();
        let mut last = 0;
        while let Some(packet) = reader.read_packet().unwrap() {
            records.extend(u16::try_from(packet.data.len()).unwrap().to_be_bytes());
            records.extend(&packet.data);
            last = packet.absgp_page();
        }
        assert_eq!(records, packets);
        assert_eq!(last, u64::from(file.ms) * 48);
        let mut pcm = Vec::new();
        let decoded = Decoder::new(FORMAT).decode(&records, &mut pcm).unwrap();
        assert_eq!((decoded.good, decoded.bad), (26, 0));
    }

    #[test]
    fn file_is_cut_at_its_maximum() {
        let packets = packets(60_000);
        for max_bytes in [0, 100, 1_000, 30_000, 128 * 1024, 1 << 20] {
            let file = OggOpus::from_packets(&packets, max_bytes);
            let (bytes, ms) = file.map_or((0, 0), |file| (file.bytes.len(), file.ms));
            assert!(bytes <= max_bytes, "{bytes} of {max_bytes}");
            assert_eq!(
                ms == 60_000,
                max_bytes > packets.len() * 2,
                "{ms} ms in {max_bytes}"
            );
            assert_eq!(ms > 0, max_bytes >= 1_000, "{ms} ms in {max_bytes}");
        }
        assert_eq!(OggOpus::from_packets(&[0, 0, 7], 9_999), None);
    }
}
