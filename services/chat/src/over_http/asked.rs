//! The body of what somebody says over HTTP, and whether it can be answered.
//! Never: words without a conversation.

use serde::Deserialize;
use switchboard_protocol::id::ConversationId;
use switchboard_runtime::problem::Problem;
use utoipa::ToSchema;
use uuid::Uuid;

/// The most bytes that are said at a time.
pub(crate) const TEXT_BYTES: usize = 16 * 1024;
/// The most bytes of whom it is that says something.
pub(crate) const SUBJECT_BYTES: usize = 200;

/// Something said to an NPC.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewWords {
    /// What is said: at least one character that is no space.
    #[schema(example = "What time is it?")]
    text: String,
    /// The conversation that it belongs to; a new one when not given. Answers end with it.
    #[serde(default)]
    conversation_id: Option<ConversationId>,
    /// Who says it, as memories name them. What is worth keeping of the conversation is remembered of them; nothing is when not given.
    #[serde(default)]
    #[schema(example = "user:anna")]
    subject: Option<String>,
}

/// The same, found good.
pub(super) struct Asked {
    pub(super) text: String,
    pub(super) conversation: ConversationId,
    pub(super) subject: Option<String>,
}

impl TryFrom<NewWords> for Asked {
    type Error = Problem;

    fn try_from(words: NewWords) -> Result<Self, Problem> {
        let NewWords {
            text,
            conversation_id,
            subject,
        } = words;
        if text.trim().is_empty() || text.len() > TEXT_BYTES {
            let detail =
                format!("`text` must be 1 to {TEXT_BYTES} bytes long, and not of spaces alone.");
            return Err(invalid("text", detail));
        }
        let fits = |subject: &String| {
            (1..=SUBJECT_BYTES).contains(&subject.len()) && !subject.contains(char::is_control)
        };
        if !subject.as_ref().is_none_or(fits) {
            let detail = format!("`subject` must be 1 to {SUBJECT_BYTES} bytes long, on one line.");
            return Err(invalid("subject", detail));
        }
        let conversation =
            conversation_id.unwrap_or_else(|| ConversationId::from_uuid(Uuid::now_v7()));
        Ok(Self {
            text,
            conversation,
            subject,
        })
    }
}

fn invalid(field: &str, detail: String) -> Problem {
    Problem::new(
        axum::http::StatusCode::UNPROCESSABLE_ENTITY,
        "invalid_body",
        "Invalid body",
        detail,
    )
    .with("field", field)
}
