//! One compiled registration for all devices with the same firmware.
//! Never: keeps a registration alive that no connection holds, or compiles under its lock. (I13.)

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::{Digest, RegisterError, Registration, SchemaLimits};

/// How many locks there are: a storm of one firmware meets on one of them, but only to clone an
/// `Arc`.
const SHARDS: usize = 16;
/// A shard below this many entries is not worth sweeping.
const MIN_SWEEP: usize = 16;

/// Registrations by the digest of their JSON. Ten thousand devices with one firmware share one.
#[derive(Debug)]
pub struct Interner {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug)]
struct Shard {
    entries: HashMap<Digest, Weak<Registration>>,
    /// Dead entries are removed when there are this many in all; it follows the living ones, so
    /// that sweeping costs a constant share of inserting.
    sweep_at: usize,
}

impl Interner {
    /// An interner that holds nothing.
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

    /// The registration of these services: the one in use if there is one, a new one otherwise.
    ///
    /// # Errors
    /// What [`Registration::build`] says. Refused services are not remembered.
    pub fn intern(
        &self,
        services: &RawValue,
        limits: &SchemaLimits,
    ) -> Result<Arc<Registration>, RegisterError> {
        let digest = Digest::of(services.get().as_bytes());
        if let Some(known) = self.shard(digest).lock().get(digest) {
            return Ok(known);
        }
        let built = Arc::new(Registration::build(services, limits)?);
        let mut shard = self.shard(digest).lock();
        // Another connection may have built the same one meanwhile: the first stays.
        if let Some(known) = shard.get(digest) {
            return Ok(known);
        }
        shard.insert(digest, &built);
        Ok(built)
    }

    /// How many registrations are in use.
    #[must_use]
    pub fn len(&self) -> usize {
        let living = |shard: &Mutex<Shard>| {
            let mut shard = shard.lock();
            shard.sweep();
            shard.entries.len()
        };
        self.shards.iter().map(living).sum()
    }

    /// Whether no registration is in use.
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
    fn equal_bytes_share_one_registration() {
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
    fn refused_services_leave_nothing_behind() {
        let interner = Interner::new();
        assert_eq!(
            intern(&interner, "[]").unwrap_err(),
            RegisterError::NotAnObject
        );
        assert!(interner.is_empty());
    }

    #[test]
    fn dead_entries_do_not_pile_up() {
        let interner = Interner::new();
        for round in 0..5_000 {
            intern(&interner, &format!(r#"{{"service-{round}":{{}}}}"#)).unwrap();
        }
        let entries = |shard: &Mutex<Shard>| shard.lock().entries.len();
        let left: usize = interner.shards.iter().map(entries).sum();
        assert!(left <= SHARDS * MIN_SWEEP, "{left} entries for nothing");
    }

    #[test]
    fn a_storm_of_one_firmware_ends_with_one_registration() {
        let interner = Interner::new();
        let all: Vec<_> = std::thread::scope(|scope| {
            let storm = |_| scope.spawn(|| intern(&interner, r#"{"a":{}}"#).unwrap());
            let threads: Vec<_> = (0..8).map(storm).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(all.iter().all(|one| Arc::ptr_eq(one, &all[0])));
    }
}
