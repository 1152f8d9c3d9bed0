//! One answer: loads the conversation, runs the model or the rules, and stores the exchange.

pub(crate) mod llm;
mod overlap;
pub(crate) mod prompt;
pub(crate) mod rendering;
pub(crate) mod retrieval;
pub(crate) mod rules;
mod sentences;
pub(crate) mod sink;
pub(crate) mod style;
pub(crate) mod tool_call;
pub(crate) mod tools;

use std::{sync::Arc, time::Duration};

use switchboard_phrases::Phrase;
use tokio::time::Instant;
use tracing::warn;

use crate::{
    Chat,
    conversation::model::{Conversation, Exchange},
    user_message::UserMessage,
};
use sink::TurnSink;
use tools::ToolSet;

/// How long an answer waits until those that it supersedes are stored.
const SUPERSEDED_TIMEOUT: Duration = Duration::from_secs(1);

/// Input of an answer.
pub(crate) struct Context<'a> {
    pub(crate) message: &'a UserMessage,
    /// The conversation without this message.
    pub(crate) conversation: Option<&'a Conversation>,
    pub(crate) tools: &'a ToolSet,
    pub(crate) deadline: Instant,
}

/// The end of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerEnd {
    Answered,
    /// An apology was sent.
    Failed,
    /// Another replica has the turn.
    LeaseLost,
}

/// Answers a message and sends the answer while it is produced.
pub(crate) async fn answer(
    chat: &Chat,
    message: &UserMessage,
    exchange: &Exchange,
    sink: &TurnSink<'_>,
) -> AnswerEnd {
    let deadline = Instant::now() + chat.turn_timeout;
    let (conversation, tools) = tokio::join!(
        open_conversation(chat, message, exchange),
        chat.services
            .tool_set((&chat.bus, &chat.approvals), message),
    );
    let tools = match tools {
        Ok(tools) => tools,
        Err(error) => {
            warn!(%error, "cannot load the services of a device");
            sink.send_apology(Phrase::ServicesUnreachable, message.language);
            return AnswerEnd::Failed;
        }
    };
    let context = Context {
        message,
        conversation: conversation.as_ref(),
        tools: &tools,
        deadline,
    };
    let end = match &chat.providers {
        Some(providers) => llm::answer(chat, providers, &context, sink).await,
        None => rules::answer(chat, &context, sink).await,
    };
    sink.flush();
    end
}

/// Stores the start of the exchange and returns the conversation before it. Waits until the
/// answers that this one supersedes are stored.
async fn open_conversation(
    chat: &Chat,
    message: &UserMessage,
    exchange: &Exchange,
) -> Option<Conversation> {
    let key = message.key();
    let new_conversation = || message.new_conversation();
    let stored = chat
        .conversations
        .upsert_exchange(&key, new_conversation, exchange);
    let mut conversation = Arc::unwrap_or_clone(stored.await?);
    if message.supersedes_others() || message.played.is_some() {
        let has_others = |conversation: &Conversation| conversation.has_open_besides(&exchange.id);
        if has_others(&conversation) {
            let settled = chat
                .conversations
                .load_when(&key, SUPERSEDED_TIMEOUT, |stored| !has_others(stored));
            conversation = settled.await.unwrap_or(conversation);
        }
        if has_others(&conversation) {
            // Their replica stopped. Close them, so that later turns do not wait again.
            let close = |stored: Option<Conversation>| {
                let mut stored = stored?;
                stored.close_besides(&exchange.id);
                Some(stored)
            };
            let closed = chat.conversations.update(&key, close).await;
            conversation = closed.map_or(conversation, Arc::unwrap_or_clone);
        }
    }
    if let Some(played) = &message.played {
        let shorten = |stored: Option<Conversation>| {
            let mut stored = stored?;
            stored.shorten_reply_before(&exchange.id, &played.message, &played.words);
            Some(stored)
        };
        let shortened = chat.conversations.update(&key, shorten).await;
        conversation = shortened.map_or(conversation, Arc::unwrap_or_clone);
    }
    conversation.remove(&exchange.id);
    // Their replica may have died before it stored their end.
    conversation.close_started_before(chat.oldest_open_turn_ms());
    Some(conversation)
}

/// Counts an answer that has ended, and stores its exchange, even when it is interrupted.
pub(crate) async fn close(
    chat: &Chat,
    message: &UserMessage,
    sink: TurnSink<'_>,
    is_interrupted: bool,
) -> Option<Arc<Conversation>> {
    chat.usage.count_turn(message.usage_of());
    let exchange = sink.into_exchange(is_interrupted);
    let new_conversation = || message.new_conversation();
    chat.conversations
        .upsert_exchange(&message.key(), new_conversation, &exchange)
        .await
}
