//! Voices: how somebody sounds, whose consent there is for it, and how far its provider is.
//! Never: a voice without consent, or a sample whose row is missing for longer than its removal takes.

mod making;
mod outcomes;
mod reading;
mod removals;
mod speakers;
mod state;
mod writing;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use switchboard_protocol::id::VoiceId;
use utoipa::ToSchema;

use crate::{
    objects::{ObjectKey, hex},
    owner::Owner,
};
pub use making::{VoiceJob, VoiceStanding};
pub use outcomes::{VoiceChange, VoiceError, VoiceRemake, VoiceRemoval};
pub use reading::VoiceFilter;
pub use removals::VoiceLeftover;
pub(crate) use speakers::{hold_for_npc, hold_for_template, unknown_voice};
pub use state::{VoiceFault, VoiceState};

/// What an author sets about a voice, and may change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VoiceSettings {
    /// What people call it; 1 to 100 characters.
    #[schema(example = "Grandma Anna")]
    pub name: String,
    /// What it speaks, as BCP 47 tags.
    #[serde(default)]
    #[schema(example = json!(["de-DE"]))]
    pub languages: Vec<String>,
    /// Words to find it by.
    #[serde(default)]
    #[schema(example = json!(["warm"]))]
    pub labels: Vec<String>,
}

/// That somebody's voice may be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct VoiceConsent {
    /// Whose voice it is.
    #[schema(example = "Anna Example")]
    pub by: String,
    /// What they agreed to.
    #[schema(example = "I agree that the toy speaks with my voice.")]
    pub statement: String,
    /// When they did.
    #[schema(example = "2026-01-02T03:04:05Z")]
    pub agreed_at: DateTime<Utc>,
    /// From when on the voice is not used any more; null when that is never.
    #[schema(example = "2036-01-02T03:04:05Z")]
    pub expires_at: Option<DateTime<Utc>>,
}

/// What has been read from the bytes of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoiceSample {
    /// What they are.
    pub mime_type: String,
    /// How long it plays.
    pub duration_ms: i32,
    /// How many times a second it was measured.
    pub sample_rate_hz: i32,
    /// 1 or 2.
    pub channels: i32,
}

/// A voice about to be stored.
#[derive(Debug, Clone)]
pub struct NewVoice {
    /// Its id.
    pub id: VoiceId,
    /// What its author set.
    pub settings: VoiceSettings,
    /// That it may be used.
    pub consent: VoiceConsent,
    /// Who makes it.
    pub provider: String,
    /// What is known of the sample.
    pub sample: VoiceSample,
    /// The sample.
    pub bytes: Bytes,
}

/// A voice as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredVoice {
    /// Its id.
    pub id: VoiceId,
    /// Whose it is.
    pub owner: Owner,
    /// What its author set.
    pub settings: VoiceSettings,
    /// That it may be used, or until when it might.
    pub consent: VoiceConsent,
    /// Who makes it.
    pub provider: String,
    /// What its provider calls it.
    pub made_as: Option<String>,
    /// What is known of the sample.
    pub sample: VoiceSample,
    /// How many bytes the sample has.
    pub size_bytes: i64,
    /// Of those bytes.
    pub sha256: Vec<u8>,
    /// How far it is.
    pub state: VoiceState,
    /// Why it failed or expired.
    pub fault: Option<VoiceFault>,
    /// 1 at first, one more with each change of its settings.
    pub version: i64,
    /// When it was sent.
    pub created_at: DateTime<Utc>,
    /// When it was changed or got further last.
    pub updated_at: DateTime<Utc>,
}

impl StoredVoice {
    /// Where its sample is in the object store.
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
    /// Whether it is over.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.expires_at.is_some_and(|end| end <= Utc::now())
    }
}
