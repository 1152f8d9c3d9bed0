//! The prompt of a template: arguments, messages, and their rendering with values.
//! Invariant: a substituted value is not searched for placeholders.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use switchboard_protocol::id::PictureId;
use utoipa::ToSchema;

use crate::placeholders::{self, Segment};

/// The maximum size of a rendered prompt, all messages together. Bounds the growth by a long value
/// with many placeholders.
pub const MAX_RENDERED_BYTES: usize = 1024 * 1024;
/// The maximum size of all pictures and resources of a prompt, as stored; each occurrence counts.
/// Bounds the response that contains them all.
pub const MAX_ATTACHED_BYTES: u64 = 12 * 1024 * 1024;

/// A template's prompt as its author wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Prompt {
    /// The name, unique in the organisation: 1 to 64 of `[A-Za-z0-9_.-]`. The template's id if not
    /// given.
    #[schema(example = "greet")]
    pub name: Option<String>,
    /// The title for display; the template's name if not given.
    #[schema(example = "A greeting")]
    pub title: Option<String>,
    /// The purpose of the prompt.
    #[schema(example = "Bello greets a guest.")]
    pub description: Option<String>,
    /// The arguments; their names are unique.
    pub arguments: Vec<PromptArgument>,
    /// The messages.
    pub messages: Vec<PromptMessage>,
}

/// An argument of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PromptArgument {
    /// The name in placeholders: 1 to 64 of `[A-Za-z0-9_.-]`.
    #[schema(example = "who")]
    pub name: String,
    /// The title for display.
    #[serde(default)]
    #[schema(example = "Name")]
    pub title: Option<String>,
    /// The meaning of the argument.
    #[serde(default)]
    #[schema(example = "Who is greeted.")]
    pub description: Option<String>,
    /// Whether the prompt cannot be rendered without it.
    #[serde(default)]
    #[schema(example = true)]
    pub required: bool,
    /// The question to the user if the value is missing and the client supports elicitation.
    #[serde(default)]
    #[schema(example = "Whom shall Bello greet?")]
    pub question: Option<String>,
    /// Suggested values; other values are accepted too.
    #[serde(default)]
    #[schema(example = json!(["Anna", "Ben"]))]
    pub values: Vec<String>,
}

/// A message of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PromptMessage {
    /// The author of the message.
    pub role: PromptRole,
    /// The content; texts and URIs can contain placeholders.
    pub content: PromptContent,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = "user")]
#[serde(rename_all = "lowercase")]
pub enum PromptRole {
    /// The user.
    User,
    /// The model.
    Assistant,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum PromptContent {
    /// Text.
    Text {
        /// The text.
        #[schema(example = "Greet {{who}} and bark once.")]
        text: String,
    },
    /// A picture.
    Image {
        /// The id of the picture.
        picture_id: PictureId,
    },
    /// The resource at a URI.
    Resource {
        /// The URI.
        #[schema(example = "bello://friends/{{who}}")]
        uri: String,
    },
}

impl PromptContent {
    /// The picture, if the content is one.
    #[must_use]
    pub const fn picture(&self) -> Option<PictureId> {
        match self {
            Self::Image { picture_id } => Some(*picture_id),
            Self::Text { .. } | Self::Resource { .. } => None,
        }
    }

    /// The name and value of the field that can contain placeholders.
    #[must_use]
    pub fn template_text(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Text { text } => Some(("text", text)),
            Self::Resource { uri } => Some(("uri", uri)),
            Self::Image { .. } => None,
        }
    }
}

/// The reason why a prompt cannot be rendered with the given values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A required argument has no value.
    #[error("the argument `{0}` is required")]
    Missing(String),
    /// A value without an argument of that name.
    #[error("the prompt has no argument `{0}`")]
    Unknown(String),
    /// The rendered prompt exceeds [`MAX_RENDERED_BYTES`].
    #[error("with these values the prompt exceeds {MAX_RENDERED_BYTES} bytes")]
    TooLarge,
}

/// Substitutes the values in the messages. Optional arguments without a value are empty;
/// placeholders that name no argument remain.
///
/// # Errors
/// [`RenderError`] if the values do not match the arguments, or the result is too large.
pub fn render(
    arguments: &[PromptArgument],
    messages: &[PromptMessage],
    values: &BTreeMap<String, String>,
) -> Result<Vec<PromptMessage>, RenderError> {
    let declared = |name: &str| arguments.iter().any(|argument| argument.name == name);
    if let Some(name) = values.keys().find(|name| !declared(name)) {
        return Err(RenderError::Unknown(name.clone()));
    }
    let missing =
        |argument: &&PromptArgument| argument.required && !values.contains_key(&argument.name);
    if let Some(argument) = arguments.iter().find(missing) {
        return Err(RenderError::Missing(argument.name.clone()));
    }
    let value = |name: &str| match values.get(name) {
        Some(value) => Some(value.as_str()),
        None => declared(name).then_some(""),
    };
    let mut bytes_left = MAX_RENDERED_BYTES;
    let mut substitute = |text: &str| {
        let filled =
            placeholders::substitute(text, bytes_left, value).ok_or(RenderError::TooLarge)?;
        bytes_left = bytes_left.saturating_sub(filled.len());
        Ok(filled)
    };
    let render_message = |message: &PromptMessage| {
        let content = match &message.content {
            PromptContent::Text { text } => PromptContent::Text {
                text: substitute(text)?,
            },
            PromptContent::Resource { uri } => PromptContent::Resource {
                uri: substitute(uri)?,
            },
            PromptContent::Image { picture_id } => PromptContent::Image {
                picture_id: *picture_id,
            },
        };
        Ok(PromptMessage {
            role: message.role,
            content,
        })
    };
    messages.iter().map(render_message).collect()
}

impl Prompt {
    /// The first placeholder that names no argument: index of the message, field, and name.
    #[must_use]
    pub fn undeclared_placeholder(&self) -> Option<(usize, &'static str, &str)> {
        let declared = |name: &str| self.arguments.iter().any(|argument| argument.name == name);
        self.messages
            .iter()
            .enumerate()
            .find_map(|(index, message)| {
                let (field, text) = message.content.template_text()?;
                placeholders::segments(text).find_map(|segment| match segment {
                    Segment::Placeholder { name, .. } if !declared(name) => {
                        Some((index, field, name))
                    }
                    _ => None,
                })
            })
    }

    /// The pictures in its messages, each with the index of the message.
    pub fn pictures(&self) -> impl Iterator<Item = (usize, PictureId)> {
        self.messages
            .iter()
            .enumerate()
            .filter_map(|(index, message)| Some((index, message.content.picture()?)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn prompt() -> Prompt {
        serde_json::from_value(json!({
            "arguments": [{"name": "who", "required": true}, {"name": "what"}],
            "messages": [
                {"role": "user", "content": {"type": "text", "text": "{{who}}, {{ what }}! {{who}}"}},
                {"role": "assistant", "content": {"type": "resource", "uri": "notes://{{what}}"}},
            ],
        }))
        .unwrap()
    }

    fn values(pairs: &Value) -> BTreeMap<String, String> {
        serde_json::from_value(pairs.clone()).unwrap()
    }

    #[test]
    fn rendering_substitutes_values() {
        fn check(given: Value, expected: Result<[&str; 2], RenderError>) {
            let prompt = prompt();
            let rendered = render(&prompt.arguments, &prompt.messages, &values(&given));
            let texts = rendered.map(|messages| {
                let text =
                    |message: &PromptMessage| message.content.template_text().unwrap().1.to_owned();
                messages.iter().map(text).collect::<Vec<_>>()
            });
            assert_eq!(
                texts,
                expected.map(|two| two.map(str::to_owned).to_vec()),
                "{given}"
            );
        }
        check(
            json!({"who": "Bello", "what": "sit"}),
            Ok(["Bello, sit! Bello", "notes://sit"]),
        );
        check(json!({"who": "Bello"}), Ok(["Bello, ! Bello", "notes://"]));
        check(
            json!({"who": "{{what}}", "what": "{{who}}"}),
            Ok(["{{what}}, {{who}}! {{what}}", "notes://{{who}}"]),
        );
        check(
            json!({"what": "sit"}),
            Err(RenderError::Missing("who".into())),
        );
        check(
            json!({"who": "a", "where": "b"}),
            Err(RenderError::Unknown("where".into())),
        );
        check(
            json!({"who": "x".repeat(MAX_RENDERED_BYTES / 2)}),
            Err(RenderError::TooLarge),
        );
    }

    #[test]
    fn undeclared_placeholder_is_found() {
        fn check(text: &str, expected: Option<&str>) {
            let mut prompt = prompt();
            prompt.messages[1].content = PromptContent::Text {
                text: text.to_owned(),
            };
            let found = prompt.undeclared_placeholder();
            assert_eq!(found, expected.map(|name| (1, "text", name)), "{text}");
        }
        check("{{who}} {{ what }}", None);
        check("no placeholder: {who} {{who", None);
        check("{{who}} {{Who}}", Some("Who"));
        check("{{}}", Some(""));
        check("{{two words}}", Some("two words"));
    }

    #[test]
    fn content_is_tagged_by_type() {
        fn check(content: Value, valid: bool) {
            let read = serde_json::from_value::<PromptContent>(content.clone());
            assert_eq!(read.is_ok(), valid, "{content}");
            if let Ok(read) = read {
                assert_eq!(serde_json::to_value(&read).unwrap(), content);
            }
        }
        let picture = PictureId::from_uuid(uuid::Uuid::from_u128(7));
        check(json!({"type": "text", "text": "a"}), true);
        check(json!({"type": "image", "picture_id": picture}), true);
        check(json!({"type": "resource", "uri": "a:b"}), true);
        check(json!({"type": "audio", "uri": "a:b"}), false);
        check(json!({"type": "image", "picture_id": "tpl_1"}), false);
        check(json!({"text": "a"}), false);
    }
}
