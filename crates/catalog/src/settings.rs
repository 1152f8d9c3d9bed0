//! The settings of a template.

use serde::{Deserialize, Serialize};
use switchboard_protocol::id::{PictureId, SkillsBookId, TemplateId, VoiceId};
use utoipa::ToSchema;

use crate::{Persona, Prompt};

/// The settings of a template. Only the name is required.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TemplateSettings {
    /// The display name; 1 to 100 characters.
    #[schema(example = "Bello")]
    pub name: String,
    /// The avatar picture.
    #[serde(default)]
    pub avatar: Option<PictureId>,
    /// The language of the character, as a BCP 47 tag.
    #[serde(default)]
    #[schema(example = "de-DE")]
    pub locale: Option<String>,
    /// Tags for searching.
    #[serde(default)]
    #[schema(example = json!(["dog"]))]
    pub tags: Vec<String>,
    /// The character's identity and style.
    #[serde(default)]
    pub persona: Persona,
    /// The language model; the installation's model if not given.
    #[serde(default)]
    pub model: Option<Model>,
    /// The voice; the installation's voice if not given.
    #[serde(default)]
    pub voice: Option<Voice>,
    /// The tools that the character may use.
    #[serde(default)]
    pub tools: ToolPolicy,
    /// The skills books in which the character looks up knowledge.
    #[serde(default)]
    #[schema(example = json!([]))]
    pub skills_book_ids: Vec<SkillsBookId>,
    /// How memories are created and retained.
    #[serde(default)]
    pub memory: MemoryPolicy,
    /// How conversations are conducted.
    #[serde(default)]
    pub conversation: Conversation,
    /// The template as an MCP prompt; derived from the persona if not given.
    #[serde(default)]
    pub prompt: Option<Prompt>,
}

impl TemplateSettings {
    /// The prompt name of a template with these settings and this id.
    #[must_use]
    pub fn prompt_name(&self, id: TemplateId) -> String {
        let name = self.prompt.as_ref().and_then(|prompt| prompt.name.clone());
        name.unwrap_or_else(|| id.to_string())
    }

    /// All pictures of the prompt, and the avatar; each once, sorted.
    #[must_use]
    pub fn pictures(&self) -> Vec<PictureId> {
        let in_prompt = self.prompt.iter().flat_map(Prompt::pictures);
        let mut all: Vec<_> = in_prompt.map(|(_, id)| id).chain(self.avatar).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The voice, if it is one of `/v1/voices` rather than a provider's own.
    #[must_use]
    pub fn custom_voice(&self) -> Option<VoiceId> {
        self.voice.as_ref()?.voice_id.parse().ok()
    }
}

/// The language model of a character.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Model {
    /// The provider that runs the model.
    #[schema(example = "openai")]
    pub provider: String,
    /// The provider's name of the model.
    #[schema(example = "gpt-5")]
    pub model: String,
    /// The sampling temperature, 0 to 2.
    #[serde(default)]
    #[schema(example = 0.7)]
    pub temperature: Option<f64>,
    /// The maximum number of tokens of one answer.
    #[serde(default)]
    #[schema(example = 1024)]
    pub max_tokens: Option<u32>,
}

/// The voice of a character. Rate, pitch and volume are factors; 1 leaves the voice unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Voice {
    /// An id of `/v1/voices` if it begins with `voice_`, otherwise the provider's name of a voice.
    #[schema(example = "warm-1")]
    pub voice_id: String,
    /// The speaking rate, 0.25 to 4.
    #[serde(default)]
    #[schema(example = 1.0)]
    pub rate: Option<f64>,
    /// The pitch, 0.25 to 4.
    #[serde(default)]
    #[schema(example = 1.0)]
    pub pitch: Option<f64>,
    /// The volume, 0 to 4.
    #[serde(default)]
    #[schema(example = 1.0)]
    pub volume: Option<f64>,
}

/// The tools that a character may use: those allowed and not denied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ToolPolicy {
    /// Names of allowed tools; all tools if not given.
    #[schema(example = json!(["get_current_time"]))]
    pub allow: Option<Vec<String>>,
    /// Names of denied tools. Takes precedence over `allow`.
    #[schema(example = json!([]))]
    pub deny: Vec<String>,
}

/// How a character's memories are created and retained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct MemoryPolicy {
    /// The retention of memories without an expiry of their own, in days; unlimited if not given.
    #[schema(example = 365)]
    pub retention_days: Option<u32>,
    /// Whether memories are extracted from a conversation when it ends. Default: true.
    #[schema(example = true)]
    pub from_conversations: bool,
}

impl Default for MemoryPolicy {
    fn default() -> Self {
        Self {
            retention_days: None,
            from_conversations: true,
        }
    }
}

/// How conversations with a character are conducted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Conversation {
    /// Whether new input from a device cancels the answer in progress. Otherwise both inputs are
    /// answered. Default: true.
    #[schema(example = true)]
    pub barge_in: bool,
}

impl Default for Conversation {
    fn default() -> Self {
        Self { barge_in: true }
    }
}
