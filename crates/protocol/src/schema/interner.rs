//! Shares one compiled registration between all devices with the same firmware.
//!
//! Invariant: a registration lives only as long as a connection uses it, and nothing is compiled
//! under a lock. (I13)

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::{Digest, RegisterError, Registration, SchemaLimits};

/// The number of locks. Many devices of one firmware meet on one of them, but only to clone an
/// `Arc`.
const SHARDS: usize = 16;
/// A shard below this many entries is not swept.
const MIN_SWEEP: usize = 16;

/// Registrations by the digest of their JSON. Ten thousand devices with one firmware share one.
#[derive(Debug)]
pub struct Interner {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug)]
struct Shard {
    entries: HashMap<Digest, Weak<Registration>>,
    /// Dead entries are removed at this many entries. It follows the number of live entries, so the
    /// amortised cost per insertion is constant.
    sweep_at: usize,
}

impl Interner {
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

    /// Returns the registration of these services: the shared one if it is in use, otherwise a new
    /// one.
    ///
    /// # Errors
    /// The errors of [`Registration::build`]. Refused services are not cached.
    pub fn intern(
        &self,
        services: &RawValue,
        limits: &SchemaLimits,
    ) -> Result<Arc<Registration>, RegisterError> {
        let digest = Digest::compute(services.get().as_bytes());
        if let Some(known) = self.shard(digest).lock().get(digest) {
            return Ok(known);
        }
        let built = Arc::new(Registration::build(services, limits)?);
        let mut shard = self.shard(digest).lock();
        // Another connection may have built the same registration in the meantime: the first one
        // stays.
        if let Some(known) = shard.get(digest) {
            return Ok(known);
        }
        shard.insert(digest, &built);
        Ok(built)
    }

    /// Returns the number of registrations in use.
    #[must_use]
    pub fn len(&self) -> usize {
        let living = |shard: &Mutex<Shard>| {
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

    fn shard(&self, digest: Digest) -> &Mutex<Shard> {
        let [first, rest @ ..] = &self.shards;
        let [byte, ..] = digest.0;
        let index = usize::from(byte) % SHARDS;
        index
            .checked_sub(1)
            .and_then(|index| rest.get(index))
            .unwrap_or(first)
    }
}

impl Default for Interner {
    fn default() -> Self {
        Self::new()
    }
}

impl Shard {
    fn get(&self, digest: Digest) -> Option<Arc<Registration>> {
        self.entries.get(&digest)?.upgrade()
    }

    fn insert(&mut self, digest: Digest, registration: &Arc<Registration>) {
        if self.entries.len() >= self.sweep_at {
            self.sweep();
        }
        self.entries.insert(digest, Arc::downgrade(registration));
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
    use super::*;

    fn services(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    fn intern(interner: &Interner, json: &str) -> Result<Arc<Registration>, RegisterError> {
        interner.intern(&services(json), &SchemaLimits::default())
    }

    #[test]
    fn equal_json_shares_one_registration() {
        let interner = Interner::new();
        let one = intern(&interner, r#"{"a":{}}"#).unwrap();
        let same = intern(&interner, r#"{"a":{}}"#).unwrap();
        let other = intern(&interner, r#"{"a": {}}"#).unwrap();
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        assert_eq!(interner.len(), 2);
        drop((one, same, other));
        assert!(interner.is_empty());
    }

    #[test]
    fn refused_services_are_not_cached() {
        let interner = Interner::new();
        assert_eq!(
            intern(&interner, "[]").unwrap_err(),
            RegisterError::NotAnObject
        );
        assert!(interner.is_empty());
    }

    #[test]
    fn dead_entries_are_swept() {
        let interner = Interner::new();
        for round in 0..5_000 {
            intern(&interner, &format!(r#"{{"service-{round}":{{}}}}"#)).unwrap();
        }
        let entries = |shard: &Mutex<Shard>| shard.lock().entries.len();
        let left: usize = interner.shards.iter().map(entries).sum();
        assert!(left <= SHARDS * MIN_SWEEP, "{left} dead entries");
    }

    #[test]
    fn concurrent_equal_registrations_share_one() {
        let interner = Interner::new();
        let all: Vec<_> = std::thread::scope(|scope| {
            let build = |_| scope.spawn(|| intern(&interner, r#"{"a":{}}"#).unwrap());
            let threads: Vec<_> = (0..8).map(build).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(all.iter().all(|one| Arc::ptr_eq(one, &all[0])));
    }
}
