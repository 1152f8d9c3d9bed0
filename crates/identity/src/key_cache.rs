//! Cache of API key lookups, with a longer fallback while the store is unavailable.
//! Invariant: keys are identified by hash; secrets are not stored.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use moka::{Expiry, future::Cache};
use switchboard_protocol::token::{Restrictions, ServicePattern};
use switchboard_runtime::{
    budget::{Budget, Budgets, Kind, Owner},
    clock::unix_time,
    shutdown::Shutdown,
};
use switchboard_store::{ApiKey, ApiKeyLimits, Store, StoreError};

use crate::{Caller, Credential, KeyHash};

/// How long a valid key is cached before it is looked up again.
const VALID_TTL: Duration = Duration::from_secs(3);
/// How long an unknown key is cached: bounds the queries of a client with a wrong key.
const UNKNOWN_TTL: Duration = Duration::from_secs(1);
/// How long a valid key remains valid while the database is unavailable.
const FALLBACK_TTL: Duration = Duration::from_secs(300);
/// The lookup timeout for a key with a cached fallback.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);
/// A key that was found valid this recently is accepted while it is looked up again, so that no
/// request waits for it. A revoked key works for at most this long, and the time of a lookup.
const RECENT: Duration = Duration::from_secs(5);
/// How long a request waits for such a lookup if it is longer ago.
const REFRESH_TIMEOUT: Duration = Duration::from_millis(50);
/// Capacity of each cache; bounds memory when clients send invented keys. An evicted key costs a
/// query.
const CACHE_CAPACITY: u64 = 10_000;

/// The capacity of the budget `key_lookups`, for keys without a fallback: a flood of invented keys
/// must leave connections to other queries.
const MAX_LOOKUPS: usize = 4;
/// How long such a lookup waits for a permit; as long as the store waits for a connection.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(3);

/// Cached API keys, by the SHA-256 of their secret; cheap to clone.
#[derive(Clone)]
pub(crate) struct KeyCache {
    store: Store,
    fresh: Cache<[u8; 32], Option<CachedKey>>,
    /// Separate from `fresh`, so that invented keys cannot evict the fallback entries.
    fallback: Cache<[u8; 32], CachedKey>,
    lookups: Budget,
    refreshes: Shutdown,
}

/// A key that was valid when it was looked up. Its expiry is checked at each use, because it can
/// expire while it is cached.
#[derive(Debug, Clone)]
struct CachedKey {
    caller: Caller,
    /// Unix milliseconds; `None` for a key that does not expire.
    expires_at_ms: Option<i64>,
    /// When the database confirmed the key.
    verified_at: Instant,
}

impl CachedKey {
    fn is_expired(&self) -> bool {
        let now = i64::try_from(unix_time().as_millis()).unwrap_or(i64::MAX);
        self.expires_at_ms.is_some_and(|at| at <= now)
    }
}

struct Freshness;

impl Expiry<[u8; 32], Option<CachedKey>> for Freshness {
    fn expire_after_create(
        &self,
        _: &[u8; 32],
        key: &Option<CachedKey>,
        _: Instant,
    ) -> Option<Duration> {
        Some(if key.is_some() {
            VALID_TTL
        } else {
            UNKNOWN_TTL
        })
    }
}

/// What restricts a key. `None` when the database has what no request can store.
fn restrictions(limits: &ApiKeyLimits) -> Option<Restrictions> {
    let prefix = limits.device_prefix.as_ref().map(|prefix| prefix.parse());
    let label = limits.device_label.as_ref().map(|label| label.parse());
    let services = limits.services.as_ref().map(|services| {
        let parsed = services.iter().map(|text| ServicePattern::parse(text));
        parsed.collect::<Result<_, _>>()
    });
    Some(Restrictions {
        device_prefix: prefix.transpose().ok()?,
        device_label: label.transpose().ok()?,
        services: services.transpose().ok()?,
    })
}

impl KeyCache {
    pub(crate) fn new(store: Store, budgets: &Budgets) -> Self {
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
            lookups: budgets.slots("key_lookups", MAX_LOOKUPS, Kind::Brief),
            refreshes: Shutdown::new(),
        }
    }

    /// The caller with this key, or `None` if the key is unknown, revoked or expired. Concurrent
    /// requests with the same key share one lookup, which is charged to the `client` of the first. A
    /// key that is not cached is looked up if it `may_exist`.
    pub(crate) async fn lookup(
        &self,
        key: KeyHash,
        client: Owner,
        may_exist: impl FnOnce() -> bool,
    ) -> Result<Option<Caller>, Arc<StoreError>> {
        let found = match self.fresh.get(&key.0).await {
            Some(found) => found,
            None => match self.fallback.get(&key.0).await {
                Some(known) => self.refresh(key, client, known).await?,
                None if !may_exist() => None,
                // Boxed: the future is large, and that of every request contains it.
                None => Box::pin(self.query_once(key, client)).await?,
            },
        };
        let valid = found.filter(|key| !key.is_expired());
        Ok(valid.map(|key| key.caller))
    }

    /// Looks a known key up again. The request waits briefly, or not at all if the key was valid
    /// recently; the lookup goes on in the background.
    async fn refresh(
        &self,
        key: KeyHash,
        client: Owner,
        known: CachedKey,
    ) -> Result<Option<CachedKey>, Arc<StoreError>> {
        let cache = self.clone();
        let lookup = self
            .refreshes
            .spawn(async move { cache.query_once(key, client).await });
        let wait = if known.verified_at.elapsed() < RECENT {
            Duration::ZERO
        } else {
            REFRESH_TIMEOUT
        };
        match tokio::time::timeout(wait, lookup).await {
            Ok(Ok(found)) => found,
            _ => Ok(Some(known)),
        }
    }

    async fn query_once(
        &self,
        key: KeyHash,
        client: Owner,
    ) -> Result<Option<CachedKey>, Arc<StoreError>> {
        self.fresh
            .try_get_with(key.0, self.query(key, client))
            .await
    }

    async fn query(
        &self,
        KeyHash(hash): KeyHash,
        client: Owner,
    ) -> Result<Option<CachedKey>, StoreError> {
        let cached = self.fallback.get(&hash).await;
        let found = if cached.is_some() {
            let query = self.store.api_key_by_hash(&hash);
            let found = tokio::time::timeout(LOOKUP_TIMEOUT, query).await;
            found.unwrap_or(Err(StoreError::Unavailable(None)))
        } else {
            self.query_unknown_key(&hash, client).await
        };
        match found {
            Ok(Some(key)) if key.revoked_at.is_none() => {
                let expires_at = key.limits.expires_at;
                let Some(restrictions) = restrictions(&key.limits) else {
                    tracing::error!(api_key.id = %key.id, "the restrictions of an API key cannot be read; the key is refused");
                    return Ok(None);
                };
                let valid = CachedKey {
                    caller: Caller {
                        org: key.org,
                        scopes: key.scopes,
                        restrictions: (!restrictions.is_none()).then(|| Arc::new(restrictions)),
                        labelled: None,
                        credential: Credential::ApiKey(key.id),
                    },
                    expires_at_ms: expires_at.map(|at| at.timestamp_millis()),
                    verified_at: Instant::now(),
                };
                self.fallback.insert(hash, valid.clone()).await;
                Ok(Some(valid))
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
    /// limited, and clients take turns: a flood from one network delays only itself.
    async fn query_unknown_key(
        &self,
        hash: &[u8; 32],
        client: Owner,
    ) -> Result<Option<ApiKey>, StoreError> {
        let deadline = tokio::time::Instant::now() + PERMIT_TIMEOUT;
        let permit = self.lookups.acquire(client, 1, deadline).await;
        let Ok(_permit) = permit else {
            return Err(StoreError::Unavailable(None));
        };
        self.store.api_key_by_hash(hash).await
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use prometheus::Registry;
    use switchboard_store::testing::TestDatabase;
    use switchboard_test_support::eventually::{eventually, eventually_true};

    use super::*;

    const UNKNOWN_KEYS: u8 = 40;
    const STRANGER: Owner = Owner::network(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    /// Longer than the statements before the first lookup.
    const KEY_TTL: Duration = Duration::from_secs(4);
    const EXPIRY_TIMEOUT: Duration = Duration::from_secs(30);

    fn key_cache(store: Store) -> KeyCache {
        KeyCache::new(store, &Budgets::new(&Registry::new()).unwrap())
    }

    #[tokio::test]
    async fn key_expires_while_the_database_is_unavailable() {
        let database = TestDatabase::create().await.unwrap();
        let keys = key_cache(database.store());
        let org = "00000000-0000-0000-0000-000000000001";
        let sql = format!("INSERT INTO orgs (id, name) VALUES ('{org}', 'an org')");
        database.execute(&sql).await.unwrap();
        let [expiring, permanent] =
            [(), ()].map(|()| KeyHash::of(&crate::ApiKeySecret::generate()));
        let ttl = format!("now() + interval '{} s'", KEY_TTL.as_secs());
        for (key, expires_at) in [(expiring, ttl.as_str()), (permanent, "NULL")] {
            let hash: String = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
            let sql = format!(
                r"INSERT INTO api_keys (id, org_id, name, prefix, secret_hash, scopes, expires_at)
                  VALUES (gen_random_uuid(), '{org}', 'a key', 'sb_', '\x{hash}', '{{call}}', {expires_at})"
            );
            database.execute(&sql).await.unwrap();
            assert!(keys.lookup(key, STRANGER, || true).await.unwrap().is_some());
        }
        database.set_unavailable(true).await.unwrap();
        let lookup = async || {
            keys.lookup(expiring, STRANGER, || true)
                .await
                .unwrap()
                .is_none()
        };
        assert!(eventually(EXPIRY_TIMEOUT, lookup, |expired| *expired).await);
        assert!(
            keys.lookup(permanent, STRANGER, || true)
                .await
                .unwrap()
                .is_some()
        );
    }

    #[tokio::test]
    async fn unknown_keys_leave_connections_to_other_queries() {
        let database = TestDatabase::create().await.unwrap();
        let store = database.store();
        let keys = key_cache(store.clone());
        let lock = database.lock("api_keys").await.unwrap();
        let mut lookups = tokio::task::JoinSet::new();
        for byte in 0..UNKNOWN_KEYS {
            let keys = keys.clone();
            lookups.spawn(async move { keys.lookup(KeyHash([byte; 32]), STRANGER, || true).await });
        }
        let taken = || keys.lookups.free() == 0;
        eventually_true("a permit for each lookup", taken).await;
        // Lookups without a permit fail; other queries succeed at the same time.
        for _ in MAX_LOOKUPS..usize::from(UNKNOWN_KEYS) {
            let error = lookups.join_next().await.unwrap().unwrap().unwrap_err();
            assert!(error.is_unavailable(), "{}", error.report());
            store.ping(Duration::from_secs(1)).await.unwrap();
        }
        lock.release().await.unwrap();
        while let Some(caller) = lookups.join_next().await {
            assert!(caller.unwrap().unwrap().is_none());
        }
    }
}
