//! What is asked of a language model, whichever it is.
//! Never: anything that one provider alone understands.

use serde_json::Value;

use crate::ToolCall;

/// A conversation that wants to be continued.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// What was said so far, the oldest first.
    pub messages: Vec<Message>,
    /// What the model may call.
    pub tools: Vec<Tool>,
    /// Whether it may call anything now; otherwise tools are named, so that the conversation can be understood, and no more.
    pub may_call: bool,
    /// Who is asked first, and for which model.
    pub preferred: Option<Preferred>,
    /// How freely it speaks, from 0 to 2.
    pub temperature: Option<f32>,
    /// The most tokens of a reply.
    pub max_tokens: Option<u32>,
}

/// Who is asked first, when a provider of this name is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preferred {
    /// The provider's name.
    pub provider: String,
    /// The model that is asked there; the other providers are asked for their own.
    pub model: String,
}

/// One thing that was said.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// What the model is told about itself.
    System(String),
    /// What it is asked.
    User(String),
    /// What it said, and what it called.
    Assistant {
        /// The words; there may be none.
        text: String,
        /// The calls.
        calls: Vec<ToolCall>,
        /// The provider whose model it was, if it is known: the calls have its ids, and others get them as every provider
        /// takes them.
        provider: Option<String>,
    },
    /// What a call came to.
    ToolResult {
        /// The call's id.
        call_id: String,
        /// What it came to, in words.
        text: String,
    },
}

/// Something that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it is for; left out when it is empty.
    pub description: String,
    /// A JSON schema of its arguments.
    pub parameters: Value,
}
