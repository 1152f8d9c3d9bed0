//! Fuzz target of `switchboard-voice`. The result depends on the input only.

use switchboard_protocol::message::{AudioFormat, Codec};
use switchboard_voice::Decoder;

/// Any bytes decode to the same audio, or the same error, in one piece and byte by byte. The first byte
/// selects the format.
pub fn audio_stream(input: &[u8]) {
    let Some((selector, stream)) = input.split_first() else {
        return;
    };
    let codec = if selector & 1 == 0 {
        Codec::Opus
    } else {
        Codec::PcmS16le
    };
    let rates = [8_000, 16_000, 24_000, 48_000];
    let rate = rates[usize::from(selector >> 1) % rates.len()];
    let format = AudioFormat {
        codec,
        rate,
        frame_ms: 60,
    };
    let whole = decode(format, std::iter::once(stream));
    let bytewise = decode(format, stream.chunks(1));
    assert_eq!(whole, bytewise);
    // At most 120 ms at 16 kHz of each two bytes.
    assert!(whole.0.len() <= (stream.len() / 2 + 1) * 1_920);
}

fn decode<'a>(
    format: AudioFormat,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<i16>, Option<String>) {
    let mut decoder = Decoder::new(format);
    let mut pcm = Vec::new();
    for piece in pieces {
        if let Err(error) = decoder.decode(piece, &mut pcm) {
            return (pcm, Some(error.to_string()));
        }
    }
    let finished = decoder.finish(&mut pcm);
    (pcm, finished.err().map(|error| error.to_string()))
}
