//! Voices as documents: how they are shown, and how they are changed.
//! Never: a field that the store writes taken from a request.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use switchboard_protocol::id::{OrgId, VoiceId};
use switchboard_store::{Owner, StoredVoice, VoiceConsent, VoiceFault, VoiceSettings, VoiceState};
use utoipa::ToSchema;

use super::audio;
use crate::{
    document,
    error::ControlError,
    limits::{
        Limit::{Items, Line, Locale, Number, Text},
        Rule, rule,
    },
    patch,
};

/// The limits of what its author sets; docs/settings.md repeats them.
pub(crate) const RULES: &[Rule] = &[
    rule("/name", Line(100)),
    rule("/languages", Items(0, 16)),
    rule("/languages/*", Locale),
    rule("/labels", Items(0, 32)),
    rule("/labels/*", Line(50)),
];

/// The limits of a consent.
pub(crate) const CONSENT_RULES: &[Rule] =
    &[rule("/by", Line(200)), rule("/statement", Text(2_000))];

/// The limits of what is known of a sample.
pub(crate) const SAMPLE_RULES: &[Rule] = &[
    rule(
        "/duration_ms",
        Number(audio::SHORTEST_MS as f64, audio::LONGEST_MS as f64),
    ),
    rule(
        "/sample_rate_hz",
        Number(audio::LOWEST_RATE_HZ as f64, audio::HIGHEST_RATE_HZ as f64),
    ),
    rule("/channels", Number(1.0, audio::MOST_CHANNELS as f64)),
];

/// A voice as it is shown.
#[derive(Serialize, ToSchema)]
#[schema(as = VoiceDocument)]
pub(crate) struct ShownVoice {
    /// Its id.
    id: VoiceId,
    /// Whose it is; null when it is public.
    org_id: Option<OrgId>,
    #[serde(flatten)]
    settings: VoiceSettings,
    /// Who makes it.
    #[schema(max_length = 64, example = "embedded")]
    provider: String,
    /// What its provider calls it, once it has said so; null for a voice that is its own sample.
    #[schema(max_length = 200, example = "v-4711")]
    provider_voice_id: Option<String>,
    /// How far it is.
    state: VoiceState,
    /// Why it failed or expired; else null.
    error: Option<VoiceFault>,
    /// Where it can be listened to; null after its consent has ended.
    #[schema(
        max_length = 80,
        example = "/v1/voices/voice_01a1fdc1e83670f68020c071fd533605/preview"
    )]
    preview: Option<String>,
    /// That it may be used, and until when.
    consent: VoiceConsent,
    /// What the bytes of the sample are, whatever the sender called them.
    #[schema(pattern = "^audio/(wav|mpeg|ogg|flac)$", example = "audio/wav")]
    mime_type: String,
    /// How long the sample plays.
    #[schema(example = 12_000)]
    duration_ms: i32,
    /// How many times a second the sample was measured.
    #[schema(example = 48_000)]
    sample_rate_hz: i32,
    /// 1, or 2 for stereo.
    #[schema(example = 1)]
    channels: i32,
    /// How many bytes the sample has.
    #[schema(minimum = 1, maximum = 10_485_760, example = 96_044)]
    size_bytes: i64,
    /// Of the sample, in hexadecimal digits.
    #[schema(
        pattern = "^[0-9a-f]{64}$",
        example = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )]
    sha256: String,
    /// 1 at first, one more with each change of its name, languages or labels.
    #[schema(minimum = 1, example = 1)]
    version: i64,
    /// When it was sent.
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// When it was changed or got further last.
    #[schema(example = "2026-01-02T03:04:05Z")]
    updated_at: DateTime<Utc>,
}

/// What is shown and not set.
const READ_ONLY: [&str; 17] = [
    "id",
    "org_id",
    "provider",
    "provider_voice_id",
    "state",
    "error",
    "preview",
    "consent",
    "mime_type",
    "duration_ms",
    "sample_rate_hz",
    "channels",
    "size_bytes",
    "sha256",
    "version",
    "created_at",
    "updated_at",
];

impl From<StoredVoice> for ShownVoice {
    fn from(voice: StoredVoice) -> Self {
        let plays = !voice.consent.has_ended();
        Self {
            sha256: voice.sha256_hex(),
            preview: plays.then(|| format!("{}/{}/preview", super::PATH, voice.id)),
            id: voice.id,
            org_id: match voice.owner {
                Owner::Org(org) => Some(org),
                Owner::Installation => None,
            },
            settings: voice.settings,
            provider: voice.provider,
            provider_voice_id: voice.made_as,
            state: voice.state,
            error: voice.fault,
            consent: voice.consent,
            mime_type: voice.sample.mime_type,
            duration_ms: voice.sample.duration_ms,
            sample_rate_hz: voice.sample.sample_rate_hz,
            channels: voice.sample.channels,
            size_bytes: voice.size_bytes,
            version: voice.version,
            created_at: voice.created_at,
            updated_at: voice.updated_at,
        }
    }
}

/// The settings after a merge patch of the voice as it is shown.
pub(super) fn patched(current: &StoredVoice, sent: Value) -> Result<VoiceSettings, ControlError> {
    let after = patch::merged(&ShownVoice::from(current.clone()), sent, &READ_ONLY)?;
    Ok(document::read(&after, "", RULES)?)
}
