//! How the reply to a spoken message is to be spoken.

use serde::{Deserialize, Serialize};

/// The voice of the character that replies, for the edge that speaks. Without a member, the default of
/// the edge's provider holds, and nothing is recorded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SpeakingStyle {
    /// The provider's name of the voice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voice: Option<String>,
    /// The language, as a BCP 47 tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The speaking rate as a factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Whether further messages of the conversation are sent with their [`Recording`](super::Recording).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_recorded: bool,
}

impl SpeakingStyle {
    /// Whether everything is the default.
    #[must_use]
    pub const fn is_default(&self) -> bool {
        let Self {
            voice,
            language,
            rate,
            is_recorded,
        } = self;
        voice.is_none() && language.is_none() && rate.is_none() && !*is_recorded
    }
}
