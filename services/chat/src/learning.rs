//! When it is learned from conversations: when one grows too long for a prompt, and when it has ended.
//! Never: the same words learned from twice, or a conversation dropped because a model was away for a while.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{
    FutureExt as _,
    stream::{self, StreamExt as _},
};
use parking_lot::Mutex;
use switchboard_bus::ConversationKey;
use switchboard_runtime::{clock::unix_now_ms, shutdown::Shutdown};
use tracing::{debug, warn};
use uuid::Uuid;

use crate::{
    Chat,
    conversation::{Conversation, Learning},
    conversations, lesson, notes,
    question::Question,
};

/// How often it is looked for conversations that have ended.
const LOOK: Duration = Duration::from_secs(2);
/// Conversations that are learned from at the same time.
const AT_ONCE: usize = 8;
/// Whoever learns from one and is not done by then has died: two questions to a model, and room.
const HELD: Duration = Duration::from_secs(150);
/// After so many attempts in vain a conversation is forgotten unlearned; nobody keeps it for ever.
const ATTEMPTS: u32 = 5;
/// Between the first attempt in vain and the next; each further pause is four times as long. An outage of 25 minutes is outlived.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// The conversations that this node tells in short at the moment.
#[derive(Debug, Default)]
pub(crate) struct Condensing(Mutex<HashSet<ConversationKey>>);

/// One of them, until this is dropped.
struct Held<'a>(&'a Condensing, &'a ConversationKey);

impl Condensing {
    fn hold<'a>(&'a self, key: &'a ConversationKey) -> Option<Held<'a>> {
        let mut held = self.0.lock();
        let is_free = held.len() < AT_ONCE && held.insert(key.clone());
        // Made only when it is held: dropped here, it would wait for this very lock.
        is_free.then(|| Held(self, key))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.lock().remove(self.1);
    }
}

impl Learning {
    /// It was in vain; nobody tries again for a while, longer each time.
    fn failed(self, now_ms: u64) -> Self {
        let times = 4_u32.saturating_pow(self.attempts.saturating_sub(1));
        let pause = FIRST_PAUSE.saturating_mul(times).as_millis();
        Self {
            until_ms: now_ms.saturating_add(u64::try_from(pause).unwrap_or(u64::MAX)),
            ..self
        }
    }
}

/// Whether what is said in this conversation can become a memory.
pub(crate) fn will_learn(question: &Question) -> bool {
    let npc = question.npc.as_ref();
    let wants = npc.is_some_and(|npc| npc.effective.settings.memory.from_conversations);
    wants && question.subject().is_some()
}

/// Learns from conversations that have ended, until drained.
pub(crate) async fn run(chat: Arc<Chat>, shutdown: Shutdown) {
    let mut looks = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            () = shutdown.draining() => return,
        }
        match chat.bus.take_due_conversations(AT_ONCE, HELD).await {
            Ok(due) => {
                let ends: Vec<_> = due.iter().map(|kept| end(&chat, kept).boxed()).collect();
                let ends = stream::iter(ends).buffer_unordered(AT_ONCE);
                tokio::select! {
                    () = ends.collect() => {}
                    // Its hold ends, and another learns from it.
                    () = shutdown.stopping() => return,
                }
            }
            Err(error) => debug!(%error, "no ended conversations can be had at the moment"),
        }
    }
}

async fn end(chat: &Chat, kept: &switchboard_bus::Conversation) {
    let key = &kept.key;
    let Some(conversation) = conversations::read(kept) else {
        chat.conversations.change(key, |_| None).await;
        return;
    };
    // Its answer is noted when it has ended, and the conversation rests from then on.
    if conversation.is_open_since(chat.all_ended_before_ms()) {
        return;
    }
    let (id, end) = (conversation.id, conversation.next());
    if learn(chat, key, (id, end)).await {
        forget(chat, key, (id, end)).await;
    }
}

/// Drops a conversation of which everything is learned, unless it goes on.
async fn forget(chat: &Chat, key: &ConversationKey, (id, end): (Uuid, u64)) {
    let forget = |known: Option<Conversation>| {
        let mut known = known?;
        if known.id == id {
            known.forget_before(end);
        }
        (!known.exchanges.is_empty()).then_some(known)
    };
    chat.conversations.change(key, forget).await;
}

/// Tells the older half of a conversation in short when it has grown too long for a prompt. What is worth keeping of it is kept.
pub(crate) async fn condense(chat: &Chat, key: &ConversationKey, conversation: &Conversation) {
    if conversation.too_long_up_to().is_none() {
        return;
    }
    let Some(_held) = chat.condensing.hold(key) else {
        return;
    };
    // It may have been told in short just before.
    let Some(conversation) = chat.conversations.recall(key).await else {
        return;
    };
    let Some(end) = conversation.too_long_up_to() else {
        return;
    };
    if !learn(chat, key, (conversation.id, end)).await {
        return;
    }
    let summary = match &chat.providers {
        Some(providers) => {
            match notes::summary(chat, providers, key.org, (&conversation, end)).await {
                Ok(summary) => Some(summary),
                Err(error) => {
                    warn!(%error, "a long conversation stays as it is for now");
                    return;
                }
            }
        }
        None => None,
    };
    let shorten = |known: Option<Conversation>| {
        let mut known = known?;
        match &summary {
            Some(summary) => known.summarise(&conversation, summary, end),
            None if known.id == conversation.id => known.forget_before(end),
            None => {}
        }
        Some(known)
    };
    chat.conversations.change(key, shorten).await;
}

/// Learns from what was said before this exchange and is not learned yet; whether all of it is.
async fn learn(chat: &Chat, key: &ConversationKey, (id, end): (Uuid, u64)) -> bool {
    loop {
        let Some((conversation, learning)) = begin(chat, key, (id, end)).await else {
            return false;
        };
        let Some(learning) = learning else {
            return true;
        };
        let given_up = learning.attempts > ATTEMPTS;
        if given_up {
            warn!(org.id = %key.org, "a conversation is forgotten, and nothing was learned from it");
        }
        let learned = given_up || lesson::learn(chat, key.org, &conversation, learning.up_to).await;
        let note = |known: Option<Conversation>| {
            let mut known = known?;
            let Some(open) = known.learning.filter(|_| known.id == id) else {
                return Some(known);
            };
            if learned {
                known.learned = open.up_to;
                known.learning = None;
            } else {
                known.learning = Some(open.failed(unix_now_ms()));
            }
            Some(known)
        };
        if chat.conversations.change(key, note).await.is_none() || !learned {
            return false;
        }
    }
}

/// Notes up to where it is learned, before anything is: whoever takes over after a death keeps the same memories under the same
/// ids. Nothing when there is nothing to learn; no conversation when it has gone or another learns from it.
async fn begin(
    chat: &Chat,
    key: &ConversationKey,
    (id, end): (Uuid, u64),
) -> Option<(Conversation, Option<Learning>)> {
    let is_ours = AtomicBool::new(false);
    let mark = |known: Option<Conversation>| {
        let mut known = known?;
        is_ours.store(known.id == id, Ordering::Relaxed);
        if known.id != id || known.learned.max(known.first) >= end {
            return Some(known);
        }
        let open = known.learning.unwrap_or(Learning {
            up_to: end,
            attempts: 0,
            until_ms: 0,
        });
        if open.until_ms > unix_now_ms() {
            is_ours.store(false, Ordering::Relaxed);
            return Some(known);
        }
        known.learning = Some(Learning {
            attempts: open.attempts + 1,
            until_ms: unix_now_ms()
                .saturating_add(u64::try_from(HELD.as_millis()).unwrap_or(u64::MAX)),
            ..open
        });
        Some(known)
    };
    let marked = chat.conversations.change(key, mark).await?;
    if !is_ours.load(Ordering::Relaxed) {
        return None;
    }
    let is_learned = marked.learned.max(marked.first) >= end;
    let learning = marked.learning.filter(|_| !is_learned);
    Some((marked, learning))
}

#[cfg(test)]
mod tests {
    use switchboard_protocol::id::OrgId;

    use super::*;

    #[test]
    fn an_outage_of_minutes_does_not_use_the_attempts_up() {
        let (begun_ms, minute_ms) = (1_000_000, 60_000);
        let mut now_ms = begun_ms;
        let mut learning = Learning {
            up_to: 7,
            attempts: 1,
            until_ms: now_ms + 150_000,
        };
        let mut pauses = Vec::new();
        while learning.attempts < ATTEMPTS {
            let failed = learning.failed(now_ms);
            assert_eq!((failed.up_to, failed.attempts), (7, learning.attempts));
            pauses.push(failed.until_ms - now_ms);
            now_ms = failed.until_ms;
            learning = Learning {
                attempts: failed.attempts + 1,
                ..failed
            };
        }
        assert_eq!(pauses, [5_000, 20_000, 80_000, 320_000]);
        let given_up_ms = learning.failed(now_ms).until_ms;
        assert!(given_up_ms - begun_ms > 25 * minute_ms);
    }

    #[test]
    fn a_conversation_is_told_in_short_by_one_at_a_time() {
        let key = |name: usize| ConversationKey {
            org: OrgId::from_uuid(Uuid::from_u128(7)),
            name: name.to_string(),
        };
        let keys: Vec<_> = (0..=AT_ONCE).map(key).collect();
        let condensing = Condensing::default();
        let first = condensing.hold(&keys[0]);
        assert!(first.is_some() && condensing.hold(&keys[0]).is_none());
        // One who did not get it has not let it go.
        assert!(condensing.hold(&keys[0]).is_none());
        let others: Vec<_> = keys[1..].iter().map(|key| condensing.hold(key)).collect();
        assert!(others[AT_ONCE - 2].is_some() && others[AT_ONCE - 1].is_none());
        drop(first);
        assert!(condensing.hold(&keys[0]).is_some());
    }
}
