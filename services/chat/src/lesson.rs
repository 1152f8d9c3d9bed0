//! What becomes a memory of a conversation.
//! Never: a memory of somebody who cannot be told apart, the same one twice, or one that its NPC does not want.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Map;
use sha2::{Digest as _, Sha256};
use switchboard_completions::CompletionError;
use switchboard_protocol::id::{MemoryId, OrgId};
use switchboard_store::{NewMemory, Npc, Owner, StoreError};
use tracing::{info, warn};
use uuid::Builder;

use crate::{
    Chat,
    conversation::{Conversation, Exchange},
    embedded, notes,
};

/// What kind of memory comes of it.
const KIND: &str = "conversation";

/// Something worth keeping.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Note {
    pub(crate) text: String,
    /// From 0 to 1.
    pub(crate) importance: f64,
}

/// Why nothing could be learned for now.
#[derive(Debug, thiserror::Error)]
enum NotNow {
    #[error("{}", .0.report())]
    Store(#[from] StoreError),
    #[error(transparent)]
    Model(#[from] CompletionError),
}

/// Keeps what is worth keeping of the exchanges before this one that are not learned yet; false when it has to be tried again.
pub(crate) async fn learn(chat: &Chat, org: OrgId, conversation: &Conversation, end: u64) -> bool {
    let kept = keep(chat, org, conversation, end).await;
    kept.inspect_err(|error| warn!(%error, "nothing could be learned from a conversation yet"))
        .is_ok()
}

async fn keep(
    chat: &Chat,
    org: OrgId,
    conversation: &Conversation,
    end: u64,
) -> Result<(), NotNow> {
    let exchanges = conversation.unlearned(end);
    let (Some(npc), Some(subject), Some(last)) =
        (conversation.npc, &conversation.subject, exchanges.last())
    else {
        return Ok(());
    };
    let Some(npc) = chat.store.npc(org, npc).await? else {
        return Ok(());
    };
    if !npc.effective.settings.memory.from_conversations {
        return Ok(());
    }
    let notes = match &chat.providers {
        Some(providers) => {
            notes::worth_keeping(chat, providers, &npc, (conversation, exchanges)).await?
        }
        None => {
            let said = exchanges.iter().map(|exchange| exchange.said.as_str());
            said.filter_map(embedded::worth_keeping).collect()
        }
    };
    if notes.is_empty() {
        return Ok(());
    }
    let source = format!("conversation:{}", conversation.id.simple());
    let memories = notes
        .into_iter()
        .enumerate()
        .map(|(number, note)| NewMemory {
            id: memory_id(conversation, last.at_ms, number),
            uri: None,
            subject: Some(subject.clone()),
            text: note.text,
            kind: Some(KIND.to_owned()),
            importance: note.importance.clamp(0.0, 1.0),
            source: Some(source.clone()),
            metadata: Map::new(),
            mime_type: "text/plain".to_owned(),
            expires_at: expiry(&npc, last),
        });
    let memories: Vec<_> = memories.collect();
    let owner = Owner::Org(org);
    match chat.store.add_memories(owner, npc.id, &memories).await {
        Ok(_) => {
            let kept = memories.len();
            info!(npc.id = %npc.id, org.id = %org, memories = kept, "memories were kept of a conversation");
            Ok(())
        }
        // Whoever had it before has kept them, and died before it could say so.
        Err(StoreError::Conflict(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn expiry(npc: &Npc, last: &Exchange) -> Option<DateTime<Utc>> {
    let days = npc.effective.settings.memory.retention_days?;
    let said_at = DateTime::from_timestamp_millis(i64::try_from(last.at_ms).ok()?)?;
    said_at.checked_add_signed(TimeDelta::days(days.into()))
}

/// The same for the same part of the same conversation, whoever learns from it and how often.
fn memory_id(conversation: &Conversation, at_ms: u64, number: usize) -> MemoryId {
    let words = Sha256::new()
        .chain_update(conversation.id)
        .chain_update(conversation.learned.to_be_bytes())
        .chain_update(number.to_be_bytes())
        .finalize();
    let mut random = [0; 10];
    for (place, byte) in random.iter_mut().zip(words) {
        *place = byte;
    }
    MemoryId::from_uuid(Builder::from_unix_timestamp_millis(at_ms, &random).into_uuid())
}
