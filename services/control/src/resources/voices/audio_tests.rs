//! Intact and damaged samples.

use super::audio::parse;

const MP3: &[u8] = include_bytes!("../../../tests/control/voices/tone.mp3");
const FLAC: &[u8] = include_bytes!("../../../tests/control/voices/tone.flac");
const OPUS: &[u8] = include_bytes!("../../../tests/control/voices/tone.opus");
const VORBIS: &[u8] = include_bytes!("../../../tests/control/voices/tone.ogg");

/// A 16-bit WAV that claims `claimed` bytes of audio and has `audio` bytes.
fn wav(rate: u32, channels: u16, claimed: u32, audio: usize) -> Vec<u8> {
    let mut wav = b"RIFF".to_vec();
    wav.extend((36 + claimed).to_le_bytes());
    wav.extend(b"WAVEfmt \x10\0\0\0\x01\0");
    wav.extend(channels.to_le_bytes());
    wav.extend(rate.to_le_bytes());
    wav.extend((rate * u32::from(channels) * 2).to_le_bytes());
    wav.extend((channels * 2).to_le_bytes());
    wav.extend(b"\x10\0data");
    wav.extend(claimed.to_le_bytes());
    wav.resize(wav.len() + audio, 0);
    wav
}

#[test]
fn sample_properties_are_read_from_the_bytes() {
    fn check(bytes: &[u8], mime_type: &str, rate: i32) {
        let found = parse(bytes).unwrap();
        assert_eq!(found.mime_type, mime_type);
        assert_eq!(
            (found.sample_rate_hz, found.channels),
            (rate, 1),
            "{mime_type}"
        );
        assert!((1_200..=1_600).contains(&found.duration_ms), "{found:?}");
    }
    check(&wav(8_000, 1, 19_200, 19_200), "audio/wav", 8_000);
    check(MP3, "audio/mpeg", 8_000);
    check(FLAC, "audio/flac", 8_000);
    check(OPUS, "audio/ogg", 48_000);
    check(VORBIS, "audio/ogg", 8_000);
}

#[test]
fn invalid_sample_is_rejected() {
    fn check(bytes: &[u8], slug: &str) {
        let refused = parse(bytes).unwrap_err();
        assert_eq!(refused.slug(), slug, "{}", refused.detail);
    }
    check(b"RIFF", "unsupported_audio");
    check(b"<html>", "unsupported_audio");
    check(b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", "unsupported_audio");
    check(b"\0\0\0\x20ftypM4A ", "unsupported_audio");
    check(&wav(8_000, 1, 8_000, 8_000), "unsuitable_audio");
    check(
        &wav(8_000, 1, 16_000 * 301, 16_000 * 301),
        "unsuitable_audio",
    );
    check(&wav(8_000, 3, 96_000, 96_000), "unsuitable_audio");
    check(&wav(4_000, 1, 96_000, 96_000), "unsuitable_audio");
    check(&wav(8_000, 1, 1_600_000, 100), "broken_audio");
    check(&wav(0, 1, 16_000, 16_000), "broken_audio");
    check(&wav(8_000, 1, 0, 0), "broken_audio");
    check(&FLAC[..20], "broken_audio");
    check(&OPUS[..60], "broken_audio");
    check(b"ID3\x04\0\0\0\0\0\x01", "unsupported_audio");
}

/// The parser returns for every changed byte and every truncation of the headers.
#[test]
fn damaged_sample_ends_the_parser() {
    let wav = wav(8_000, 1, 19_200, 19_200);
    for whole in [&wav[..], MP3, FLAC, OPUS, VORBIS] {
        for place in 0..whole.len().min(400) {
            for flipped in [0x01, 0x80, 0xff] {
                let mut damaged = whole.to_vec();
                damaged[place] ^= flipped;
                let parsed = std::panic::catch_unwind(|| parse(&damaged).is_ok());
                drop(parsed);
            }
            drop(parse(&whole[..place]));
        }
    }
}
