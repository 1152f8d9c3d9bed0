//! The body of a chat request, and its validation.

use serde::Deserialize;
use switchboard_protocol::id::{ConversationId, PictureId};
use switchboard_runtime::problem::Problem;
use utoipa::ToSchema;
use uuid::Uuid;

/// Maximum bytes of a message.
pub(crate) const MAX_TEXT_BYTES: usize = 16 * 1024;
/// The field with the id of a picture.
pub(crate) const PICTURE_ID: &str = "picture_id";
/// Maximum bytes of a subject.
pub(crate) const MAX_SUBJECT_BYTES: usize = 200;

/// A message to an NPC.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatRequest {
    /// The message: at least one character other than white space. It may be empty with a picture.
    #[schema(example = "What time is it?")]
    text: String,
    /// The conversation that it continues; a new one when absent. The last event of an answer
    /// contains it.
    #[serde(default)]
    conversation_id: Option<ConversationId>,
    /// The user who sends it, as memories name them. Memories extracted from the conversation have
    /// this subject; without one, none are extracted.
    #[serde(default)]
    #[schema(example = "user:anna")]
    subject: Option<String>,
    /// A picture of `/v1/pictures` that the message is about, of at most 4 MiB.
    #[serde(default)]
    picture_id: Option<PictureId>,
}

/// A valid request.
pub(super) struct ValidRequest {
    pub(super) text: String,
    pub(super) conversation: ConversationId,
    pub(super) subject: Option<String>,
    pub(super) picture: Option<PictureId>,
}

impl TryFrom<ChatRequest> for ValidRequest {
    type Error = Problem;

    fn try_from(request: ChatRequest) -> Result<Self, Problem> {
        let ChatRequest {
            text,
            conversation_id,
            subject,
            picture_id,
        } = request;
        let is_empty = text.trim().is_empty() && picture_id.is_none();
        if is_empty || text.len() > MAX_TEXT_BYTES {
            let detail = format!(
                "`text` must be 1 to {MAX_TEXT_BYTES} bytes long and contain more than white space."
            );
            return Err(invalid("text", detail));
        }
        let fits = |subject: &String| {
            (1..=MAX_SUBJECT_BYTES).contains(&subject.len()) && !subject.contains(char::is_control)
        };
        if !subject.as_ref().is_none_or(fits) {
            let detail = format!(
                "`subject` must be 1 to {MAX_SUBJECT_BYTES} bytes long and contain no control characters."
            );
            return Err(invalid("subject", detail));
        }
        let conversation =
            conversation_id.unwrap_or_else(|| ConversationId::from_uuid(Uuid::now_v7()));
        Ok(Self {
            text,
            conversation,
            subject,
            picture: picture_id,
        })
    }
}

/// The problem of a member of the body.
pub(crate) fn invalid(member: &str, detail: String) -> Problem {
    Problem::invalid_body(format!("/{member}"), detail)
}
