//! Templates and NPCs as prompts of the Model Context Protocol.

use std::collections::BTreeMap;

use switchboard_protocol::id::{NpcId, TemplateId};

use crate::{
    Persona, Prompt, PromptArgument, PromptContent, PromptMessage, PromptRole, RenderError, render,
};

/// The origin of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptSource {
    /// A template.
    Template(TemplateId),
    /// An NPC.
    Npc(NpcId),
}

/// A prompt as an entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPrompt {
    /// The template or NPC that it comes from.
    pub source: PromptSource,
    /// Its name, unique among the prompts that the organisation can read.
    pub name: String,
    /// The title for display.
    pub title: String,
    /// The purpose of the prompt.
    pub description: Option<String>,
    /// The arguments that its messages use.
    pub arguments: Vec<PromptArgument>,
}

/// A prompt with its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholePrompt {
    /// Its entry in lists.
    pub listed: ListedPrompt,
    /// Its messages, with placeholders.
    pub messages: Vec<PromptMessage>,
}

impl WholePrompt {
    /// Builds the prompt of a character. Without a written prompt, its persona becomes a single
    /// user message. `id` is the prompt's source and name.
    #[must_use]
    pub fn new(
        id: (PromptSource, String),
        character: String,
        persona: &Persona,
        prompt: Option<Prompt>,
    ) -> Self {
        let messages = match &prompt {
            Some(prompt) => prompt.messages.clone(),
            None => vec![PromptMessage {
                role: PromptRole::User,
                content: PromptContent::Text {
                    text: persona.as_text(&character),
                },
            }],
        };
        let Prompt {
            title,
            description,
            arguments,
            ..
        } = prompt.unwrap_or_default();
        let (source, name) = id;
        Self {
            listed: ListedPrompt {
                source,
                name,
                title: title.unwrap_or(character),
                description: description.or_else(|| persona.description.clone()),
                arguments,
            },
            messages,
        }
    }

    /// Its messages with the values substituted; see [`render`].
    ///
    /// # Errors
    /// [`RenderError`] if the values do not match the arguments, or the result is too large.
    pub fn render(
        &self,
        values: &BTreeMap<String, String>,
    ) -> Result<Vec<PromptMessage>, RenderError> {
        render(&self.listed.arguments, &self.messages, values)
    }
}
