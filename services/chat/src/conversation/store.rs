//! Conversations on the bus, where all replicas find them.
//! Invariant: updates compare versions, so an exchange that another replica stored is never lost, and
//! nothing is taken from a conversation that was deleted.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use switchboard_bus::{Bus, BusError, ConversationKey, SaveOutcome};
use switchboard_runtime::{budget::Budgets, clock::unix_now_ms};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::conversation::{
    latest::LatestConversations,
    model::{Conversation, Exchange},
};

/// Attempts to update a conversation that others update at the same time.
const MAX_ATTEMPTS: usize = 5;

/// Pauses between two reads of a conversation that is about to change.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(20);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(160);

/// Access to the stored conversations.
pub(crate) struct ConversationStore {
    bus: Bus,
    /// A conversation without a message for this long has ended.
    idle_timeout: Duration,
    latest: LatestConversations,
}

impl ConversationStore {
    pub(crate) fn new(bus: Bus, idle_timeout: Duration, budgets: &Budgets) -> Self {
        Self {
            bus,
            idle_timeout,
            latest: LatestConversations::new(budgets),
        }
    }

    /// Forgets conversations in memory that had no update for a while: they may have ended.
    pub(crate) fn sweep(&self) {
        self.latest.sweep();
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
    ) -> Option<Arc<Conversation>> {
        self.update(key, |conversation| {
            let mut conversation = conversation.unwrap_or_else(&new_conversation);
            conversation.upsert(exchange.clone());
            Some(conversation)
        })
        .await
    }

    /// Updates a conversation, again when another replica updated it in between. `None` from
    /// `change` deletes it. `change` may run several times, first on an outdated state; only its
    /// last run counts.
    pub(crate) async fn update(
        &self,
        key: &ConversationKey,
        change: impl Fn(Option<Conversation>) -> Option<Conversation>,
    ) -> Option<Arc<Conversation>> {
        let mut stored = match self.latest.take(key) {
            Some((version, conversation)) => Stored {
                version: Some(version),
                conversation: Some(conversation),
            },
            None => match self.bus.conversation(key).await {
                Ok(stored) => stored.into(),
                Err(error) => {
                    warn!(%error, "cannot load a conversation");
                    return None;
                }
            },
        };
        for _ in 0..MAX_ATTEMPTS {
            match self.try_update(key, stored, &change).await {
                Ok(Attempt::Done(conversation)) => return conversation,
                Ok(Attempt::Conflict(current)) => {
                    debug!("a conversation was updated concurrently");
                    stored = current;
                }
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
        stored: Stored,
        change: impl Fn(Option<Conversation>) -> Option<Conversation>,
    ) -> Result<Attempt, BusError> {
        let Stored {
            version,
            conversation,
        } = stored;
        let conversation = conversation.map(Arc::unwrap_or_clone);
        let Some(changed) = change(conversation) else {
            let Some(version) = version else {
                return Ok(Attempt::Done(None));
            };
            let is_deleted = self.bus.delete_conversation(key, version).await?;
            return Ok(if is_deleted {
                Attempt::Done(None)
            } else {
                Attempt::Conflict(self.bus.conversation(key).await?.into())
            });
        };
        let json = Bytes::from(serde_json::to_vec(&changed).unwrap_or_default());
        let (bytes, conversation) = (json.len(), Arc::new(changed));
        let due_in = conversation.due_in(unix_now_ms(), self.idle_timeout);
        let saved = self.bus.save_conversation(key, version, json, due_in);
        Ok(match saved.await? {
            SaveOutcome::Saved(version) => {
                let latest = Arc::clone(&conversation);
                self.latest.insert(key.clone(), version, latest, bytes);
                Attempt::Done(Some(conversation))
            }
            SaveOutcome::Conflict(current) => Attempt::Conflict(current.into()),
        })
    }
}

/// A stored conversation, if there is one that can be parsed, and its version.
struct Stored {
    version: Option<u64>,
    conversation: Option<Arc<Conversation>>,
}

impl From<Option<switchboard_bus::Conversation>> for Stored {
    fn from(stored: Option<switchboard_bus::Conversation>) -> Self {
        Self {
            version: stored.as_ref().map(|stored| stored.version),
            conversation: stored.as_ref().and_then(parse).map(Arc::new),
        }
    }
}

enum Attempt {
    Done(Option<Arc<Conversation>>),
    Conflict(Stored),
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

#[cfg(test)]
mod tests;
