//! How far a voice is, and why it got no further.
//! Never: a failure without a reason.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far a voice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = "ready")]
#[serde(rename_all = "lowercase")]
pub enum VoiceState {
    /// Its provider has not been asked yet.
    Uploaded,
    /// Its provider is making it.
    Training,
    /// It can be spoken with.
    Ready,
    /// It could not be made.
    Failed,
    /// It cannot be spoken with any more.
    Expired,
}

/// Why a voice failed or expired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VoiceFault {
    /// What kind of fault, in machines' words.
    #[schema(max_length = 64, example = "sample_damaged")]
    pub kind: String,
    /// What is wrong, in people's words.
    #[schema(max_length = 500, example = "The sample is not what was sent.")]
    pub detail: String,
}

impl VoiceState {
    const ALL: [Self; 5] = [
        Self::Uploaded,
        Self::Training,
        Self::Ready,
        Self::Failed,
        Self::Expired,
    ];

    /// The state in the words of the database and of the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Uploaded => "uploaded",
            Self::Training => "training",
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Expired => "expired",
        }
    }

    /// A constraint lets no other word into the database.
    pub(super) fn from_column(text: &str) -> Self {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.unwrap_or(Self::Failed)
    }
}

impl VoiceFault {
    /// A fault of this kind.
    #[must_use]
    pub fn new(kind: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            detail: detail.into(),
        }
    }

    /// The end of consent, which is nobody's fault.
    #[must_use]
    pub fn consent_ended() -> Self {
        Self::new(
            "consent_ended",
            "The consent to use this voice has ended; it is neither played nor made again.",
        )
    }
}
