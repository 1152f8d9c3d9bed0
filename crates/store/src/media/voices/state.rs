//! The state of a voice, and the reason of a failure.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The state of a voice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = "ready")]
#[serde(rename_all = "lowercase")]
pub enum VoiceState {
    /// Its provider has not received it yet.
    Uploaded,
    /// Its provider is training it.
    Training,
    /// It can be used.
    Ready,
    /// The training failed.
    Failed,
    /// It can no longer be used.
    Expired,
}

/// The reason why a voice failed or expired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VoiceFault {
    /// Machine-readable kind of the fault.
    #[schema(max_length = 64, example = "sample_damaged")]
    pub kind: String,
    /// Human-readable description of the fault.
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

    /// The name in the database and in the API.
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

    /// A constraint excludes other values.
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

    /// The fault of a voice whose consent has ended.
    #[must_use]
    pub fn consent_ended() -> Self {
        Self::new(
            "consent_ended",
            "The consent to use this voice has ended; it is neither played nor made again.",
        )
    }
}
