//! Opus packets in both directions with libopus, through `opusenc` and `opusdec` of the package
//! `opus-tools`.

#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::{fs, path::Path, process::Command};

use ogg::{PacketReader, PacketWriteEndInfo, PacketWriter};
use switchboard_protocol::message::{AudioFormat, Codec};
use switchboard_voice::{Decoder, Encoder, RATE};

const FORMAT: AudioFormat = AudioFormat {
    codec: Codec::Opus,
    rate: RATE,
    frame_ms: 60,
};
/// The decoder delays by 6.5 ms, and an encoder by some more.
const MAX_DELAY: usize = RATE as usize / 50;

/// A person says "go forward ten meters".
fn recording() -> Vec<i16> {
    let folder = std::env::var_os("SWITCHBOARD_SPEECH_SAMPLES");
    let folder = folder.unwrap_or_else(|| "/usr/share/pocketsphinx/test/data".into());
    let bytes = fs::read(Path::new(&folder).join("goforward.raw"));
    let bytes = bytes.unwrap_or_else(|error| panic!("{error}; install pocketsphinx-testdata"));
    bytes
        .as_chunks()
        .0
        .iter()
        .copied()
        .map(i16::from_le_bytes)
        .collect()
}

fn run(program: &str, arguments: &[&str], files: [&Path; 2]) {
    let output = Command::new(program).args(arguments).args(files).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; install opus-tools"));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// How similar two recordings are at the best delay of the second one: 1 if equal.
fn similarity(one: &[i16], other: &[i16]) -> f64 {
    let at = |delay: usize| {
        let pairs = one.iter().zip(&other[delay.min(other.len())..]);
        let (mut product, mut first, mut second) = (0.0, 0.0, 0.0);
        for (one, other) in pairs {
            let (one, other) = (f64::from(*one), f64::from(*other));
            product += one * other;
            first += one * one;
            second += other * other;
        }
        product / (first * second).sqrt()
    };
    (0..MAX_DELAY).map(at).fold(0.0, f64::max)
}

#[test]
fn packets_of_libopus_are_decoded() {
    let (folder, speech) = (tempfile::tempdir().unwrap(), recording());
    let (wav, opus) = (folder.path().join("a.wav"), folder.path().join("a.opus"));
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: RATE,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut writer = hound::WavWriter::create(&wav, spec).unwrap();
    speech
        .iter()
        .for_each(|sample| writer.write_sample(*sample).unwrap());
    writer.finalize().unwrap();
    for frame_ms in ["20", "60"] {
        run(
            "opusenc",
            &["--quiet", "--framesize", frame_ms, "--bitrate", "24"],
            [&wav, &opus],
        );
        let mut packets = PacketReader::new(fs::File::open(&opus).unwrap());
        let (mut decoder, mut pcm, mut number) = (Decoder::new(FORMAT), Vec::new(), 0);
        while let Some(packet) = packets.read_packet().unwrap() {
            number += 1;
            // The first two are headers.
            if number > 2 {
                let length = u16::try_from(packet.data.len()).unwrap().to_be_bytes();
                decoder.decode(&length, &mut pcm).unwrap();
                let decoded = decoder.decode(&packet.data, &mut pcm).unwrap();
                assert_eq!(decoded.bad, 0);
            }
        }
        let similarity = similarity(&speech, &pcm);
        assert!(similarity > 0.9, "{frame_ms} ms: {similarity}");
    }
}

#[test]
fn packets_are_decoded_by_libopus() {
    let (folder, speech) = (tempfile::tempdir().unwrap(), recording());
    let (opus, wav) = (folder.path().join("b.opus"), folder.path().join("b.wav"));
    let mut frames = Vec::new();
    let mut encoder = Encoder::new(FORMAT, RATE);
    encoder.encode(&speech, &mut frames);
    encoder.finish(&mut frames);
    let mut writer = PacketWriter::new(fs::File::create(&opus).unwrap());
    let mut head = b"OpusHead\x01\x01\0\0".to_vec();
    head.extend(RATE.to_le_bytes());
    head.extend([0; 3]);
    let tags = b"OpusTags\x04\0\0\0test\0\0\0\0".to_vec();
    for header in [head, tags] {
        writer
            .write_packet(header.into(), 1, PacketWriteEndInfo::EndPage, 0)
            .unwrap();
    }
    let count = frames.len();
    for (number, frame) in frames.into_iter().enumerate() {
        let end = if number + 1 == count {
            PacketWriteEndInfo::EndStream
        } else {
            PacketWriteEndInfo::EndPage
        };
        // Positions are at 48 kHz.
        let position = (number as u64 + 1) * u64::from(FORMAT.frame_ms) * 48;
        writer
            .write_packet(frame.bytes[2..].into(), 1, end, position)
            .unwrap();
    }
    drop(writer);
    run("opusdec", &["--quiet", "--rate", "16000"], [&opus, &wav]);
    let reader = hound::WavReader::open(&wav).unwrap();
    let pcm: Vec<i16> = reader.into_samples().map(Result::unwrap).collect();
    assert!(pcm.len() >= speech.len());
    let similarity = similarity(&speech, &pcm);
    assert!(similarity > 0.9, "{similarity}");
}
