//! Stores the state of conversations between their turns, for the worker that answers the next.

use std::{fmt, time::Duration};

use bytes::Bytes;
use switchboard_protocol::id::OrgId;

use crate::{bus::Bus, error::BusError};

/// The maximum size of a conversation, in bytes. Protects the memory of Redis, or of this process.
pub const MAX_CONVERSATION_BYTES: usize = 64 * 1024;
/// The maximum length of a conversation's name, in bytes.
pub const MAX_CONVERSATION_NAME_BYTES: usize = 200;
/// Conversations of one organisation. Protects the others, and memory.
pub(crate) const ORG_LIMIT: ConversationLimit = ConversationLimit {
    number: 5_000,
    bytes: 32 * 1024 * 1024,
};
/// Conversations of all organisations. Protects memory.
pub(crate) const TOTAL_LIMIT: ConversationLimit = ConversationLimit {
    number: 100_000,
    bytes: 128 * 1024 * 1024,
};
/// Conversations in one reply. Protects memory, and the time that Redis takes.
pub(crate) const MAX_CLAIMED: usize = 64;
/// How long a conversation is stored after it was due.
pub(crate) const DUE_TTL: Duration = Duration::from_secs(3600);
/// The maximum of [`ConversationWrite::due_after`], and of a lease.
const MAX_DUE_DELAY: Duration = Duration::from_secs(30 * 24 * 3600);

/// Identifies a conversation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConversationKey {
    /// The organisation.
    pub org: OrgId,
    /// The name within the organisation, such as `npc_…/device:toy-1`: 1 to 200 bytes without
    /// control characters.
    pub name: String,
}

/// A stored conversation. The bus does not interpret its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Conversation {
    /// The key.
    pub key: ConversationKey,
    /// Changes with every save; a version is never used again for this key.
    pub version: u64,
    /// The bytes that were saved.
    pub bytes: Bytes,
}

/// The claimed conversations that a worker processes at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationsInFlight {
    /// The number of each organisation that has any.
    pub by_org: Vec<(OrgId, usize)>,
    /// The maximum of one organisation; more than 64 is the same as 64.
    pub share: usize,
}

/// The result of a save.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "after a conflict the conversation must be derived again from the stored version"]
pub enum SaveOutcome {
    /// The conversation is stored, in this version.
    Saved(u64),
    /// This is stored instead, in another version, or nothing is: nothing was saved.
    Conflict(Option<Conversation>),
}

impl SaveOutcome {
    /// Whether it was saved.
    #[must_use]
    pub const fn is_saved(&self) -> bool {
        matches!(self, Self::Saved(_))
    }
}

/// How many conversations are stored at most, and how many bytes they have together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConversationLimit {
    pub(crate) number: usize,
    pub(crate) bytes: usize,
}

/// A conversation to be saved.
#[derive(Debug)]
pub(crate) struct ConversationWrite<'a> {
    pub(crate) key: &'a ConversationKey,
    /// The version to replace; `None` when there must be none.
    pub(crate) replaces: Option<u64>,
    pub(crate) bytes: Bytes,
    pub(crate) due_after: Duration,
}

/// A backend's reply to a save.
#[derive(Debug)]
pub(crate) struct SaveResult {
    pub(crate) outcome: SaveOutcome,
    /// How many other conversations were evicted for it.
    pub(crate) evicted: u64,
}

/// Shows the size only: the words of users do not belong in logs.
impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation")
            .field("key", &self.key)
            .field("version", &self.version)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}

impl ConversationKey {
    fn validate(&self) -> Result<(), BusError> {
        let fits = (1..=MAX_CONVERSATION_NAME_BYTES).contains(&self.name.len());
        if fits && !self.name.contains(char::is_control) {
            return Ok(());
        }
        Err(BusError::Invalid(format!(
            "a conversation's name has 1 to {MAX_CONVERSATION_NAME_BYTES} bytes and no control \
             characters; this one has {} bytes",
            self.name.len()
        )))
    }
}

/// # Conversations
///
/// Every worker sees the same conversations. A save is a compare-and-set on the version, so of two
/// concurrent saves one has a [`SaveOutcome::Conflict`], and no version is overwritten unseen.
///
/// ```text
///   save ─► stored ──no save for due_after──► due ──claim──► leased ──lease expired──► due
///              ▲                               │                │
///              └────────── save ───────────────┴────────────────┤
///                                     delete, or 1 h after due ─┴─► absent
/// ```
///
/// A worker that claims a due conversation writes what it derives from it, and then deletes it in
/// the claimed version. If it was saved in the meantime it is not deleted, and is due again later.
///
/// When a save exceeds a limit of its organisation or of all, in number or in bytes, others are
/// evicted: an expired one, else the one that would be due first of those that are not due. Due and
/// leased ones are evicted last.
impl Bus {
    /// Reads a conversation.
    ///
    /// # Errors
    /// [`BusError::Invalid`] for an invalid name, else when the bus is not reachable.
    pub async fn conversation(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<Conversation>, BusError> {
        key.validate()?;
        self.0.backend.conversation(key).await
    }

    /// Saves a conversation in place of the version `replaces`, or as the first. It is due when it
    /// was not saved again for `due_after`, at most 30 days, and is deleted an hour later.
    ///
    /// # Errors
    /// [`BusError::Invalid`] for more than [`MAX_CONVERSATION_BYTES`] or an invalid name, else when
    /// the bus is not reachable: then it may have been saved or not.
    pub async fn save_conversation(
        &self,
        key: &ConversationKey,
        replaces: Option<u64>,
        bytes: Bytes,
        due_after: Duration,
    ) -> Result<SaveOutcome, BusError> {
        key.validate()?;
        if bytes.len() > MAX_CONVERSATION_BYTES {
            return Err(BusError::Invalid(format!(
                "a conversation has at most {MAX_CONVERSATION_BYTES} bytes; this one has {}",
                bytes.len()
            )));
        }
        let write = ConversationWrite {
            key,
            replaces,
            bytes,
            due_after: due_after.min(MAX_DUE_DELAY),
        };
        let SaveResult { outcome, evicted } = self.0.backend.save_conversation(write).await?;
        self.0.metrics.conversations_dropped.inc_by(evicted);
        Ok(outcome)
    }

    /// Deletes a conversation if this version is stored. Returns whether it was.
    ///
    /// # Errors
    /// [`BusError::Invalid`] for an invalid name, else when the bus is not reachable: then it may
    /// have been deleted or not.
    pub async fn delete_conversation(
        &self,
        key: &ConversationKey,
        version: u64,
    ) -> Result<bool, BusError> {
        key.validate()?;
        self.0.backend.delete_conversation(key, version).await
    }

    /// Claims due conversations, at most `max` and at most 64. The organisation with the fewest in
    /// flight is next, up to the share; of one organisation, those that are due longest are first.
    /// No other worker can claim them until `lease` has expired. A worker that has processed one
    /// deletes it, in the claimed version.
    ///
    /// # Errors
    /// When the bus is not reachable: conversations may have been claimed until `lease` expires.
    pub async fn claim_due_conversations(
        &self,
        max: usize,
        lease: Duration,
        in_flight: &ConversationsInFlight,
    ) -> Result<Vec<Conversation>, BusError> {
        let (max, lease) = (max.min(MAX_CLAIMED), lease.min(MAX_DUE_DELAY));
        if max == 0 {
            return Ok(Vec::new());
        }
        let backend = &self.0.backend;
        backend.claim_due_conversations(max, lease, in_flight).await
    }
}
