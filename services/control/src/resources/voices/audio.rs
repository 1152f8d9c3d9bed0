//! Reads the properties of a sample from its headers: type, duration, sample rate, channels.
//!
//! No audio is decoded. A header that claims more audio than the bytes can hold is rejected.

use std::io::Cursor;

use bytes::Bytes;
use lofty::{
    config::{GlobalOptions, ParseOptions, apply_global_options},
    file::{AudioFile, FileType},
    probe::Probe,
    properties::FileProperties,
};
use switchboard_runtime::problem::{Problem, ProblemKind};
use switchboard_store::VoiceSample;

/// The duration of a sample.
pub(crate) const MIN_DURATION_MS: i32 = 1_000;
pub(crate) const MAX_DURATION_MS: i32 = 300_000;
/// The sample rate.
pub(crate) const MIN_RATE_HZ: i32 = 8_000;
pub(crate) const MAX_RATE_HZ: i32 = 192_000;
/// Mono or stereo.
pub(crate) const MAX_CHANNELS: i32 = 2;
/// Opus always decodes to this rate, whatever the recording had.
const OPUS_RATE_HZ: u32 = 48_000;
/// The minimum bytes of a second of speech. A header with a longer duration than that is rejected.
const MIN_BYTES_PER_SECOND: u64 = 250;
/// The maximum size of one item of a file. Protects memory from lengths that a file only claims.
const MAX_ITEM_BYTES: usize = 64 * 1024;

/// Reads the properties of a sample on a blocking thread. The type that the client sent is ignored.
pub(super) async fn read_sample(bytes: &Bytes) -> Result<VoiceSample, Problem> {
    if bytes.is_empty() {
        return Err(Problem::new(
            ProblemKind::EmptyBody,
            "The body must be the sample itself, and it is empty.",
        ));
    }
    let bytes = bytes.clone();
    let parsed = tokio::task::spawn_blocking(move || parse(&bytes));
    // A file on which the parser panics is broken, too.
    parsed.await.unwrap_or_else(|_| Err(broken("audio")))
}

pub(super) fn parse(bytes: &[u8]) -> Result<VoiceSample, Problem> {
    apply_global_options(
        GlobalOptions::new()
            .use_custom_resolvers(false)
            .allocation_limit(MAX_ITEM_BYTES),
    );
    let options = ParseOptions::new()
        .read_tags(false)
        .read_cover_art(false)
        .max_junk_bytes(0);
    let probe = Probe::new(Cursor::new(bytes)).options(options);
    let probe = probe.guess_file_type().map_err(|_| unsupported_audio())?;
    let (kind, mime_type) = match probe.file_type() {
        Some(kind @ FileType::Wav) => (kind, "audio/wav"),
        Some(kind @ FileType::Mpeg) => (kind, "audio/mpeg"),
        Some(kind @ FileType::Flac) => (kind, "audio/flac"),
        Some(kind @ (FileType::Opus | FileType::Vorbis)) => (kind, "audio/ogg"),
        _ => return Err(unsupported_audio()),
    };
    let file = probe.read().map_err(|_| broken(mime_type))?;
    let found = sample(kind, mime_type, file.properties()).ok_or_else(|| broken(mime_type))?;
    let seconds = u64::from(found.duration_ms.unsigned_abs()) / 1_000;
    let min_bytes = seconds.saturating_mul(MIN_BYTES_PER_SECOND);
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) < min_bytes {
        return Err(broken(mime_type));
    }
    check_limits(&found)?;
    Ok(found)
}

/// The properties in the header; `None` when one is missing.
fn sample(kind: FileType, mime_type: &str, header: &FileProperties) -> Option<VoiceSample> {
    let rate = match kind {
        FileType::Opus => OPUS_RATE_HZ,
        _ => header.sample_rate()?,
    };
    let found = VoiceSample {
        mime_type: mime_type.to_owned(),
        duration_ms: i32::try_from(header.duration().as_millis()).unwrap_or(i32::MAX),
        sample_rate_hz: i32::try_from(rate).unwrap_or(i32::MAX),
        channels: header.channels()?.into(),
    };
    let is_complete = found.duration_ms > 0 && found.sample_rate_hz > 0 && found.channels > 0;
    is_complete.then_some(found)
}

/// Checks that a voice can be trained from the sample.
fn check_limits(found: &VoiceSample) -> Result<(), Problem> {
    let checks = [
        (
            "has a duration of",
            found.duration_ms,
            "ms",
            MIN_DURATION_MS,
            MAX_DURATION_MS,
        ),
        ("has", found.sample_rate_hz, "Hz", MIN_RATE_HZ, MAX_RATE_HZ),
        ("has", found.channels, "channels", 1, MAX_CHANNELS),
    ];
    for (verb, value, unit, min, max) in checks {
        if !(min..=max).contains(&value) {
            return Err(Problem::new(
                ProblemKind::UnsuitableAudio,
                format!("The sample {verb} {value} {unit}; it must be {min} to {max} {unit}."),
            ));
        }
    }
    Ok(())
}

fn unsupported_audio() -> Problem {
    Problem::new(
        ProblemKind::UnsupportedAudio,
        "The body does not begin like WAV, MP3, FLAC, or Opus or Vorbis in Ogg; send the sample itself as the whole body.",
    )
}

fn broken(mime_type: &str) -> Problem {
    Problem::new(
        ProblemKind::BrokenAudio,
        format!(
            "The body begins like {mime_type}, but its header is incomplete or claims more audio than there is."
        ),
    )
}
