//! The background job that extracts memories from ended conversations and summarises long ones.
//! Nothing is extracted or summarised for a suspended organisation.
//! Invariant: memories are extracted from each exchange once, and a conversation is deleted only
//! when all of it is extracted or all attempts failed.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use switchboard_bus::{ConversationKey, ConversationsInFlight};
use switchboard_protocol::id::OrgId;
use switchboard_runtime::{
    budget::{Budget, Budgets, Exhausted, Kind, Owner, Permit},
    clock::unix_now_ms,
    shutdown::Shutdown,
};
use tracing::{debug, warn};
use uuid::Uuid;

use crate::{
    Chat,
    conversation::{
        model::{Conversation, Extraction},
        store,
    },
    memory::{extract, summarize},
};

/// Interval of queries for ended conversations.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Lease of an extraction: time for two requests to a model, and a reserve.
const EXTRACTION_LEASE: Duration = Duration::from_secs(150);
/// After this many failed attempts a conversation is deleted without an extraction.
const MAX_ATTEMPTS: u32 = 5;
/// Pause after the first failed attempt; each further pause is four times as long. All attempts
/// together cover an outage of 25 minutes.
const INITIAL_BACKOFF: Duration = Duration::from_secs(5);

/// The conversations that this node processes at the moment.
#[derive(Debug)]
pub(crate) struct ConversationJobs {
    slots: Budget,
    summaries: Mutex<HashSet<ConversationKey>>,
}

/// A conversation that is summarised, until it is dropped.
struct SummaryGuard<'a> {
    jobs: &'a ConversationJobs,
    key: &'a ConversationKey,
    _slot: Permit,
}

impl ConversationJobs {
    /// Jobs of which this many run at the same time, for ended conversations and for long ones. One
    /// organisation gets a quarter: its models may be slow.
    pub(crate) fn new(count: usize, budgets: &Budgets) -> Self {
        let kind = Kind::quarter_of(count);
        Self {
            slots: budgets.slots("conversation_jobs", count, kind),
            summaries: Mutex::default(),
        }
    }

    fn acquire_slot(&self, org: OrgId) -> Result<Permit, Exhausted> {
        self.slots.try_acquire(Owner::Org(org.uuid()), 1)
    }

    /// What the next claim has to consider. Suspended organisations are at their share, so that
    /// their conversations stay due.
    fn in_flight(&self, suspended: &[OrgId]) -> ConversationsInFlight {
        let share = self.slots.share();
        let holders = self.slots.holders().into_iter();
        let by_org = holders.filter_map(|(owner, count)| match owner {
            Owner::Org(org) => Some((OrgId::from_uuid(org), count)),
            _ => None,
        });
        let mut by_org: HashMap<_, _> = by_org.collect();
        by_org.extend(suspended.iter().map(|org| (*org, share)));
        ConversationsInFlight {
            by_org: by_org.into_iter().collect(),
            share,
        }
    }

    fn start_summary<'a>(&'a self, key: &'a ConversationKey) -> Option<SummaryGuard<'a>> {
        let slot = self.acquire_slot(key.org).ok()?;
        let is_first = self.summaries.lock().insert(key.clone());
        // Lazy: dropping an unused guard would remove the key of the other task.
        is_first.then(|| SummaryGuard {
            jobs: self,
            key,
            _slot: slot,
        })
    }
}

impl Drop for SummaryGuard<'_> {
    fn drop(&mut self) {
        self.jobs.summaries.lock().remove(self.key);
    }
}

impl Extraction {
    /// The extraction after a failed attempt, with the pause before the next one.
    fn after_failure(self, now_ms: u64) -> Self {
        let factor = 4_u32.saturating_pow(self.attempts.saturating_sub(1));
        let backoff = INITIAL_BACKOFF.saturating_mul(factor).as_millis();
        Self {
            until_ms: now_ms.saturating_add(u64::try_from(backoff).unwrap_or(u64::MAX)),
            ..self
        }
    }
}

/// Processes ended conversations until draining starts.
pub(crate) async fn run(chat: Arc<Chat>, shutdown: Shutdown) {
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.draining() => return,
        }
        let in_flight = chat.jobs.in_flight(&chat.bus.suspended_orgs());
        let free = chat.jobs.slots.free();
        let due = chat
            .bus
            .claim_due_conversations(free, EXTRACTION_LEASE, &in_flight);
        match due.await {
            Ok(due) => due
                .into_iter()
                .for_each(|stored| start_end(&chat, stored, &shutdown)),
            Err(error) => debug!(%error, "cannot query ended conversations"),
        }
    }
}

/// Processes an ended conversation in the background. When summaries have taken the slot since the
/// claim, the conversation is due again after its lease.
fn start_end(chat: &Arc<Chat>, stored: switchboard_bus::Conversation, shutdown: &Shutdown) {
    let Ok(slot) = chat.jobs.acquire_slot(stored.key.org) else {
        return;
    };
    let (chat, stop) = (Arc::clone(chat), shutdown.clone());
    shutdown.spawn(async move {
        let _slot = slot;
        tokio::select! {
            biased;
            // A replica continues when the lease has expired and the suspension is lifted.
            () = chat.bus.suspended(stored.key.org) => {}
            // Another replica continues when the lease has expired.
            () = stop.stopping() => {}
            () = end(&chat, &stored) => {}
        }
    });
}

async fn end(chat: &Chat, stored: &switchboard_bus::Conversation) {
    let key = &stored.key;
    let Some(conversation) = store::parse(stored) else {
        chat.conversations.update(key, |_| None).await;
        return;
    };
    // An answer in progress is stored at its end, and the idle timeout starts then.
    if conversation.has_open_since(chat.oldest_open_turn_ms()) {
        return;
    }
    let (id, end) = (conversation.id, conversation.end());
    if extract_until(chat, key, (id, end)).await {
        delete_extracted(chat, key, (id, end)).await;
    }
}

/// Deletes a conversation of which all is extracted, unless it was continued.
async fn delete_extracted(chat: &Chat, key: &ConversationKey, (id, end): (Uuid, u64)) {
    let delete = |stored: Option<Conversation>| {
        let mut stored = stored?;
        if stored.id == id {
            stored.drop_before(end);
        }
        (!stored.exchanges.is_empty()).then_some(stored)
    };
    chat.conversations.update(key, delete).await;
}

/// Summarises the older half of a conversation that is too long for a prompt, after its memories
/// are extracted. For a suspended organisation a later turn does.
pub(crate) async fn summarize_if_long(
    chat: &Chat,
    key: &ConversationKey,
    conversation: &Conversation,
) {
    if conversation.summary_end().is_none() {
        return;
    }
    tokio::select! {
        biased;
        () = chat.bus.suspended(key.org) => {}
        () = summarize_once(chat, key) => {}
    }
}

/// Summarises a long conversation unless another task does.
async fn summarize_once(chat: &Chat, key: &ConversationKey) {
    let Some(_guard) = chat.jobs.start_summary(key) else {
        return;
    };
    // Another task may just have summarised it.
    let Some(conversation) = chat.conversations.load(key).await else {
        return;
    };
    let Some(end) = conversation.summary_end() else {
        return;
    };
    if !extract_until(chat, key, (conversation.id, end)).await {
        return;
    }
    let summary = match &chat.providers {
        Some(providers) => {
            match summarize::summarize(chat, providers, key.org, (&conversation, end)).await {
                Ok(summary) => Some(summary),
                Err(error) => {
                    warn!(%error, "cannot summarise a long conversation; keeping its text");
                    return;
                }
            }
        }
        None => None,
    };
    let shorten = |stored: Option<Conversation>| {
        let mut stored = stored?;
        match &summary {
            Some(summary) => stored.summarize(&conversation, summary, end),
            None if stored.id == conversation.id => stored.drop_before(end),
            None => {}
        }
        Some(stored)
    };
    chat.conversations.update(key, shorten).await;
}

/// Extracts memories from all exchanges before this index; returns whether all are extracted.
async fn extract_until(chat: &Chat, key: &ConversationKey, (id, end): (Uuid, u64)) -> bool {
    loop {
        let Some((conversation, extraction)) = start(chat, key, (id, end)).await else {
            return false;
        };
        let Some(extraction) = extraction else {
            return true;
        };
        let is_abandoned = extraction.attempts > MAX_ATTEMPTS;
        if is_abandoned {
            warn!(org.id = %key.org, "memory extraction failed in all attempts; giving up");
        }
        let is_extracted = is_abandoned
            || extract::extract_memories(chat, key.org, &conversation, extraction.up_to).await;
        let finish = |stored: Option<Conversation>| {
            let mut stored = stored?;
            let Some(open) = stored.extraction.filter(|_| stored.id == id) else {
                return Some(stored);
            };
            if is_extracted {
                stored.extracted = open.up_to;
                stored.extraction = None;
            } else {
                stored.extraction = Some(open.after_failure(unix_now_ms()));
            }
            Some(stored)
        };
        if chat.conversations.update(key, finish).await.is_none() || !is_extracted {
            return false;
        }
    }
}

/// Stores the extraction and its lease before it starts: a replica that continues it extracts the
/// same part and stores memories with the same ids. The extraction is `None` when all is
/// extracted; the result is `None` when the conversation is gone or another replica has the lease.
async fn start(
    chat: &Chat,
    key: &ConversationKey,
    (id, end): (Uuid, u64),
) -> Option<(Arc<Conversation>, Option<Extraction>)> {
    let is_ours = AtomicBool::new(false);
    let claim = |stored: Option<Conversation>| {
        let mut stored = stored?;
        is_ours.store(stored.id == id, Ordering::Relaxed);
        if stored.id != id || stored.extracted.max(stored.first) >= end {
            return Some(stored);
        }
        let open = stored.extraction.unwrap_or(Extraction {
            up_to: end,
            attempts: 0,
            until_ms: 0,
        });
        if open.until_ms > unix_now_ms() {
            is_ours.store(false, Ordering::Relaxed);
            return Some(stored);
        }
        let lease_ms = u64::try_from(EXTRACTION_LEASE.as_millis()).unwrap_or(u64::MAX);
        stored.extraction = Some(Extraction {
            attempts: open.attempts + 1,
            until_ms: unix_now_ms().saturating_add(lease_ms),
            ..open
        });
        Some(stored)
    };
    let claimed = chat.conversations.update(key, claim).await?;
    if !is_ours.load(Ordering::Relaxed) {
        return None;
    }
    let is_extracted = claimed.extracted.max(claimed.first) >= end;
    let extraction = claimed.extraction.filter(|_| !is_extracted);
    Some((claimed, extraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_outlast_an_outage_of_minutes() {
        let (started_ms, minute_ms) = (1_000_000, 60_000);
        let mut now_ms = started_ms;
        let mut extraction = Extraction {
            up_to: 7,
            attempts: 1,
            until_ms: now_ms + 150_000,
        };
        let mut pauses = Vec::new();
        while extraction.attempts < MAX_ATTEMPTS {
            let failed = extraction.after_failure(now_ms);
            assert_eq!((failed.up_to, failed.attempts), (7, extraction.attempts));
            pauses.push(failed.until_ms - now_ms);
            now_ms = failed.until_ms;
            extraction = Extraction {
                attempts: failed.attempts + 1,
                ..failed
            };
        }
        assert_eq!(pauses, [5_000, 20_000, 80_000, 320_000]);
        let end_ms = extraction.after_failure(now_ms).until_ms;
        assert!(end_ms - started_ms > 25 * minute_ms);
    }

    #[test]
    fn conversation_is_summarized_by_one_task_at_a_time() {
        let budgets = Budgets::new(&prometheus::Registry::new()).unwrap();
        let jobs = ConversationJobs::new(32, &budgets);
        let key = |org: u128, name: usize| ConversationKey {
            org: OrgId::from_uuid(Uuid::from_u128(org)),
            name: name.to_string(),
        };
        let keys: Vec<_> = (0..=jobs.slots.share()).map(|name| key(7, name)).collect();
        let first = jobs.start_summary(&keys[0]);
        assert!(first.is_some() && jobs.start_summary(&keys[0]).is_none());
        // A failed attempt does not release the guard of the first.
        assert!(jobs.start_summary(&keys[0]).is_none());
        let mut others: Vec<_> = keys[1..]
            .iter()
            .map(|key| jobs.start_summary(key))
            .collect();
        let beyond_share = others.pop().unwrap();
        assert!(beyond_share.is_none() && others.iter().all(Option::is_some));
        assert!(jobs.start_summary(&key(8, 0)).is_some());
        assert_eq!(jobs.in_flight(&[]).by_org, [(keys[0].org, 8)]);
        drop(first);
        assert!(jobs.start_summary(&keys[0]).is_some());
    }
}
