//! Conversations inside one process.
//!
//! Invariant: the limits are the same as in Redis, and no version is used twice.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound::{Excluded, Unbounded},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::clock::unix_now_ms;

use crate::conversations::{
    Conversation, ConversationKey, ConversationLimit, ConversationWrite, ConversationsInFlight,
    DUE_TTL, ORG_LIMIT, SaveOutcome, SaveResult, TOTAL_LIMIT,
};

#[derive(Default)]
pub(super) struct Conversations {
    stored: HashMap<Arc<ConversationKey>, StoredConversation>,
    /// By the time when they are claimed next.
    by_due: TimeIndex,
    all: ByExpiry,
    by_org: HashMap<OrgId, ByExpiry>,
    last_version: u64,
}

/// Keys by time and version.
type TimeIndex = BTreeMap<(Instant, u64), Arc<ConversationKey>>;

/// Conversations by expiry.
#[derive(Default)]
struct ByExpiry {
    index: TimeIndex,
    /// The sum of their sizes.
    bytes: usize,
}

struct StoredConversation {
    version: u64,
    bytes: Bytes,
    /// When it can be claimed.
    due_at: Instant,
    /// When it is deleted: a fixed time after it was due first, claimed or not.
    expires_at: Instant,
}

impl Conversations {
    pub(super) fn find(&self, key: &ConversationKey) -> Option<Conversation> {
        let stored = self.stored.get(key);
        let stored = stored.filter(|stored| !stored.has_expired())?;
        Some(stored.to_conversation(key))
    }

    /// What all count with.
    pub(super) const fn bytes(&self) -> usize {
        self.all.bytes
    }

    pub(super) fn save(&mut self, write: ConversationWrite<'_>) -> SaveResult {
        let current = self.find(write.key);
        if current.as_ref().map(|current| current.version) != write.replaces {
            return SaveResult {
                outcome: SaveOutcome::Conflict(current),
                evicted: 0,
            };
        }
        let key = match self.remove(write.key) {
            Some((key, _)) => key,
            None => Arc::new(write.key.clone()),
        };
        let evicted = self.make_room(key.org, counted_bytes(&write.bytes));
        let now_us = unix_now_ms().saturating_mul(1000);
        let version = now_us.max(self.last_version + 1);
        self.last_version = version;
        let due_at = Instant::now() + write.due_after;
        let stored = StoredConversation {
            version,
            // Copied, so that it does not keep a larger buffer alive.
            bytes: Bytes::copy_from_slice(&write.bytes),
            due_at,
            expires_at: due_at + DUE_TTL,
        };
        self.insert(key, stored);
        SaveResult {
            outcome: SaveOutcome::Saved(version),
            evicted,
        }
    }

    /// Evicts conversations for another one of this organisation, which counts with `size`. Returns how
    /// many had not expired.
    fn make_room(&mut self, org: OrgId, size: usize) -> u64 {
        let mut evicted = 0;
        while let Some(key) = self.select_eviction(org, size) {
            let removed = self.remove(&key);
            evicted += removed.map_or(0, |(_, stored)| u64::from(!stored.has_expired()));
        }
        evicted
    }

    /// Selects one of the organisation if that exceeds its limit. Beyond the total number it is one of
    /// all, and beyond the total bytes one of the organisation that has most.
    fn select_eviction(&self, org: OrgId, size: usize) -> Option<Arc<ConversationKey>> {
        let own = self.by_org.get(&org);
        let own = own.filter(|own| own.is_full(ORG_LIMIT) || own.exceeds(ORG_LIMIT, size));
        let from = if own.is_some() {
            own
        } else if self.all.is_full(TOTAL_LIMIT) {
            Some(&self.all)
        } else if self.all.exceeds(TOTAL_LIMIT, size) {
            self.by_org.values().max_by_key(|of_org| of_org.bytes)
        } else {
            None
        };
        from?.select_eviction()
    }

    pub(super) fn delete(&mut self, key: &ConversationKey, version: u64) -> bool {
        let is_current = self
            .find(key)
            .is_some_and(|current| current.version == version);
        is_current && self.remove(key).is_some()
    }

    pub(super) fn claim_due(
        &mut self,
        max: usize,
        lease: Duration,
        in_flight: &ConversationsInFlight,
    ) -> Vec<Conversation> {
        let now = Instant::now();
        let expired = self.all.index.range(..=(now, u64::MAX));
        let expired: Vec<_> = expired.map(|(_, key)| Arc::clone(key)).collect();
        for key in expired {
            self.remove(&key);
        }
        let due = self.by_due.range(..=(now, u64::MAX));
        let due = select_fair(due.map(|(_, key)| key), max, in_flight);
        let mut claimed = Vec::with_capacity(due.len());
        for key in due {
            let Some((key, mut stored)) = self.remove(&key) else {
                continue;
            };
            stored.due_at = now + lease;
            claimed.push(stored.to_conversation(&key));
            self.insert(key, stored);
        }
        claimed
    }

    fn insert(&mut self, key: Arc<ConversationKey>, stored: StoredConversation) {
        let (due, expiry) = stored.index_keys();
        self.by_due.insert(due, Arc::clone(&key));
        let of_org = self.by_org.entry(key.org).or_default();
        for one in [&mut self.all, of_org] {
            one.index.insert(expiry, Arc::clone(&key));
            one.bytes += counted_bytes(&stored.bytes);
        }
        self.stored.insert(key, stored);
    }

    fn remove(
        &mut self,
        key: &ConversationKey,
    ) -> Option<(Arc<ConversationKey>, StoredConversation)> {
        let (key, stored) = self.stored.remove_entry(key)?;
        let (due, expiry) = stored.index_keys();
        self.by_due.remove(&due);
        let of_org = self.by_org.entry(key.org).or_default();
        for one in [&mut self.all, &mut *of_org] {
            one.index.remove(&expiry);
            one.bytes -= counted_bytes(&stored.bytes);
        }
        if of_org.index.is_empty() {
            self.by_org.remove(&key.org);
        }
        Some((key, stored))
    }
}

/// Selects due conversations: the organisation with the fewest in flight is next, up to the share.
fn select_fair<'a>(
    due: impl Iterator<Item = &'a Arc<ConversationKey>>,
    max: usize,
    in_flight: &ConversationsInFlight,
) -> Vec<Arc<ConversationKey>> {
    let mut counts: HashMap<OrgId, usize> = in_flight.by_org.iter().copied().collect();
    // Each with the number that its organisation has in flight before it.
    let mut candidates = Vec::new();
    for key in due {
        let count = counts.entry(key.org).or_default();
        if *count < in_flight.share {
            candidates.push((*count, key));
            *count += 1;
        }
    }
    candidates.sort_by_key(|(count, _)| *count);
    let selected = candidates.into_iter().take(max);
    selected.map(|(_, key)| Arc::clone(key)).collect()
}

/// What a conversation counts with: 300 bytes are for its names and entries, as in Redis.
const fn counted_bytes(bytes: &Bytes) -> usize {
    bytes.len() + 300
}

impl ByExpiry {
    fn is_full(&self, limit: ConversationLimit) -> bool {
        self.index.len() >= limit.number
    }

    /// Whether another one, which counts with `size`, exceeds the limit in bytes.
    const fn exceeds(&self, limit: ConversationLimit, size: usize) -> bool {
        self.bytes.saturating_add(size) > limit.bytes
    }

    /// Selects an expired one, else the one that would be due first of those that are not due, else the
    /// one that has been due for longest.
    fn select_eviction(&self) -> Option<Arc<ConversationKey>> {
        let ((expires_at, _), first) = self.index.first_key_value()?;
        let now = Instant::now();
        if *expires_at <= now {
            return Some(Arc::clone(first));
        }
        let due_now = (now + DUE_TTL, u64::MAX);
        let mut not_due = self.index.range((Excluded(due_now), Unbounded));
        let selected = not_due.next().map_or(first, |(_, key)| key);
        Some(Arc::clone(selected))
    }
}

impl StoredConversation {
    fn has_expired(&self) -> bool {
        self.expires_at <= Instant::now()
    }

    /// Its keys in the indexes by due time and by expiry.
    const fn index_keys(&self) -> ((Instant, u64), (Instant, u64)) {
        ((self.due_at, self.version), (self.expires_at, self.version))
    }

    fn to_conversation(&self, key: &ConversationKey) -> Conversation {
        Conversation {
            key: key.clone(),
            version: self.version,
            bytes: self.bytes.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const LONG_DELAY: Duration = Duration::from_secs(600);

    fn key(org: u128, name: impl ToString) -> ConversationKey {
        ConversationKey {
            org: OrgId::from_uuid(Uuid::from_u128(org)),
            name: name.to_string(),
        }
    }

    /// Saves a conversation. Returns how many others were evicted.
    fn save(all: &mut Conversations, key: &ConversationKey, due_after: Duration) -> u64 {
        let result = all.save(ConversationWrite {
            key,
            replaces: None,
            bytes: Bytes::new(),
            due_after,
        });
        assert!(result.outcome.is_saved());
        result.evicted
    }

    #[test]
    fn eviction_spares_due_and_leased_conversations() {
        let mut all = Conversations::default();
        let (due, leased, first) = (key(1, "due"), key(2, "leased"), key(3, "first"));
        save(&mut all, &leased, Duration::ZERO);
        let in_flight = ConversationsInFlight {
            by_org: Vec::new(),
            share: 1,
        };
        assert_eq!(all.claim_due(1, LONG_DELAY / 2, &in_flight).len(), 1);
        save(&mut all, &due, Duration::ZERO);
        save(&mut all, &first, LONG_DELAY);
        for number in 3..TOTAL_LIMIT.number {
            let org = 10 + number as u128 % 50;
            assert_eq!(save(&mut all, &key(org, number), LONG_DELAY * 2), 0);
        }
        assert_eq!(save(&mut all, &key(4, "one more"), LONG_DELAY), 1);
        assert!(all.find(&first).is_none());
        assert!(all.find(&due).is_some() && all.find(&leased).is_some());
        assert_eq!(all.all.index.len(), TOTAL_LIMIT.number);
        let of_orgs: usize = all.by_org.values().map(|of_org| of_org.index.len()).sum();
        assert_eq!(
            (of_orgs, all.by_due.len()),
            (all.all.index.len(), all.stored.len())
        );
    }

    #[test]
    fn first_due_is_evicted_when_all_are_due() {
        let mut all = Conversations::default();
        for number in 0..ORG_LIMIT.number {
            save(&mut all, &key(1, number), Duration::ZERO);
        }
        assert_eq!(save(&mut all, &key(1, "one more"), Duration::ZERO), 1);
        assert!(all.find(&key(1, 0)).is_none() && all.find(&key(1, 1)).is_some());
    }
}
