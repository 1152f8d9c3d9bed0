//! What an author sets about a template.
//! Never: what the store itself writes, such as versions and times.

use serde::{Deserialize, Serialize};
use switchboard_protocol::id::{PictureId, SkillsBookId};
use utoipa::ToSchema;

use super::{Persona, Prompt};

/// What an author sets about a template. Everything but the name may be left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TemplateSettings {
    /// What people call it; 1 to 100 characters.
    #[schema(example = "Bello")]
    pub name: String,
    /// The picture that stands for it.
    #[serde(default)]
    pub avatar: Option<PictureId>,
    /// The language it speaks, as a BCP 47 tag.
    #[serde(default)]
    #[schema(example = "de-DE")]
    pub locale: Option<String>,
    /// Words to find it by.
    #[serde(default)]
    #[schema(example = json!(["dog"]))]
    pub tags: Vec<String>,
    /// Who the character is.
    #[serde(default)]
    pub persona: Persona,
    /// Which model speaks; the installation's when not given.
    #[serde(default)]
    pub model: Option<Model>,
    /// How it sounds; the installation's voice when not given.
    #[serde(default)]
    pub voice: Option<Voice>,
    /// Which tools it may use.
    #[serde(default)]
    pub tools: ToolPolicy,
    /// Where it looks things up.
    #[serde(default)]
    #[schema(example = json!([]))]
    pub skills_book_ids: Vec<SkillsBookId>,
    /// How it remembers.
    #[serde(default)]
    pub memory: MemoryPolicy,
    /// How it converses.
    #[serde(default)]
    pub conversation: Conversation,
    /// How it reads as a prompt; its persona when not given.
    #[serde(default)]
    pub prompt: Option<Prompt>,
}

/// Which model speaks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Model {
    /// Who runs it.
    #[schema(example = "openai")]
    pub provider: String,
    /// What its provider calls it.
    #[schema(example = "gpt-5")]
    pub model: String,
    /// How freely it speaks, 0 to 2.
    #[serde(default)]
    #[schema(example = 0.7)]
    pub temperature: Option<f64>,
    /// The most tokens of one answer.
    #[serde(default)]
    #[schema(example = 1024)]
    pub max_tokens: Option<u32>,
}

/// How a character sounds. Rate, pitch and volume are factors; 1 is the voice as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Voice {
    /// Which voice: one of `/v1/voices` when it begins with `voice_`, else what a provider calls one of its own.
    #[schema(example = "warm-1")]
    pub voice_id: String,
    /// How fast, 0.25 to 4.
    #[serde(default)]
    #[schema(example = 1.0)]
    pub rate: Option<f64>,
    /// How high, 0.25 to 4.
    #[serde(default)]
    #[schema(example = 1.0)]
    pub pitch: Option<f64>,
    /// How loud, 0 to 4.
    #[serde(default)]
    #[schema(example = 1.0)]
    pub volume: Option<f64>,
}

/// Which tools a character may use: those allowed that are not denied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ToolPolicy {
    /// Their names; all tools when not given.
    #[schema(example = json!(["get_current_time"]))]
    pub allow: Option<Vec<String>>,
    /// Names that are refused even when allowed.
    #[schema(example = json!([]))]
    pub deny: Vec<String>,
}

/// How a character remembers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct MemoryPolicy {
    /// After how many days a memory that names no end of its own ends; never when not given.
    #[schema(example = 365)]
    pub retention_days: Option<u32>,
    /// Whether what is worth keeping of a conversation becomes a memory when it ends; true when not given.
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

/// How a character converses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Conversation {
    /// Whether what a device says while it is being answered ends that answer; otherwise both are answered. True when
    /// not given.
    #[schema(example = true)]
    pub barge_in: bool,
}

impl Default for Conversation {
    fn default() -> Self {
        Self { barge_in: true }
    }
}
