//! The audio formats that AUTH negotiates. (ours)

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Sample rates in Hz.
const RATES: [u32; 4] = [8_000, 16_000, 24_000, 48_000];
/// Duration of an Opus packet; a multiple of the step.
const OPUS_FRAME_MS: RangeInclusive<u16> = 20..=120;
const OPUS_STEP_MS: u16 = 20;
/// Duration of the PCM that is sent at a time.
const PCM_FRAME_MS: RangeInclusive<u16> = 20..=100;

/// How audio is encoded in the byte stream of a task. All audio is mono.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Codec {
    /// Signed 16-bit samples, little-endian.
    PcmS16le,
    /// Records: the length of a packet as 16-bit big-endian number, then the Opus packet. The length 0
    /// stands for a lost packet.
    Opus,
}

/// The format of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AudioFormat {
    /// The encoding.
    pub codec: Codec,
    /// Samples per second: 8,000, 16,000, 24,000 or 48,000.
    pub rate: u32,
    /// Milliseconds of audio in a packet, or in what is sent at a time: 20 to 120 in steps of 20 for Opus,
    /// 20 to 100 for PCM.
    #[serde(default = "default_frame_ms")]
    pub frame_ms: u16,
}

/// How a message of the user begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListenMode {
    /// The server detects speech and its end. It does not listen while it answers, because the device
    /// may hear its own speaker.
    #[default]
    Auto,
    /// The device ends its message with END, or with `listen: stop`.
    Manual,
    /// Like `auto`, and the user can interrupt an answer. The device removes its own sound from what it
    /// sends.
    Realtime,
}

/// What a device offers in AUTH as `client.audio`, and the terms with which the server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AudioTerms {
    /// What the device sends.
    #[serde(rename = "in")]
    pub input: AudioFormat,
    /// What the device plays. Without it, answers arrive as text.
    #[serde(rename = "out", default, skip_serializing_if = "Option::is_none")]
    pub output: Option<AudioFormat>,
    /// The mode until a VOICE message names another one.
    #[serde(default)]
    pub listen: ListenMode,
    /// Whether the server sends `heard` and `saying`.
    #[serde(default)]
    pub captions: bool,
}

const fn default_frame_ms() -> u16 {
    60
}

impl AudioFormat {
    /// Returns the samples of one frame.
    #[must_use]
    pub const fn frame_samples(self) -> usize {
        (self.rate as usize / 1_000).saturating_mul(self.frame_ms as usize)
    }

    fn check(self) -> Result<(), String> {
        if !RATES.contains(&self.rate) {
            return Err(format!("the rate {} is none of {RATES:?}", self.rate));
        }
        let (is_valid, expected) = match self.codec {
            Codec::Opus => (
                OPUS_FRAME_MS.contains(&self.frame_ms)
                    && self.frame_ms.is_multiple_of(OPUS_STEP_MS),
                "20, 40, 60, 80, 100 or 120",
            ),
            Codec::PcmS16le => (PCM_FRAME_MS.contains(&self.frame_ms), "20 to 100"),
        };
        if is_valid {
            return Ok(());
        }
        Err(format!(
            "`frame_ms` is {}, and must be {expected}",
            self.frame_ms
        ))
    }
}

impl AudioTerms {
    /// Parses what a device offers.
    ///
    /// # Errors
    /// What is wrong and what would be right.
    pub fn parse(offer: &RawValue) -> Result<Self, String> {
        let offer: Self = serde_json::from_str(offer.get())
            .map_err(|error| format!("`client.audio` is invalid: {error}"))?;
        let in_member = |name: &'static str| {
            move |detail: String| format!("`client.audio.{name}` is invalid: {detail}")
        };
        offer.input.check().map_err(in_member("in"))?;
        if let Some(output) = offer.output {
            output.check().map_err(in_member("out"))?;
        }
        Ok(offer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offer_names_what_is_wrong() {
        fn check(offer: &str, expect: Result<&str, &str>) {
            let raw = RawValue::from_string(offer.to_owned()).unwrap();
            match (AudioTerms::parse(&raw), expect) {
                (Ok(terms), Ok(expect)) => {
                    assert_eq!(serde_json::to_string(&terms).unwrap(), expect);
                }
                (Err(error), Err(expect)) => assert!(error.contains(expect), "{error}"),
                (terms, _) => panic!("{offer}: {terms:?}"),
            }
        }
        check(
            r#"{"in":{"codec":"opus","rate":16000},"out":{"codec":"pcm_s16le","rate":24000,"frame_ms":25}}"#,
            Ok(
                r#"{"in":{"codec":"opus","rate":16000,"frame_ms":60},"out":{"codec":"pcm_s16le","rate":24000,"frame_ms":25},"listen":"auto","captions":false}"#,
            ),
        );
        check(
            r#"{"out":{"codec":"opus","rate":16000}}"#,
            Err("missing field `in`"),
        );
        check(
            r#"{"in":{"codec":"mp3","rate":16000}}"#,
            Err("unknown variant `mp3`"),
        );
        check(
            r#"{"in":{"codec":"opus","rate":44100}}"#,
            Err("`client.audio.in`"),
        );
        check(
            r#"{"in":{"codec":"opus","rate":8000},"out":{"codec":"opus","rate":8000,"frame_ms":30}}"#,
            Err("`client.audio.out` is invalid: `frame_ms` is 30, and must be 20, 40"),
        );
        check(
            r#"{"in":{"codec":"pcm_s16le","rate":8000,"frame_ms":120}}"#,
            Err("20 to 100"),
        );
    }
}
