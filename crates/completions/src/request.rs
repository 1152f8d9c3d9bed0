//! Requests, independent of the provider.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::ToolCall;

/// A conversation to continue.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
    /// The tools.
    pub tools: Vec<Tool>,
    /// Whether the model may call tools. If not, tools are still sent, because earlier messages
    /// contain calls.
    pub allows_calls: bool,
    /// The provider and model to try first.
    pub preference: Option<ModelPreference>,
    /// The temperature, from 0 to 2.
    pub temperature: Option<f32>,
    /// Maximum tokens of the reply.
    pub max_tokens: Option<u32>,
}

/// The provider to try first, if it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPreference {
    /// The provider's name.
    pub provider: String,
    /// The model there; other providers use their own.
    pub model: String,
}

/// A message of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Instructions for the model.
    System(String),
    /// A message of the user.
    User(String),
    /// A message of the user with a picture.
    UserPicture {
        /// The text; may be empty.
        text: String,
        /// The picture.
        picture: Picture,
    },
    /// A message of the model.
    Assistant {
        /// The text; may be empty.
        text: String,
        /// The tool calls.
        calls: Vec<ToolCall>,
        /// The provider of the message, if known. Only that provider receives the original ids of
        /// the calls; others receive ids in a form that all accept.
        provider: Option<String>,
    },
    /// The result of a call.
    ToolResult {
        /// The call's id.
        call_id: String,
        /// The result as text.
        text: String,
    },
}

/// A picture in a message.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    /// The media type.
    pub media_type: String,
    /// The bytes. They are sent to models that see pictures.
    pub bytes: Bytes,
    /// What other models read instead.
    pub description: String,
}

impl fmt::Debug for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Picture({}, {} bytes)",
            self.media_type,
            self.bytes.len()
        )
    }
}

/// A tool that the model may call.
#[derive(Debug, Clone)]
pub struct Tool {
    /// The name.
    pub name: String,
    /// The description; omitted from the request when empty.
    pub description: String,
    /// JSON schema of the arguments. Parsed, it would take up to 85 times its text, for as long as
    /// the answer takes.
    pub parameters: Arc<RawValue>,
}
