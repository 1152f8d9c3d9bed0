//! Cache of API key lookups, with a longer fallback while the store is unavailable.
//! Invariant: keys are identified by hash; secrets are not stored.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use moka::{Expiry, future::Cache};
use switchboard_store::{ApiKey, Store, StoreError};
use tokio::sync::Semaphore;

use crate::{ApiKeySecret, Caller, Checksum, Credential};

/// How long a valid key is cached: a revoked key works for at most this long.
const VALID_TTL: Duration = Duration::from_secs(3);
/// How long an unknown key is cached: bounds the queries of a client with a wrong key.
const UNKNOWN_TTL: Duration = Duration::from_secs(1);
/// How long a valid key remains valid while the database is unavailable.
const FALLBACK_TTL: Duration = Duration::from_secs(300);
/// The lookup timeout for a key with a cached fallback.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);
/// Capacity of each cache; bounds memory when clients send invented keys. An evicted key costs a
/// query.
const CACHE_CAPACITY: u64 = 10_000;

/// The maximum number of concurrent lookups of keys without a fallback: a flood of invented keys
/// must leave connections to other queries.
const MAX_LOOKUPS: usize = 4;
/// The same for keys without a checksum.
const MAX_UNCHECKED_LOOKUPS: usize = 2;
/// How long such a lookup waits for a permit; as long as the store waits for a connection.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(3);

/// Cached API keys, by the SHA-256 of their secret; cheap to clone.
#[derive(Clone)]
pub(crate) struct KeyCache {
    store: Store,
    fresh: Cache<[u8; 32], Option<Caller>>,
    /// Separate from `fresh`, so that invented keys cannot evict the fallback entries.
    fallback: Cache<[u8; 32], Caller>,
    lookups: Arc<Lookups>,
}

/// What identifies a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KeyHash {
    /// The SHA-256 of the secret.
    hash: [u8; 32],
    has_checksum: bool,
}

impl KeyHash {
    pub(crate) fn of(secret: &ApiKeySecret) -> Self {
        Self {
            hash: secret.hash(),
            has_checksum: secret.checksum() == Checksum::Valid,
        }
    }
}

/// Permits of lookups. Keys without a checksum are easily invented, so those with one do not wait
/// for them.
struct Lookups {
    with_checksum: Semaphore,
    without_checksum: Semaphore,
}

struct Freshness;

impl Expiry<[u8; 32], Option<Caller>> for Freshness {
    fn expire_after_create(
        &self,
        _: &[u8; 32],
        caller: &Option<Caller>,
        _: Instant,
    ) -> Option<Duration> {
        Some(if caller.is_some() {
            VALID_TTL
        } else {
            UNKNOWN_TTL
        })
    }
}

impl KeyCache {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            fresh: Cache::builder()
                .max_capacity(CACHE_CAPACITY)
                .expire_after(Freshness)
                .build(),
            fallback: Cache::builder()
                .max_capacity(CACHE_CAPACITY)
                .time_to_live(FALLBACK_TTL)
                .build(),
            lookups: Arc::new(Lookups {
                with_checksum: Semaphore::new(MAX_LOOKUPS),
                without_checksum: Semaphore::new(MAX_UNCHECKED_LOOKUPS),
            }),
        }
    }

    /// The caller with this key, or `None` if the key is unknown or revoked. Concurrent requests
    /// with the same key share one lookup.
    pub(crate) async fn lookup(&self, key: KeyHash) -> Result<Option<Caller>, Arc<StoreError>> {
        self.fresh.try_get_with(key.hash, self.query(key)).await
    }

    async fn query(&self, key: KeyHash) -> Result<Option<Caller>, StoreError> {
        let hash = key.hash;
        let cached = self.fallback.get(&hash).await;
        let found = if cached.is_some() {
            let query = self.store.api_key_by_hash(&hash);
            let found = tokio::time::timeout(LOOKUP_TIMEOUT, query).await;
            found.unwrap_or(Err(StoreError::Unavailable(None)))
        } else {
            self.query_unknown_key(key).await
        };
        match found {
            Ok(Some(key)) if key.revoked_at.is_none() => {
                let caller = Caller {
                    org: key.org,
                    scopes: key.scopes,
                    credential: Credential::ApiKey(key.id),
                };
                self.fallback.insert(hash, caller.clone()).await;
                Ok(Some(caller))
            }
            Ok(_) => {
                self.fallback.invalidate(&hash).await;
                Ok(None)
            }
            Err(error) if error.is_unavailable() && cached.is_some() => Ok(cached),
            Err(error) => Err(error),
        }
    }

    /// Invented keys can have the same form as real ones, so the concurrency of these lookups is
    /// limited.
    async fn query_unknown_key(&self, key: KeyHash) -> Result<Option<ApiKey>, StoreError> {
        let lookups = if key.has_checksum {
            &self.lookups.with_checksum
        } else {
            &self.lookups.without_checksum
        };
        let permit = tokio::time::timeout(PERMIT_TIMEOUT, lookups.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(StoreError::Unavailable(None));
        };
        self.store.api_key_by_hash(&key.hash).await
    }
}

#[cfg(test)]
mod tests {
    use switchboard_store::testing::TestDatabase;
    use switchboard_test_support::eventually::eventually_true;

    use super::*;

    const UNKNOWN_KEYS: u8 = 40;

    #[tokio::test]
    async fn unknown_keys_leave_connections_to_other_queries() {
        let database = TestDatabase::create().await.unwrap();
        let store = database.store();
        let keys = KeyCache::new(store.clone());
        let lock = database.lock("api_keys").await.unwrap();
        let key = |byte, has_checksum| KeyHash {
            hash: [byte; 32],
            has_checksum,
        };
        let mut lookups = tokio::task::JoinSet::new();
        for byte in 0..UNKNOWN_KEYS {
            let keys = keys.clone();
            lookups.spawn(async move { keys.lookup(key(byte, false)).await });
        }
        let permits = &keys.lookups;
        let taken = || permits.without_checksum.available_permits() == 0;
        eventually_true("a permit for each lookup", taken).await;
        // A key with a checksum does not wait for those without.
        let other = keys.clone();
        let mut checked = tokio::task::JoinSet::new();
        checked.spawn(async move { other.lookup(key(UNKNOWN_KEYS, true)).await });
        let taken = || permits.with_checksum.available_permits() < MAX_LOOKUPS;
        eventually_true("a permit for the key with a checksum", taken).await;
        // Lookups without a permit fail; other queries succeed at the same time.
        for _ in MAX_UNCHECKED_LOOKUPS..usize::from(UNKNOWN_KEYS) {
            let error = lookups.join_next().await.unwrap().unwrap().unwrap_err();
            assert!(error.is_unavailable(), "{}", error.report());
            store.ping(Duration::from_secs(1)).await.unwrap();
        }
        lock.release().await.unwrap();
        while let Some(caller) = lookups.join_next().await {
            assert!(caller.unwrap().unwrap().is_none());
        }
        let found = checked.join_next().await.unwrap();
        assert!(found.unwrap().unwrap().is_none());
    }
}
