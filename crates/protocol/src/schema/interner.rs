//! Shares one compiled registration between the devices of an organisation with the same firmware.
//!
//! Invariant: a registration lives only as long as a connection uses it. (I13)

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use super::{Digest, Registration};
use crate::id::OrgId;

/// The number of locks. Many devices of one firmware meet on one of them, but only to clone an
/// `Arc`.
const SHARDS: usize = 16;
/// A shard below this many entries is not swept.
const MIN_SWEEP: usize = 16;

/// Registrations by organisation and the digest of their JSON. Ten thousand devices with one firmware
/// share one. Organisations share none: the memory of each is charged to who uses it.
#[derive(Debug)]
pub struct Interner<T = Registration> {
    shards: [Mutex<Shard<T>>; SHARDS],
}

#[derive(Debug)]
struct Shard<T> {
    entries: HashMap<(OrgId, Digest), Weak<T>>,
    /// Dead entries are removed at this many entries. It follows the number of live entries, so the
    /// amortised cost per insertion is constant.
    sweep_at: usize,
}

impl<T> Interner<T> {
    /// Creates an empty interner.
    #[must_use]
    pub fn new() -> Self {
        let shard = || {
            Mutex::new(Shard {
                entries: HashMap::new(),
                sweep_at: MIN_SWEEP,
            })
        };
        Self {
            shards: std::array::from_fn(|_| shard()),
        }
    }

    /// Returns the registration of an organisation's services with this digest if it is in use.
    #[must_use]
    pub fn get(&self, org: OrgId, digest: Digest) -> Option<Arc<T>> {
        self.shard(digest).lock().get((org, digest))
    }

    /// Shares a registration. Returns the one that is in use if another connection has built it in
    /// the meantime.
    pub fn insert(&self, org: OrgId, digest: Digest, built: T) -> Arc<T> {
        let mut shard = self.shard(digest).lock();
        if let Some(known) = shard.get((org, digest)) {
            // Dropped outside of the lock.
            drop(shard);
            return known;
        }
        let built = Arc::new(built);
        shard.insert((org, digest), &built);
        built
    }

    /// Returns the number of registrations in use.
    #[must_use]
    pub fn len(&self) -> usize {
        let living = |shard: &Mutex<Shard<T>>| {
            let mut shard = shard.lock();
            shard.sweep();
            shard.entries.len()
        };
        self.shards.iter().map(living).sum()
    }

    /// Returns whether no registration is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, digest: Digest) -> &Mutex<Shard<T>> {
        let [first, rest @ ..] = &self.shards;
        let [byte, ..] = digest.0;
        let index = usize::from(byte) % SHARDS;
        index
            .checked_sub(1)
            .and_then(|index| rest.get(index))
            .unwrap_or(first)
    }
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Shard<T> {
    fn get(&self, key: (OrgId, Digest)) -> Option<Arc<T>> {
        self.entries.get(&key)?.upgrade()
    }

    fn insert(&mut self, key: (OrgId, Digest), registration: &Arc<T>) {
        if self.entries.len() >= self.sweep_at {
            self.sweep();
        }
        self.entries.insert(key, Arc::downgrade(registration));
    }

    fn sweep(&mut self) {
        self.entries
            .retain(|_, registration| registration.strong_count() > 0);
        self.sweep_at = self.entries.len().saturating_mul(2).max(MIN_SWEEP);
        self.entries.shrink_to(self.sweep_at);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn intern(interner: &Interner<String>, text: &str) -> Arc<String> {
        intern_for(OrgId::from_uuid(Uuid::nil()), interner, text)
    }

    fn intern_for(org: OrgId, interner: &Interner<String>, text: &str) -> Arc<String> {
        let digest = Digest::compute(text.as_bytes());
        let known = interner.get(org, digest);
        known.unwrap_or_else(|| interner.insert(org, digest, text.to_owned()))
    }

    #[test]
    fn equal_text_of_one_organisation_shares_one_registration() {
        let interner = Interner::new();
        let one = intern(&interner, r#"{"a":{}}"#);
        let same = intern(&interner, r#"{"a":{}}"#);
        let other = intern(&interner, r#"{"a": {}}"#);
        let of_org = intern_for(OrgId::from_uuid(Uuid::max()), &interner, r#"{"a":{}}"#);
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        assert!(!Arc::ptr_eq(&one, &of_org));
        assert_eq!(interner.len(), 3);
        drop((one, same, other, of_org));
        assert!(interner.is_empty());
    }

    #[test]
    fn dead_entries_are_swept() {
        let interner = Interner::new();
        for round in 0..5_000 {
            intern(&interner, &format!(r#"{{"service-{round}":{{}}}}"#));
        }
        let entries = |shard: &Mutex<Shard<String>>| shard.lock().entries.len();
        let left: usize = interner.shards.iter().map(entries).sum();
        assert!(left <= SHARDS * MIN_SWEEP, "{left} dead entries");
    }

    #[test]
    fn concurrent_equal_registrations_share_one() {
        let interner = Interner::new();
        let all: Vec<_> = std::thread::scope(|scope| {
            let build = |_| scope.spawn(|| intern(&interner, r#"{"a":{}}"#));
            let threads: Vec<_> = (0..8).map(build).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(all.iter().all(|one| Arc::ptr_eq(one, &all[0])));
    }
}
