//! What is remembered of a conversation between its turns, for whichever replica answers the next.
//! Never: a look at what it says (to the bus it is bytes), or one version laid over another unseen.

use std::{fmt, time::Duration};

use bytes::Bytes;
use switchboard_protocol::id::OrgId;

use crate::{bus::Bus, error::BusError};

/// Bytes of one conversation. Protects memory: Redis's, or this process's.
pub const MAX_CONVERSATION_BYTES: usize = 64 * 1024;
/// Bytes of a conversation's name.
pub const MAX_CONVERSATION_NAME_BYTES: usize = 200;
/// Conversations that are kept of one organisation. Protects the others, and memory: 10 to 20 MB as
/// conversations are, 320 MiB were each as long as it may be.
pub(crate) const MAX_CONVERSATIONS_OF_ORG: usize = 5_000;
/// Conversations that are kept of all organisations together. Protects memory: 200 to 400 MB as
/// conversations are.
pub(crate) const MAX_CONVERSATIONS: usize = 100_000;
/// Conversations in one answer of the bus. Protects memory, and the time that Redis takes.
const MAX_TAKEN: usize = 64;
/// How long one is kept when it is due and nobody drops it.
pub(crate) const KEPT_WHEN_DUE: Duration = Duration::from_secs(3600);
/// No rest and no lease is longer, whatever is asked.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// Names a conversation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConversationKey {
    /// Whose it is.
    pub org: OrgId,
    /// Which of theirs, such as `npc_…/device:toy-1`: 1 to 200 bytes without control characters.
    pub name: String,
}

/// What is remembered of a conversation.
#[derive(Clone, PartialEq, Eq)]
pub struct Conversation {
    /// Its name.
    pub key: ConversationKey,
    /// Another one each time that it is kept; never used again for this key.
    pub version: u64,
    /// Whatever was kept.
    pub bytes: Bytes,
}

/// What became of a conversation that was to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "what was not kept has to be made anew from what stands"]
pub enum Kept {
    /// It stands, in this version.
    Yes(u64),
    /// Another version stands, or none: nothing was kept.
    Changed,
}

/// A conversation to be kept, to the backend.
#[derive(Debug)]
pub(crate) struct NewVersion<'a> {
    pub(crate) key: &'a ConversationKey,
    /// What is to be replaced; none when there is to be none.
    pub(crate) was: Option<u64>,
    pub(crate) bytes: Bytes,
    pub(crate) rests_after: Duration,
}

/// A backend's answer to that.
#[derive(Debug)]
pub(crate) struct Keeping {
    pub(crate) kept: Kept,
    /// How many others had to go for it.
    pub(crate) gone: u64,
}

/// How much is said is nobody's business who reads logs; that is all that is said here.
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
    fn check(&self) -> Result<(), BusError> {
        let fits = (1..=MAX_CONVERSATION_NAME_BYTES).contains(&self.name.len());
        if fits && !self.name.contains(char::is_control) {
            return Ok(());
        }
        Err(BusError::Unfit(format!(
            "a conversation's name has 1 to {MAX_CONVERSATION_NAME_BYTES} bytes and no control \
             characters; this one has {} bytes",
            self.name.len()
        )))
    }
}

impl Bus {
    /// What is remembered of a conversation, if anything is.
    ///
    /// # Errors
    /// [`BusError::Unfit`] for a name that is none, else when the bus does not answer.
    pub async fn conversation(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<Conversation>, BusError> {
        key.check()?;
        self.0.backend.conversation(key).await
    }

    /// Keeps a conversation in place of the version `was`, or as the first when there is to be
    /// none. It is due when nobody has kept it anew for `rests_after`, and goes an hour later.
    /// Thirty days are the longest rest. When a new one is one too many, of its organisation or of
    /// all, another goes: the one that would be due first of those that are not due yet.
    ///
    /// # Errors
    /// [`BusError::Unfit`] when it has more than [`MAX_CONVERSATION_BYTES`], or for a name that is
    /// none; else when the bus does not answer: then it may have been kept or not.
    pub async fn keep_conversation(
        &self,
        key: &ConversationKey,
        was: Option<u64>,
        bytes: Bytes,
        rests_after: Duration,
    ) -> Result<Kept, BusError> {
        key.check()?;
        if bytes.len() > MAX_CONVERSATION_BYTES {
            return Err(BusError::Unfit(format!(
                "a conversation has at most {MAX_CONVERSATION_BYTES} bytes; this one has {}",
                bytes.len()
            )));
        }
        let version = NewVersion {
            key,
            was,
            bytes,
            rests_after: rests_after.min(LONGEST),
        };
        let Keeping { kept, gone } = self.0.backend.keep_conversation(version).await?;
        self.0.metrics.conversations_dropped.inc_by(gone);
        Ok(kept)
    }

    /// Forgets a conversation, if it stands in this version; whether it did.
    ///
    /// # Errors
    /// [`BusError::Unfit`] for a name that is none, else when the bus does not answer: then it may
    /// be forgotten or not.
    pub async fn drop_conversation(
        &self,
        key: &ConversationKey,
        version: u64,
    ) -> Result<bool, BusError> {
        key.check()?;
        self.0.backend.drop_conversation(key, version).await
    }

    /// Conversations that are due, at most so many and never more than 64, those first that have
    /// been for longest. Nobody else is given them until `lease` is over; whoever is done with
    /// one drops it, in the version that it was given. One that somebody keeps anew meanwhile
    /// stands in another version, and is due again when that has rested.
    ///
    /// # Errors
    /// When the bus does not answer: what was to be given comes again when `lease` is over.
    pub async fn take_due_conversations(
        &self,
        most: usize,
        lease: Duration,
    ) -> Result<Vec<Conversation>, BusError> {
        let (most, lease) = (most.min(MAX_TAKEN), lease.min(LONGEST));
        if most == 0 {
            return Ok(Vec::new());
        }
        self.0.backend.take_due_conversations(most, lease).await
    }
}
