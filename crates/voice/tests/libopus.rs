//! Opus packets in both directions with libopus, through `opusenc` and `opusdec` of the package
//! `opus-tools`.

#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::{fs, path::Path, process::Command};

use ogg::PacketReader;
use switchboard_protocol::message::{AudioFormat, Codec};
use switchboard_voice::{Decoder, OggOpus, RATE, Recorder};

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
fn recording_is_decoded_by_libopus() {
    let (folder, speech) = (tempfile::tempdir().unwrap(), recording());
    let (opus, wav) = (folder.path().join("b.opus"), folder.path().join("b.wav"));
    let mut packets = Vec::new();
    let mut recorder = Recorder::default();
    recorder.begin();
    recorder.push(&speech, &mut packets);
    recorder.end(&mut packets);
    let file = OggOpus::from_packets(&packets, 1 << 20).unwrap();
    fs::write(&opus, &file.bytes).unwrap();
    run("opusdec", &["--quiet", "--rate", "16000"], [&opus, &wav]);
    let reader = hound::WavReader::open(&wav).unwrap();
    let pcm: Vec<i16> = reader.into_samples().map(Result::unwrap).collect();
    // Without the delay of the encoder, and filled up to a packet.
    assert!(pcm.len() + MAX_DELAY >= speech.len());
    assert!(file.ms as usize * 16 >= pcm.len());
    let similarity = similarity(&speech, &pcm);
    assert!(similarity > 0.9, "{similarity}");
}
