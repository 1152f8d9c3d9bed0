//! Request and response schemas of voices.
//!
//! Invariant: no member that the store sets is taken from a request.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use switchboard_protocol::id::{OrgId, VoiceId};
use switchboard_store::{Owner, StoredVoice, VoiceConsent, VoiceFault, VoiceSettings, VoiceState};
use utoipa::ToSchema;

use super::audio;
use crate::http::{
    documents,
    error::ControlError,
    limits::{
        Limit::{Items, Line, Locale, Number, Text},
        Rule, rule,
    },
    merge,
};

/// The limits of the settings, documented in docs/settings.md.
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

/// The limits of a sample.
pub(crate) const SAMPLE_RULES: &[Rule] = &[
    rule(
        "/duration_ms",
        Number(audio::MIN_DURATION_MS as f64, audio::MAX_DURATION_MS as f64),
    ),
    rule(
        "/sample_rate_hz",
        Number(audio::MIN_RATE_HZ as f64, audio::MAX_RATE_HZ as f64),
    ),
    rule("/channels", Number(1.0, audio::MAX_CHANNELS as f64)),
];

/// A voice.
#[derive(Serialize, ToSchema)]
#[schema(as = VoiceDocument)]
pub(crate) struct VoiceView {
    /// Unique identifier.
    id: VoiceId,
    /// The organisation that owns it; null if it is public.
    org_id: Option<OrgId>,
    #[serde(flatten)]
    settings: VoiceSettings,
    /// The provider that trains the voice.
    #[schema(max_length = 64, example = "embedded")]
    provider: String,
    /// The id of the voice at its provider, once known; null for a voice that is its own sample.
    #[schema(max_length = 200, example = "v-4711")]
    provider_voice_id: Option<String>,
    /// State of the training.
    state: VoiceState,
    /// Reason of the failure or expiry; null if there is none.
    error: Option<VoiceFault>,
    /// Path of the sample; null after the consent has ended.
    #[schema(
        max_length = 80,
        example = "/v1/voices/voice_01a1fdc1e83670f68020c071fd533605/preview"
    )]
    preview: Option<String>,
    /// Consent of the speaker, and when it ends.
    consent: VoiceConsent,
    /// Media type of the sample, detected from its bytes.
    #[schema(pattern = "^audio/(wav|mpeg|ogg|flac)$", example = "audio/wav")]
    mime_type: String,
    /// Duration of the sample in milliseconds.
    #[schema(example = 12_000)]
    duration_ms: i32,
    /// Sample rate in hertz.
    #[schema(example = 48_000)]
    sample_rate_hz: i32,
    /// Number of channels: 1 for mono, 2 for stereo.
    #[schema(example = 1)]
    channels: i32,
    /// Size of the sample in bytes.
    #[schema(minimum = 1, maximum = 10_485_760, example = 96_044)]
    size_bytes: i64,
    /// SHA-256 of the sample in hexadecimal digits.
    #[schema(
        pattern = "^[0-9a-f]{64}$",
        example = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )]
    sha256: String,
    /// Version, starting at 1 and incremented by each change of name, languages or labels.
    #[schema(minimum = 1, example = 1)]
    version: i64,
    /// Time of creation (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    created_at: DateTime<Utc>,
    /// Time of the last change of the voice or of its state (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    updated_at: DateTime<Utc>,
}

/// Members of the view that clients cannot change.
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

impl From<StoredVoice> for VoiceView {
    fn from(voice: StoredVoice) -> Self {
        let has_consent = !voice.consent.has_ended();
        Self {
            sha256: voice.sha256_hex(),
            preview: has_consent.then(|| format!("{}/{}/preview", super::PATH, voice.id)),
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

/// The settings after a merge patch of the view.
pub(super) fn apply_patch(
    current: &StoredVoice,
    patch: Value,
) -> Result<VoiceSettings, ControlError> {
    let after = merge::apply(&VoiceView::from(current.clone()), patch, &READ_ONLY)?;
    Ok(documents::parse(&after, "", RULES)?)
}
