//! How a template reads as a prompt: its arguments, its messages, and the messages with values put in.
//! Never: an argument's value searched for placeholders again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use switchboard_protocol::id::PictureId;
use utoipa::ToSchema;

use crate::placeholders::{self, Segment};

/// The most bytes that a prompt has once the values are put in, all messages together. Protects against a long
/// value that is asked for many times.
pub const RENDERED_LIMIT_BYTES: usize = 1024 * 1024;
/// The most bytes that the pictures and resources which a prompt shows have together, as they are stored; one that
/// is shown twice counts twice. Protects whoever reads it: all of it goes into one answer.
pub const SHOWN_LIMIT_BYTES: u64 = 12 * 1024 * 1024;

/// A prompt as its author wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Prompt {
    /// Unique in the organisation: 1 to 64 of `[A-Za-z0-9_.-]`. The template's id when not given.
    #[schema(example = "greet")]
    pub name: Option<String>,
    /// What people call it; the template's name when not given.
    #[schema(example = "A greeting")]
    pub title: Option<String>,
    /// What it is for.
    #[schema(example = "Bello greets somebody.")]
    pub description: Option<String>,
    /// What it asks for; names are unique.
    pub arguments: Vec<PromptArgument>,
    /// What is said.
    pub messages: Vec<PromptMessage>,
}

/// Something that a prompt asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PromptArgument {
    /// What placeholders call it: 1 to 64 of `[A-Za-z0-9_.-]`.
    #[schema(example = "who")]
    pub name: String,
    /// What people call it.
    #[serde(default)]
    #[schema(example = "Name")]
    pub title: Option<String>,
    /// What it means.
    #[serde(default)]
    #[schema(example = "Who is greeted.")]
    pub description: Option<String>,
    /// Whether the prompt cannot be read without it.
    #[serde(default)]
    #[schema(example = true)]
    pub required: bool,
    /// What to ask the user when it is missing and the client can ask.
    #[serde(default)]
    #[schema(example = "Whom shall Bello greet?")]
    pub question: Option<String>,
    /// Values to suggest; others are taken as well.
    #[serde(default)]
    #[schema(example = json!(["Anna", "Ben"]))]
    pub values: Vec<String>,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PromptMessage {
    /// Who says it.
    pub role: PromptRole,
    /// What is said; texts and URIs may have placeholders.
    pub content: PromptContent,
}

/// Who says a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = "user")]
#[serde(rename_all = "lowercase")]
pub enum PromptRole {
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// What a message holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum PromptContent {
    /// Words.
    Text {
        /// The words.
        #[schema(example = "Greet {{who}} and bark once.")]
        text: String,
    },
    /// A picture.
    Image {
        /// Which one.
        picture_id: PictureId,
    },
    /// What stands under a URI.
    Resource {
        /// The URI.
        #[schema(example = "bello://friends/{{who}}")]
        uri: String,
    },
}

impl PromptContent {
    /// The picture that it shows.
    #[must_use]
    pub const fn picture(&self) -> Option<PictureId> {
        match self {
            Self::Image { picture_id } => Some(*picture_id),
            Self::Text { .. } | Self::Resource { .. } => None,
        }
    }

    /// The text in which placeholders stand, and the name of its field.
    #[must_use]
    pub fn fillable(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Text { text } => Some(("text", text)),
            Self::Resource { uri } => Some(("uri", uri)),
            Self::Image { .. } => None,
        }
    }
}

/// Why a prompt could not be rendered with these values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A required argument has no value.
    #[error("the argument `{0}` is required")]
    Missing(String),
    /// A value for something that the prompt does not ask for.
    #[error("the prompt has no argument `{0}`")]
    Unknown(String),
    /// With these values the prompt has more than [`RENDERED_LIMIT_BYTES`].
    #[error("with these values the prompt has more than {RENDERED_LIMIT_BYTES} bytes")]
    TooLarge,
}

/// Messages with these values put in. Optional arguments without a value are empty; placeholders that are no
/// argument stay as they are written.
///
/// # Errors
/// [`RenderError`] when the values do not fit the arguments, or the result is too large.
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
    let mut left = RENDERED_LIMIT_BYTES;
    let mut fill = |text: &str| {
        let filled = placeholders::substitute(text, left, value).ok_or(RenderError::TooLarge)?;
        left = left.saturating_sub(filled.len());
        Ok(filled)
    };
    let render_one = |message: &PromptMessage| {
        let content = match &message.content {
            PromptContent::Text { text } => PromptContent::Text { text: fill(text)? },
            PromptContent::Resource { uri } => PromptContent::Resource { uri: fill(uri)? },
            PromptContent::Image { picture_id } => PromptContent::Image {
                picture_id: *picture_id,
            },
        };
        Ok(PromptMessage {
            role: message.role,
            content,
        })
    };
    messages.iter().map(render_one).collect()
}

impl Prompt {
    /// The first placeholder that is no argument: in which message, in which field, and what it is called.
    #[must_use]
    pub fn undeclared(&self) -> Option<(usize, &'static str, &str)> {
        let declared = |name: &str| self.arguments.iter().any(|argument| argument.name == name);
        self.messages
            .iter()
            .enumerate()
            .find_map(|(index, message)| {
                let (field, text) = message.content.fillable()?;
                placeholders::segments(text).find_map(|segment| match segment {
                    Segment::Placeholder { name, .. } if !declared(name) => {
                        Some((index, field, name))
                    }
                    _ => None,
                })
            })
    }

    /// The pictures that its messages show, and in which message each stands.
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
    fn values_are_put_in() {
        fn check(given: Value, expected: Result<[&str; 2], RenderError>) {
            let prompt = prompt();
            let rendered = render(&prompt.arguments, &prompt.messages, &values(&given));
            let texts = rendered.map(|messages| {
                let text =
                    |message: &PromptMessage| message.content.fillable().unwrap().1.to_owned();
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
            json!({"who": "x".repeat(RENDERED_LIMIT_BYTES / 2)}),
            Err(RenderError::TooLarge),
        );
    }

    #[test]
    fn undeclared_placeholders_are_found() {
        fn check(text: &str, expected: Option<&str>) {
            let mut prompt = prompt();
            prompt.messages[1].content = PromptContent::Text {
                text: text.to_owned(),
            };
            let found = prompt.undeclared();
            assert_eq!(found, expected.map(|name| (1, "text", name)), "{text}");
        }
        check("{{who}} {{ what }}", None);
        check("no placeholder: {who} {{who", None);
        check("{{who}} {{Who}}", Some("Who"));
        check("{{}}", Some(""));
        check("{{two words}}", Some("two words"));
    }

    #[test]
    fn content_names_its_type() {
        fn check(content: Value, good: bool) {
            let read = serde_json::from_value::<PromptContent>(content.clone());
            assert_eq!(read.is_ok(), good, "{content}");
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
