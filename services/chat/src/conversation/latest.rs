//! The conversations that a replica keeps in memory. Another replica may have updated or deleted them
//! since, which the update of the stored one detects by its version.

use std::{sync::Arc, time::Duration};

use quick_cache::{Weighter, sync::Cache};
use switchboard_bus::ConversationKey;
use switchboard_runtime::budget::Budgets;
use tokio::time::Instant;

use crate::conversation::model::{Conversation, Exchange};

/// Size of the latest conversations in memory.
const CACHE_BYTES: usize = 16 * 1024 * 1024;
/// Expected number of them.
const CACHE_ENTRIES: usize = 4_096;
/// How long a conversation without an update stays in memory.
const CACHE_TTL: Duration = Duration::from_secs(60);

/// The conversations of a replica's latest turns, with their versions, so that the next update need
/// not read them.
pub(super) struct LatestConversations(Cache<ConversationKey, Latest, Weight>);

/// A conversation as this replica has stored it.
#[derive(Clone)]
struct Latest {
    version: u64,
    conversation: Arc<Conversation>,
    /// Its JSON. In memory it takes about as much.
    bytes: usize,
    stored_at: Instant,
}

#[derive(Clone)]
struct Weight;

impl Weighter<ConversationKey, Latest> for Weight {
    fn weight(&self, key: &ConversationKey, latest: &Latest) -> u64 {
        let exchanges = latest.conversation.exchanges.len() * size_of::<Exchange>();
        let names = size_of::<Conversation>() + 2 * key.name.len();
        (latest.bytes + exchanges + names) as u64
    }
}

impl LatestConversations {
    pub(super) fn new(budgets: &Budgets) -> Self {
        budgets.reserve("latest_conversations", CACHE_BYTES);
        let cache = Cache::with_weighter(CACHE_ENTRIES, CACHE_BYTES as u64, Weight);
        Self(cache)
    }

    /// Forgets conversations that had no update for a while: they may have ended.
    pub(super) fn sweep(&self) {
        self.0
            .retain(|_, latest| latest.stored_at.elapsed() < CACHE_TTL);
    }

    /// Removes a conversation; returns it and its version.
    pub(super) fn take(&self, key: &ConversationKey) -> Option<(u64, Arc<Conversation>)> {
        let (_, latest) = self.0.remove(key)?;
        Some((latest.version, latest.conversation))
    }

    /// Keeps a conversation that was stored as this version, in JSON of so many bytes.
    pub(super) fn insert(
        &self,
        key: ConversationKey,
        version: u64,
        conversation: Arc<Conversation>,
        bytes: usize,
    ) {
        let latest = Latest {
            version,
            conversation,
            bytes,
            stored_at: Instant::now(),
        };
        self.0.insert(key, latest);
    }
}
