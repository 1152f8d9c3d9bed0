//! Extraction of memories from a part of a conversation.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;
use serde_json::Map;
use sha2::{Digest as _, Sha256};
use switchboard_completions::{CompletionError, ModelPreference, Providers};
use switchboard_identity::QuotaError;
use switchboard_protocol::id::{MemoryId, OrgId};
use switchboard_runtime::quota::Quota;
use switchboard_store::{NewMemory, Npc, Owner, StoreError};
use switchboard_tools::text::clean_to;
use tracing::{info, warn};
use uuid::Builder;

use crate::{
    Chat,
    answer::prompt::Fence,
    conversation::model::{Conversation, Exchange},
    memory::{
        salience,
        summarize::{self, UsageOnly},
    },
    usage::UsageOf,
};

/// Kind of the extracted memories.
const KIND: &str = "conversation";
/// Notes of one extraction.
const MAX_NOTES: usize = 10;
/// Bytes of a note.
const MAX_NOTE_BYTES: usize = 500;
/// Importance of a note for which the model states none.
const DEFAULT_IMPORTANCE: f64 = 0.5;

const EXTRACT: &str = "Below is a conversation between a user and a character. List what the character should still know about this user weeks later: \
    names, likes and dislikes, habits, dates, what they asked to be remembered. Leave out what only mattered at the moment, and what a device reported. \
    Answer with a JSON array and nothing else: [{\"text\": \"one sentence, in the user's language\", \"importance\": 0.0 to 1.0}]. An empty array when there is nothing.";

/// The text of a future memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Note {
    pub(crate) text: String,
    /// From 0 to 1.
    pub(crate) importance: f64,
}

/// A note as a model writes it.
#[derive(Deserialize)]
#[serde(untagged)]
enum ModelNote {
    Text(String),
    Note {
        text: String,
        #[serde(default)]
        importance: Option<f64>,
    },
}

/// A failure after which the extraction is retried.
#[derive(Debug, thiserror::Error)]
enum ExtractError {
    #[error("{}", .0.report())]
    Store(#[from] StoreError),
    #[error("{}", .0.report())]
    Quota(#[from] Arc<StoreError>),
    #[error(transparent)]
    Model(#[from] CompletionError),
}

/// Extracts memories from the exchanges before this index that are not extracted yet. False when
/// it must be retried.
pub(crate) async fn extract_memories(
    chat: &Chat,
    org: OrgId,
    conversation: &Conversation,
    end: u64,
) -> bool {
    let stored = try_extract(chat, org, conversation, end).await;
    stored
        .inspect_err(
            |error| warn!(%error, "cannot extract memories from a conversation; will retry"),
        )
        .is_ok()
}

async fn try_extract(
    chat: &Chat,
    org: OrgId,
    conversation: &Conversation,
    end: u64,
) -> Result<(), ExtractError> {
    let exchanges = conversation.unextracted(end);
    let (Some(npc), Some(subject), Some(last)) =
        (conversation.npc, &conversation.subject, exchanges.last())
    else {
        return Ok(());
    };
    let Some(npc) = chat.store.npc_for_answers(org, npc).await? else {
        return Ok(());
    };
    if !npc.effective.settings.memory.from_conversations {
        return Ok(());
    }
    let notes = match &chat.providers {
        Some(providers) => model_notes(chat, providers, &npc, (conversation, exchanges)).await?,
        None => {
            let messages = exchanges.iter().map(|exchange| exchange.message.as_str());
            messages.filter_map(salience::note).collect()
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
    let count = memories.len();
    let more = u64::try_from(count).unwrap_or(u64::MAX);
    match chat.quotas.admit(org, Quota::Settings, more).await {
        Ok(()) => {}
        Err(QuotaError::Exceeded(exceeded)) => {
            warn!(org.id = %org, npc.id = %npc.id, memories = count, %exceeded, "memories of a conversation are not stored");
            return Ok(());
        }
        Err(QuotaError::Store(error)) => return Err(error.into()),
    }
    let owner = Owner::Org(org);
    match chat.store.add_memories(owner, npc.id, &memories).await {
        Ok(_) => {
            info!(
                npc.id = %npc.id,
                org.id = %org,
                memories = count,
                "stored memories of a conversation"
            );
            Ok(())
        }
        // A replica stored the same memories and died before it recorded that.
        Err(StoreError::Conflict(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The notes of a model about these exchanges.
async fn model_notes(
    chat: &Chat,
    providers: &Providers,
    npc: &Npc,
    (conversation, exchanges): (&Conversation, &[Exchange]),
) -> Result<Vec<Note>, CompletionError> {
    let fence = Fence::new(conversation);
    let material = fence.wrap("the conversation", &summarize::transcript(exchanges));
    let model = npc.effective.settings.model.as_ref();
    let preference = model.map(|model| ModelPreference {
        provider: model.provider.clone(),
        model: model.model.clone(),
    });
    let of = UsageOf {
        org: npc.org,
        device: None,
        npc: Some(npc.id),
    };
    let mut sink = UsageOnly { chat, of };
    let text = summarize::complete(providers, preference, (EXTRACT, &material), &mut sink).await?;
    let notes = parse_notes(&text);
    if notes.is_none() {
        warn!("a model's notes about a conversation are not a JSON array; storing none");
    }
    Ok(notes.unwrap_or_default())
}

/// The notes in a model's text: the JSON array in it, whatever surrounds it.
fn parse_notes(text: &str) -> Option<Vec<Note>> {
    let start = text.find('[')?;
    let end = text.rfind(']')?;
    let notes: Vec<ModelNote> = serde_json::from_str(text.get(start..=end)?).ok()?;
    let notes = notes.into_iter().map(|note| match note {
        ModelNote::Text(text) => (text, None),
        ModelNote::Note { text, importance } => (text, importance),
    });
    let notes = notes.map(|(text, importance)| Note {
        text: clean_to(text.trim(), MAX_NOTE_BYTES),
        importance: importance.unwrap_or(DEFAULT_IMPORTANCE),
    });
    Some(
        notes
            .filter(|note| !note.text.is_empty())
            .take(MAX_NOTES)
            .collect(),
    )
}

fn expiry(npc: &Npc, last: &Exchange) -> Option<DateTime<Utc>> {
    let days = npc.effective.settings.memory.retention_days?;
    let at = DateTime::from_timestamp_millis(i64::try_from(last.at_ms).ok()?)?;
    at.checked_add_signed(TimeDelta::days(days.into()))
}

/// The id of a memory. It depends on the part of the conversation alone, so that a retry, also of
/// another replica, stores the same ids.
fn memory_id(conversation: &Conversation, at_ms: u64, number: usize) -> MemoryId {
    let hash = Sha256::new()
        .chain_update(conversation.id)
        .chain_update(conversation.extracted.to_be_bytes())
        .chain_update(number.to_be_bytes())
        .finalize();
    let mut random = [0; 10];
    for (target, byte) in random.iter_mut().zip(hash) {
        *target = byte;
    }
    MemoryId::from_uuid(Builder::from_unix_timestamp_millis(at_ms, &random).into_uuid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_parsed_in_all_forms() {
        fn check(text: &str, expected: Option<&[(&str, f64)]>) {
            let notes = parse_notes(text);
            let notes = notes.as_deref().map(|notes| {
                let pairs = notes
                    .iter()
                    .map(|note| (note.text.as_str(), note.importance));
                pairs.collect::<Vec<_>>()
            });
            assert_eq!(notes.as_deref(), expected, "{text}");
        }
        check("[]", Some(&[]));
        check(
            r#"[{"text": "Anna likes tea.", "importance": 0.9}]"#,
            Some(&[("Anna likes tea.", 0.9)]),
        );
        check(
            "Here you are:\n```json\n[\"她喜欢茶。\", \" \"]\n```",
            Some(&[("她喜欢茶。", 0.5)]),
        );
        check(r#"[{"text": "a", "why": "b"}]"#, Some(&[("a", 0.5)]));
        check("There is nothing to keep.", None);
        check("] [", None);
    }
}
