//! Voices: a recorded sample, the consent to use it, and the state of its training by a provider.

mod deletions;
mod jobs;
mod mutations;
mod queries;
mod references;
mod results;
mod state;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::VoiceId;
use utoipa::ToSchema;

use crate::{
    Owner,
    media::objects::{ObjectKey, hex},
};
pub use deletions::OrphanedVoice;
pub use jobs::{VoiceJob, VoiceStatus};
pub use queries::VoiceFilter;
pub(crate) use references::{link_npc_voice, link_template_voice, lock_voice};
pub use results::{VoiceChange, VoiceError, VoiceRemake, VoiceRemoval};
pub use state::{VoiceFault, VoiceState};

/// The settings of a voice that can be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VoiceSettings {
    /// The display name; 1 to 100 characters.
    #[schema(example = "Grandma Anna")]
    pub name: String,
    /// The languages that it speaks, as BCP 47 tags.
    #[serde(default)]
    #[schema(example = json!(["de-DE"]))]
    pub languages: Vec<String>,
    /// Labels for searching.
    #[serde(default)]
    #[schema(example = json!(["warm"]))]
    pub labels: Vec<String>,
}

/// The consent to use a person's voice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct VoiceConsent {
    /// The person whose voice it is.
    #[schema(example = "Anna Example")]
    pub by: String,
    /// The statement that was agreed to.
    #[schema(example = "I agree that the toy speaks with my voice.")]
    pub statement: String,
    /// Time of the consent.
    #[schema(example = "2026-01-02T03:04:05Z")]
    pub agreed_at: DateTime<Utc>,
    /// When the consent ends; null if it does not.
    #[schema(example = "2036-01-02T03:04:05Z")]
    pub expires_at: Option<DateTime<Utc>>,
}

/// Properties that were read from a sample's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoiceSample {
    /// The media type.
    pub mime_type: String,
    /// The duration in milliseconds.
    pub duration_ms: i32,
    /// The sample rate in Hz.
    pub sample_rate_hz: i32,
    /// The number of channels, 1 or 2.
    pub channels: i32,
}

/// A voice to insert.
#[derive(Debug, Clone)]
pub struct NewVoice {
    /// The id of the voice.
    pub id: VoiceId,
    /// Its settings.
    pub settings: VoiceSettings,
    /// The consent to use it.
    pub consent: VoiceConsent,
    /// The provider that trains it.
    pub provider: String,
    /// The properties of the sample.
    pub sample: VoiceSample,
    /// The bytes of the sample.
    pub bytes: Bytes,
}

/// A stored voice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredVoice {
    /// The id of the voice.
    pub id: VoiceId,
    /// Its owner.
    pub owner: Owner,
    /// Its settings.
    pub settings: VoiceSettings,
    /// The consent to use it, possibly ended.
    pub consent: VoiceConsent,
    /// The provider that trains it.
    pub provider: String,
    /// The provider's id of the voice.
    pub made_as: Option<String>,
    /// The properties of the sample.
    pub sample: VoiceSample,
    /// The size of the sample in bytes.
    pub size_bytes: i64,
    /// The SHA-256 of the sample.
    pub sha256: Vec<u8>,
    /// Its state.
    pub state: VoiceState,
    /// The reason why it failed or expired.
    pub fault: Option<VoiceFault>,
    /// Version of its settings, from 1.
    pub version: i64,
    /// Time of the upload.
    pub created_at: DateTime<Utc>,
    /// Time of the last change or progress.
    pub updated_at: DateTime<Utc>,
}

impl StoredVoice {
    /// The object key of its sample.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey::voice(self.owner, self.id)
    }

    /// The sample's hash as lower-case hexadecimal digits.
    #[must_use]
    pub fn sha256_hex(&self) -> String {
        hex(&self.sha256)
    }
}

impl VoiceConsent {
    /// Whether the consent has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.expires_at.is_some_and(|end| end <= Utc::now())
    }
}
