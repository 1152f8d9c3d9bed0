//! One answer: what it is found with, who finds it, and what is kept of it afterwards.
//! Never: words for somebody who does not want them any more, or an answer that nobody remembers.

use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use crate::{
    Chat, by_model, by_rules,
    conversation::{Conversation, Exchange},
    embedded::{Language, Phrases},
    hearer::Hearer,
    question::Question,
    toolbox::Toolbox,
};

/// How long an answer waits until it is noted how far those before it came that it ends.
const OTHERS_END: Duration = Duration::from_secs(1);

/// What an answer is found with.
pub(crate) struct Context<'a> {
    pub(crate) question: &'a Question,
    /// What was said before.
    pub(crate) conversation: Option<&'a Conversation>,
    pub(crate) toolbox: &'a Toolbox,
    /// When it must be found.
    pub(crate) deadline: Instant,
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Answered,
    /// It was said that there is none.
    Failed,
    /// Somebody else gives it.
    LetGo,
}

impl Context<'_> {
    /// Our own sentences, in the language of this text.
    pub(crate) fn phrases(&self, text: &str) -> Phrases {
        phrases(self.question, text)
    }
}

/// Our own sentences, in the language of this text or of its NPC.
pub(crate) fn phrases(question: &Question, text: &str) -> Phrases {
    let npc = question.npc.as_ref();
    let locale = npc.and_then(|npc| npc.effective.settings.locale.as_deref());
    Phrases(Language::of(text, locale))
}

/// Finds an answer, and says it while it is found.
pub(crate) async fn answer(
    chat: &Chat,
    question: &Question,
    exchange: &Exchange,
    hearer: &Hearer<'_>,
) -> End {
    let deadline = Instant::now() + chat.turn_timeout;
    let (conversation, toolbox) = tokio::join!(
        recall(chat, question, exchange),
        chat.registrations.open(&chat.bus, question),
    );
    let toolbox = match toolbox {
        Ok(toolbox) => toolbox,
        Err(error) => {
            warn!(%error, "what a device offers could not be read");
            hearer.apologise(phrases(question, &question.text).unreachable());
            return End::Failed;
        }
    };
    let context = Context {
        question,
        conversation: conversation.as_ref(),
        toolbox: &toolbox,
        deadline,
    };
    let end = match &chat.providers {
        Some(providers) => by_model::answer(chat, providers, &context, hearer).await,
        None => by_rules::answer(chat, &context, hearer).await,
    };
    hearer.flush();
    end
}

/// What was said before. The question is noted at once, so that whoever is asked next knows of it; and how far the answers came that
/// this one ends is waited for.
async fn recall(chat: &Chat, question: &Question, exchange: &Exchange) -> Option<Conversation> {
    let key = question.key();
    let begin = || question.begin();
    let mut known = chat.conversations.note(&key, begin, exchange).await?;
    if question.ends_others() {
        let others = |known: &Conversation| known.is_open_beside(&exchange.id);
        if others(&known) {
            let settled = chat
                .conversations
                .recall_when(&key, OTHERS_END, |known| !others(known));
            known = settled.await.unwrap_or(known);
        }
        if others(&known) {
            // Whoever gave them has died: nobody waits for them again.
            let end = |known: Option<Conversation>| {
                let mut known = known?;
                known.end_beside(&exchange.id);
                Some(known)
            };
            known = chat.conversations.change(&key, end).await.unwrap_or(known);
        }
    }
    known.without(&exchange.id);
    // Whoever gave those may have died before noting their ends.
    known.end_begun_before(chat.all_ended_before_ms());
    Some(known)
}

/// Counts an answer that has ended, and keeps what was said where the next turn finds it, what was said in vain, too.
pub(crate) async fn close(
    chat: &Chat,
    question: &Question,
    hearer: Hearer<'_>,
    is_interrupted: bool,
) -> Option<Conversation> {
    chat.usage.count_turn(question.org);
    let exchange = hearer.into_exchange(is_interrupted);
    let begin = || question.begin();
    chat.conversations
        .note(&question.key(), begin, &exchange)
        .await
}
