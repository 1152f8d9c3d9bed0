//! What the store said of an API key, remembered for a moment, and for longer while the store cannot be asked.
//! Never: a secret; keys are known here by their hash.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use moka::{Expiry, future::Cache};
use switchboard_store::{ApiKey, Store, StoreError};
use tokio::sync::Semaphore;

use crate::{Caller, Credential};

/// How long a good key is taken as good without asking: a revoked key works this much longer at most.
const GOOD_FOR: Duration = Duration::from_secs(3);
/// How long an unknown key is refused without asking: protects the database from a client with a wrong key.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
/// How long a key that was good stays so while the database is away.
const STANDS_FOR: Duration = Duration::from_secs(300);
/// How long a key that was good lets its caller wait for a database that may be away.
const PATIENCE: Duration = Duration::from_secs(1);
/// Verdicts kept; protects memory from a flood of made-up keys. An evicted one costs a query.
const CAPACITY: u64 = 10_000;

/// Questions about keys of which nothing is known that the store is asked at a time: a flood of made-up keys must
/// leave connections to everybody else.
const QUESTIONS: usize = 4;
/// How long such a question waits for its turn, as long as the store lets it wait for a connection.
const QUEUE_PATIENCE: Duration = Duration::from_secs(3);

/// Verdicts on API keys, by the SHA-256 of their secret; cheap to clone.
#[derive(Clone)]
pub(crate) struct KeyVerdicts {
    store: Store,
    fresh: Cache<[u8; 32], Option<Caller>>,
    /// Apart from the fresh ones, so that made-up keys cannot push out what a failing database makes precious.
    last_good: Cache<[u8; 32], Caller>,
    questions: Arc<Semaphore>,
}

struct Freshness;

impl Expiry<[u8; 32], Option<Caller>> for Freshness {
    fn expire_after_create(
        &self,
        _: &[u8; 32],
        verdict: &Option<Caller>,
        _: Instant,
    ) -> Option<Duration> {
        Some(if verdict.is_some() {
            GOOD_FOR
        } else {
            UNKNOWN_FOR
        })
    }
}

impl KeyVerdicts {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            fresh: Cache::builder()
                .max_capacity(CAPACITY)
                .expire_after(Freshness)
                .build(),
            last_good: Cache::builder()
                .max_capacity(CAPACITY)
                .time_to_live(STANDS_FOR)
                .build(),
            questions: Arc::new(Semaphore::new(QUESTIONS)),
        }
    }

    /// Whose key this is, or `None` when it is nobody's. Requests with the same key share one question.
    pub(crate) async fn judge(&self, hash: [u8; 32]) -> Result<Option<Caller>, Arc<StoreError>> {
        self.fresh.try_get_with(hash, self.ask(hash)).await
    }

    async fn ask(&self, hash: [u8; 32]) -> Result<Option<Caller>, StoreError> {
        let former = self.last_good.get(&hash).await;
        let answer = if former.is_some() {
            let question = self.store.api_key_by_hash(&hash);
            let timely = tokio::time::timeout(PATIENCE, question).await;
            timely.unwrap_or(Err(StoreError::Unavailable(None)))
        } else {
            self.ask_of_a_stranger(&hash).await
        };
        match answer {
            Ok(Some(key)) if key.revoked_at.is_none() => {
                let caller = Caller {
                    org: key.org,
                    scopes: key.scopes,
                    credential: Credential::ApiKey(key.id),
                };
                self.last_good.insert(hash, caller.clone()).await;
                Ok(Some(caller))
            }
            Ok(_) => {
                self.last_good.invalidate(&hash).await;
                Ok(None)
            }
            Err(error) if error.is_unavailable() && former.is_some() => Ok(former),
            Err(error) => Err(error),
        }
    }

    /// Anybody can send a key that looks like one, so few of them are looked up at a time.
    async fn ask_of_a_stranger(&self, hash: &[u8; 32]) -> Result<Option<ApiKey>, StoreError> {
        let turn = tokio::time::timeout(QUEUE_PATIENCE, self.questions.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(StoreError::Unavailable(None));
        };
        self.store.api_key_by_hash(hash).await
    }
}

#[cfg(test)]
mod tests {
    use switchboard_store::testing::TestDatabase;

    use super::*;

    const STRANGERS: u8 = 40;

    #[tokio::test]
    async fn a_flood_of_made_up_keys_leaves_connections_to_others() {
        let database = TestDatabase::create().await.unwrap();
        let store = database.store();
        let verdicts = KeyVerdicts::new(store.clone());
        let lock = database.lock("api_keys").await.unwrap();
        let mut strangers = tokio::task::JoinSet::new();
        for byte in 0..STRANGERS {
            let verdicts = verdicts.clone();
            strangers.spawn(async move { verdicts.judge([byte; 32]).await });
        }
        // Those that get no turn are refused; others than they are answered all the while.
        for _ in QUESTIONS..usize::from(STRANGERS) {
            let error = strangers.join_next().await.unwrap().unwrap().unwrap_err();
            assert!(error.is_unavailable(), "{}", error.report());
            store.ping(Duration::from_secs(1)).await.unwrap();
        }
        lock.release().await.unwrap();
        while let Some(verdict) = strangers.join_next().await {
            assert!(verdict.unwrap().unwrap().is_none());
        }
    }
}
