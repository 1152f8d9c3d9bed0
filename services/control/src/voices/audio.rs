//! What the bytes of a sample are: their type, how long they play, and how they were recorded.
//! Never: a sound decoded, or a parser's word that the number of bytes gives the lie.

use std::io::Cursor;

use bytes::Bytes;
use http::StatusCode;
use lofty::{
    config::{GlobalOptions, ParseOptions, apply_global_options},
    file::{AudioFile, FileType},
    probe::Probe,
    properties::FileProperties,
};
use switchboard_runtime::problem::Problem;
use switchboard_store::VoiceSample;

/// The longest sample that is played, and the shortest that a voice can be made of, in milliseconds.
pub(crate) const SHORTEST_MS: i32 = 1_000;
pub(crate) const LONGEST_MS: i32 = 300_000;
/// What speech is recorded with, in measurements per second.
pub(crate) const LOWEST_RATE_HZ: i32 = 8_000;
pub(crate) const HIGHEST_RATE_HZ: i32 = 192_000;
/// One microphone or two.
pub(crate) const MOST_CHANNELS: i32 = 2;
/// Opus always plays at this rate, whatever it was recorded with.
const OPUS_RATE_HZ: u32 = 48_000;
/// The fewest bytes of a second of speech. A header that promises more seconds than that is not believed.
const FEWEST_BYTES_PER_SECOND: u64 = 250;
/// The most bytes that the parser takes for one item of a file. Protects memory from lengths that a file only claims.
const LARGEST_ITEM_BYTES: usize = 64 * 1024;

/// Reads what the bytes are, on a thread where that holds up nobody; whatever the sender calls them does not matter.
pub(super) async fn read(bytes: &Bytes) -> Result<VoiceSample, Problem> {
    if bytes.is_empty() {
        return Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "empty_body",
            "Empty body",
            "The body is the sample itself, and nothing was sent.",
        ));
    }
    let bytes = bytes.clone();
    let read = tokio::task::spawn_blocking(move || parse(&bytes));
    // A file that makes the parser panic is broken as well.
    read.await.unwrap_or_else(|_| Err(broken("audio")))
}

fn parse(bytes: &[u8]) -> Result<VoiceSample, Problem> {
    apply_global_options(
        GlobalOptions::new()
            .use_custom_resolvers(false)
            .allocation_limit(LARGEST_ITEM_BYTES),
    );
    let options = ParseOptions::new()
        .read_tags(false)
        .read_cover_art(false)
        .max_junk_bytes(0);
    let probe = Probe::new(Cursor::new(bytes)).options(options);
    let probe = probe.guess_file_type().map_err(|_| no_audio())?;
    let (kind, mime_type) = match probe.file_type() {
        Some(kind @ FileType::Wav) => (kind, "audio/wav"),
        Some(kind @ FileType::Mpeg) => (kind, "audio/mpeg"),
        Some(kind @ FileType::Flac) => (kind, "audio/flac"),
        Some(kind @ (FileType::Opus | FileType::Vorbis)) => (kind, "audio/ogg"),
        _ => return Err(no_audio()),
    };
    let file = probe.read().map_err(|_| broken(mime_type))?;
    let found = sample(kind, mime_type, file.properties()).ok_or_else(|| broken(mime_type))?;
    let seconds = u64::from(found.duration_ms.unsigned_abs()) / 1_000;
    let needed = seconds.saturating_mul(FEWEST_BYTES_PER_SECOND);
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) < needed {
        return Err(broken(mime_type));
    }
    fit(&found)?;
    Ok(found)
}

/// What the header says; nothing when it does not say all.
fn sample(kind: FileType, mime_type: &str, said: &FileProperties) -> Option<VoiceSample> {
    let rate = match kind {
        FileType::Opus => OPUS_RATE_HZ,
        _ => said.sample_rate()?,
    };
    let found = VoiceSample {
        mime_type: mime_type.to_owned(),
        duration_ms: i32::try_from(said.duration().as_millis()).unwrap_or(i32::MAX),
        sample_rate_hz: i32::try_from(rate).unwrap_or(i32::MAX),
        channels: said.channels()?.into(),
    };
    let is_sound = found.duration_ms > 0 && found.sample_rate_hz > 0 && found.channels > 0;
    is_sound.then_some(found)
}

/// Whether a voice can be made of it.
fn fit(found: &VoiceSample) -> Result<(), Problem> {
    let checks = [
        (
            "plays for",
            found.duration_ms,
            "ms",
            SHORTEST_MS,
            LONGEST_MS,
        ),
        (
            "has",
            found.sample_rate_hz,
            "Hz",
            LOWEST_RATE_HZ,
            HIGHEST_RATE_HZ,
        ),
        ("has", found.channels, "channels", 1, MOST_CHANNELS),
    ];
    for (does, is, unit, least, most) in checks {
        if !(least..=most).contains(&is) {
            return Err(Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "unsuitable_audio",
                "Unsuitable audio",
                format!("The sample {does} {is} {unit}; it must be {least} to {most} {unit}."),
            ));
        }
    }
    Ok(())
}

fn no_audio() -> Problem {
    Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_audio",
        "Unsupported audio",
        "The body does not begin like WAV, MP3, FLAC, or Opus or Vorbis in Ogg; send the sample itself as the whole body.",
    )
}

fn broken(mime_type: &str) -> Problem {
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "broken_audio",
        "Broken audio",
        format!(
            "The body begins like {mime_type}, but does not say how long it plays, or has not the sound that it promises."
        ),
    )
}

#[cfg(test)]
mod tests;
