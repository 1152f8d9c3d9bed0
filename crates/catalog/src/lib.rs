//! Settings of templates and NPCs, and how they are rendered as prompts and resources.
//! Invariant: values in, values out; this crate performs no I/O and contains no SQL.

mod card_rest;
mod effective;
pub mod merge_patch;
mod persona;
pub mod placeholders;
mod prompt;
mod prompts;
mod resources;
mod settings;
mod uri_template;

pub use card_rest::CardRest;
pub use effective::{Effective, NpcSettings, apply_overrides, overridden_pictures};
pub use persona::Persona;
pub use prompt::{
    MAX_ATTACHED_BYTES, MAX_RENDERED_BYTES, Prompt, PromptArgument, PromptContent, PromptMessage,
    PromptRole, RenderError, render,
};
pub use prompts::{ListedPrompt, PromptSource, WholePrompt};
pub use resources::{ListedResource, substitute_uri_values};
pub use settings::{Conversation, MemoryPolicy, Model, TemplateSettings, ToolPolicy, Voice};
pub use uri_template::{MAX_URI_BYTES, UriError, UriTemplate, UriValues};
