//! Conversations where every replica finds them: recalled for a turn, noted behind it, ended when nobody goes on.
//! Never: an exchange lost because two replicas note at a time, or a turn that fails because none could be recalled.

use std::time::Duration;

use bytes::Bytes;
use switchboard_bus::{Bus, BusError, ConversationKey, Kept};
use switchboard_runtime::clock::unix_now_ms;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::conversation::{Conversation, Exchange};

/// Others may note at the same time; more often than this they do not.
const TRIES: usize = 5;

/// Between two looks at a conversation that is about to change: the first one, and the longest.
const LOOK: Duration = Duration::from_millis(20);
const LONGEST_LOOK: Duration = Duration::from_millis(160);

/// Where conversations are kept, and for how long.
#[derive(Clone)]
pub(crate) struct Conversations {
    bus: Bus,
    /// After so long without a word it has ended.
    rests_after: Duration,
}

impl Conversations {
    pub(crate) const fn new(bus: Bus, rests_after: Duration) -> Self {
        Self { bus, rests_after }
    }

    /// What was said so far; nothing, too, while the bus is away.
    pub(crate) async fn recall(&self, key: &ConversationKey) -> Option<Conversation> {
        let kept = self.bus.conversation(key).await;
        let kept = kept.inspect_err(|error| warn!(%error, "a conversation could not be recalled"));
        read(&kept.ok()??)
    }

    /// What is said by the time at which this holds of it, or when that was waited for so long; nothing while the bus is away.
    pub(crate) async fn recall_when(
        &self,
        key: &ConversationKey,
        within: Duration,
        holds: impl Fn(&Conversation) -> bool,
    ) -> Option<Conversation> {
        let deadline = Instant::now() + within;
        let mut pause = LOOK;
        loop {
            let known = self.recall(key).await?;
            if holds(&known) || Instant::now() >= deadline {
                return Some(known);
            }
            sleep_until(deadline.min(Instant::now() + pause)).await;
            pause = (pause * 2).min(LONGEST_LOOK);
        }
    }

    /// Adds an exchange that begins, or has ended; the conversation as it is now.
    pub(crate) async fn note(
        &self,
        key: &ConversationKey,
        begin: impl Fn() -> Conversation,
        exchange: &Exchange,
    ) -> Option<Conversation> {
        self.change(key, |conversation| {
            let mut conversation = conversation.unwrap_or_else(&begin);
            conversation.note(exchange.clone());
            Some(conversation)
        })
        .await
    }

    /// Changes what is kept, whatever others do meanwhile; `None` from `change` and an empty conversation drop it.
    pub(crate) async fn change(
        &self,
        key: &ConversationKey,
        change: impl Fn(Option<Conversation>) -> Option<Conversation>,
    ) -> Option<Conversation> {
        for _ in 0..TRIES {
            match self.try_to_change(key, &change).await {
                Ok(Tried::Done(conversation)) => return conversation,
                Ok(Tried::Overtaken) => debug!("a conversation was changed by another meanwhile"),
                Err(error) => {
                    warn!(%error, "a conversation could not be noted");
                    return None;
                }
            }
        }
        warn!("a conversation could not be noted: others change it all the time");
        None
    }

    async fn try_to_change(
        &self,
        key: &ConversationKey,
        change: impl Fn(Option<Conversation>) -> Option<Conversation>,
    ) -> Result<Tried, BusError> {
        let kept = self.bus.conversation(key).await?;
        let version = kept.as_ref().map(|kept| kept.version);
        let Some(changed) = change(kept.as_ref().and_then(read)) else {
            let Some(version) = version else {
                return Ok(Tried::Done(None));
            };
            let dropped = self.bus.drop_conversation(key, version).await?;
            return Ok(if dropped {
                Tried::Done(None)
            } else {
                Tried::Overtaken
            });
        };
        let bytes = Bytes::from(serde_json::to_vec(&changed).unwrap_or_default());
        let due_in = changed.due_in(unix_now_ms(), self.rests_after);
        let kept = self.bus.keep_conversation(key, version, bytes, due_in);
        Ok(match kept.await? {
            Kept::Yes(_) => Tried::Done(Some(changed)),
            Kept::Changed => Tried::Overtaken,
        })
    }
}

enum Tried {
    Done(Option<Conversation>),
    Overtaken,
}

/// What is kept of a conversation; nothing when it was kept by a version of this program that did so otherwise.
pub(crate) fn read(kept: &switchboard_bus::Conversation) -> Option<Conversation> {
    let read = serde_json::from_slice(&kept.bytes);
    read.inspect_err(|error| warn!(%error, "a conversation cannot be read, and begins anew"))
        .ok()
}
