//! Conversations inside one process: what is remembered, and when each is due.
//! Never: more of them than agreed, or a version that was used before.

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
    Conversation, ConversationKey, KEPT_WHEN_DUE, Keeping, Kept, MAX_CONVERSATIONS,
    MAX_CONVERSATIONS_OF_ORG, NewVersion,
};

/// They, by name, and in order.
#[derive(Default)]
pub(super) struct Conversations {
    kept: HashMap<Arc<ConversationKey>, Resting>,
    /// As they are given out next.
    due: Order,
    /// As they end.
    ends: Order,
    /// Each organisation's, likewise.
    ends_of: HashMap<OrgId, Order>,
    last_version: u64,
}

/// Names by a moment, and by the version that is kept.
type Order = BTreeMap<(Instant, u64), Arc<ConversationKey>>;

struct Resting {
    version: u64,
    bytes: Bytes,
    /// When it is given out next.
    due: Instant,
    /// When it is forgotten: so long after it is due, whoever is given it.
    ends: Instant,
}

impl Conversations {
    pub(super) fn find(&self, key: &ConversationKey) -> Option<Conversation> {
        let resting = self.kept.get(key).filter(|resting| !resting.has_ended())?;
        Some(resting.given(key))
    }

    pub(super) fn keep(&mut self, new: NewVersion<'_>) -> Keeping {
        let standing = self.kept.get(new.key).filter(|kept| !kept.has_ended());
        if standing.map(|standing| standing.version) != new.was {
            let (kept, gone) = (Kept::Changed, 0);
            return Keeping { kept, gone };
        }
        let (key, gone) = match self.take_out(new.key) {
            Some((key, _)) => (key, 0),
            None => (Arc::new(new.key.clone()), self.make_room(new.key.org)),
        };
        let now_us = unix_now_ms().saturating_mul(1000);
        let version = now_us.max(self.last_version + 1);
        self.last_version = version;
        let due = Instant::now() + new.rests_after;
        let resting = Resting {
            version,
            // It stays for a while, and shall not keep alive what it was cut from.
            bytes: Bytes::copy_from_slice(&new.bytes),
            due,
            ends: due + KEPT_WHEN_DUE,
        };
        self.put_in(key, resting);
        let kept = Kept::Yes(version);
        Keeping { kept, gone }
    }

    /// Lets one go for a new one of this organisation, if there are enough.
    fn make_room(&mut self, org: OrgId) -> u64 {
        let theirs = self.ends_of.get(&org);
        let first = theirs
            .and_then(|theirs| one_of(theirs, MAX_CONVERSATIONS_OF_ORG))
            .or_else(|| one_of(&self.ends, MAX_CONVERSATIONS));
        let gone = first.and_then(|first| self.take_out(&first));
        gone.map_or(0, |(_, resting)| u64::from(!resting.has_ended()))
    }

    pub(super) fn remove(&mut self, key: &ConversationKey, version: u64) -> bool {
        let stands = self.find(key).is_some_and(|kept| kept.version == version);
        stands && self.take_out(key).is_some()
    }

    pub(super) fn take_due(&mut self, most: usize, lease: Duration) -> Vec<Conversation> {
        let now = Instant::now();
        let ended = self.ends.range(..=(now, u64::MAX));
        let ended: Vec<_> = ended.map(|(_, key)| Arc::clone(key)).collect();
        for key in ended {
            self.take_out(&key);
        }
        let due = self.due.range(..=(now, u64::MAX)).take(most);
        let due: Vec<_> = due.map(|(_, key)| Arc::clone(key)).collect();
        let mut given = Vec::with_capacity(due.len());
        for key in due {
            let Some((key, mut resting)) = self.take_out(&key) else {
                continue;
            };
            resting.due = now + lease;
            given.push(resting.given(&key));
            self.put_in(key, resting);
        }
        given
    }

    fn put_in(&mut self, key: Arc<ConversationKey>, resting: Resting) {
        let (due, ends) = resting.places();
        self.due.insert(due, Arc::clone(&key));
        self.ends.insert(ends, Arc::clone(&key));
        let theirs = self.ends_of.entry(key.org).or_default();
        theirs.insert(ends, Arc::clone(&key));
        self.kept.insert(key, resting);
    }

    fn take_out(&mut self, key: &ConversationKey) -> Option<(Arc<ConversationKey>, Resting)> {
        let (key, resting) = self.kept.remove_entry(key)?;
        let (due, ends) = resting.places();
        self.due.remove(&due);
        self.ends.remove(&ends);
        if let Some(theirs) = self.ends_of.get_mut(&key.org) {
            theirs.remove(&ends);
            if theirs.is_empty() {
                self.ends_of.remove(&key.org);
            }
        }
        Some((key, resting))
    }
}

/// Which goes when there are so many: one that has ended, else the one that would be due first of
/// those that are not, else the one that has been due for longest.
fn one_of(order: &Order, most: usize) -> Option<Arc<ConversationKey>> {
    let ((ends, _), first) = order.first_key_value()?;
    if order.len() < most {
        return None;
    }
    let now = Instant::now();
    if *ends <= now {
        return Some(Arc::clone(first));
    }
    let due_now = (now + KEPT_WHEN_DUE, u64::MAX);
    let mut later = order.range((Excluded(due_now), Unbounded));
    let goes = later.next().map_or(first, |(_, key)| key);
    Some(Arc::clone(goes))
}

impl Resting {
    fn has_ended(&self) -> bool {
        self.ends <= Instant::now()
    }

    /// Where it is in the order of those that are given out, and of those that end.
    const fn places(&self) -> ((Instant, u64), (Instant, u64)) {
        ((self.due, self.version), (self.ends, self.version))
    }

    fn given(&self, key: &ConversationKey) -> Conversation {
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

    const LONG: Duration = Duration::from_secs(600);

    fn key(org: u128, name: impl ToString) -> ConversationKey {
        ConversationKey {
            org: OrgId::from_uuid(Uuid::from_u128(org)),
            name: name.to_string(),
        }
    }

    fn keep(all: &mut Conversations, key: &ConversationKey, rests_after: Duration) -> u64 {
        let keeping = all.keep(NewVersion {
            key,
            was: None,
            bytes: Bytes::new(),
            rests_after,
        });
        assert_ne!(keeping.kept, Kept::Changed);
        keeping.gone
    }

    #[test]
    fn one_too_many_of_all_is_none_that_is_owed_to_anybody() {
        let mut all = Conversations::default();
        let (owed, given, first) = (key(1, "owed"), key(2, "given"), key(3, "first"));
        keep(&mut all, &given, Duration::ZERO);
        assert_eq!(all.take_due(1, LONG / 2).len(), 1);
        keep(&mut all, &owed, Duration::ZERO);
        keep(&mut all, &first, LONG);
        for number in 3..MAX_CONVERSATIONS {
            let org = 10 + number as u128 % 50;
            assert_eq!(keep(&mut all, &key(org, number), LONG * 2), 0);
        }
        assert_eq!(keep(&mut all, &key(4, "one more"), LONG), 1);
        assert!(all.find(&first).is_none());
        assert!(all.find(&owed).is_some() && all.find(&given).is_some());
        assert_eq!(all.ends.len(), MAX_CONVERSATIONS);
        let of_orgs: usize = all.ends_of.values().map(Order::len).sum();
        assert_eq!((of_orgs, all.due.len()), (all.ends.len(), all.kept.len()));
    }

    #[test]
    fn when_all_are_due_the_one_that_has_been_for_longest_goes() {
        let mut all = Conversations::default();
        for number in 0..MAX_CONVERSATIONS_OF_ORG {
            keep(&mut all, &key(1, number), Duration::ZERO);
        }
        assert_eq!(keep(&mut all, &key(1, "one more"), Duration::ZERO), 1);
        assert!(all.find(&key(1, 0)).is_none() && all.find(&key(1, 1)).is_some());
    }
}
