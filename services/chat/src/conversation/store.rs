//! Conversations on the bus, where all replicas find them.
//! Invariant: updates compare versions, so an exchange that another replica stored is never lost.

use std::time::Duration;

use bytes::Bytes;
use switchboard_bus::{Bus, BusError, ConversationKey, SaveOutcome};
use switchboard_runtime::clock::unix_now_ms;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::conversation::model::{Conversation, Exchange};

/// Attempts to update a conversation that others update at the same time.
const MAX_ATTEMPTS: usize = 5;

/// Pauses between two reads of a conversation that is about to change.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(20);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(160);

/// Access to the stored conversations.
#[derive(Clone)]
pub(crate) struct ConversationStore {
    bus: Bus,
    /// A conversation without a message for this long has ended.
    idle_timeout: Duration,
}

impl ConversationStore {
    pub(crate) const fn new(bus: Bus, idle_timeout: Duration) -> Self {
        Self { bus, idle_timeout }
    }

    /// The stored conversation; `None` while the bus is unavailable, too.
    pub(crate) async fn load(&self, key: &ConversationKey) -> Option<Conversation> {
        let stored = self.bus.conversation(key).await;
        let stored = stored.inspect_err(|error| warn!(%error, "cannot load a conversation"));
        parse(&stored.ok()??)
    }

    /// The conversation once the condition holds, or as it is at the timeout; `None` while the
    /// bus is unavailable.
    pub(crate) async fn load_when(
        &self,
        key: &ConversationKey,
        timeout: Duration,
        condition: impl Fn(&Conversation) -> bool,
    ) -> Option<Conversation> {
        let deadline = Instant::now() + timeout;
        let mut interval = MIN_POLL_INTERVAL;
        loop {
            let conversation = self.load(key).await?;
            if condition(&conversation) || Instant::now() >= deadline {
                return Some(conversation);
            }
            sleep_until(deadline.min(Instant::now() + interval)).await;
            interval = (interval * 2).min(MAX_POLL_INTERVAL);
        }
    }

    /// Stores an exchange that has started or ended; returns the conversation with it.
    pub(crate) async fn upsert_exchange(
        &self,
        key: &ConversationKey,
        new_conversation: impl Fn() -> Conversation,
        exchange: &Exchange,
    ) -> Option<Conversation> {
        self.update(key, |conversation| {
            let mut conversation = conversation.unwrap_or_else(&new_conversation);
            conversation.upsert(exchange.clone());
            Some(conversation)
        })
        .await
    }

    /// Updates a conversation, again when another replica updated it in between. `None` from
    /// `change` deletes it.
    pub(crate) async fn update(
        &self,
        key: &ConversationKey,
        change: impl Fn(Option<Conversation>) -> Option<Conversation>,
    ) -> Option<Conversation> {
        for _ in 0..MAX_ATTEMPTS {
            match self.try_update(key, &change).await {
                Ok(Attempt::Done(conversation)) => return conversation,
                Ok(Attempt::Conflict) => debug!("a conversation was updated concurrently"),
                Err(error) => {
                    warn!(%error, "cannot store a conversation");
                    return None;
                }
            }
        }
        warn!("cannot store a conversation: concurrent updates in every attempt");
        None
    }

    async fn try_update(
        &self,
        key: &ConversationKey,
        change: impl Fn(Option<Conversation>) -> Option<Conversation>,
    ) -> Result<Attempt, BusError> {
        let stored = self.bus.conversation(key).await?;
        let version = stored.as_ref().map(|stored| stored.version);
        let Some(changed) = change(stored.as_ref().and_then(parse)) else {
            let Some(version) = version else {
                return Ok(Attempt::Done(None));
            };
            let is_deleted = self.bus.delete_conversation(key, version).await?;
            return Ok(if is_deleted {
                Attempt::Done(None)
            } else {
                Attempt::Conflict
            });
        };
        let bytes = Bytes::from(serde_json::to_vec(&changed).unwrap_or_default());
        let due_in = changed.due_in(unix_now_ms(), self.idle_timeout);
        let stored = self.bus.save_conversation(key, version, bytes, due_in);
        Ok(match stored.await? {
            SaveOutcome::Saved(_) => Attempt::Done(Some(changed)),
            SaveOutcome::Conflict => Attempt::Conflict,
        })
    }
}

enum Attempt {
    Done(Option<Conversation>),
    Conflict,
}

/// Parses a stored conversation; `None` when another release stored it in another form.
pub(crate) fn parse(stored: &switchboard_bus::Conversation) -> Option<Conversation> {
    let parsed = serde_json::from_slice(&stored.bytes);
    parsed
        .inspect_err(
            |error| warn!(%error, "cannot parse a stored conversation; starting a new one"),
        )
        .ok()
}
