//! The limit of an organisation's live tokens: each can be revoked, and every node stores its
//! revocation until it expires.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use moka::future::Cache;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::problem::{Problem, ProblemKind};
use switchboard_store::Store;

use crate::http::error::ControlError;

/// How long a count is used. Other processes issue tokens as well, and the tokens expire.
const COUNT_TTL: Duration = Duration::from_secs(10);
/// Organisations whose count is cached. Protects memory.
const CACHE_CAPACITY: u64 = 10_000;

/// Counts the live tokens of organisations; cheap to clone.
#[derive(Clone)]
pub(crate) struct TokenQuota {
    limit: u64,
    counts: Cache<OrgId, Arc<AtomicU64>>,
}

impl TokenQuota {
    pub(crate) fn new(limit: u64) -> Self {
        let counts = Cache::builder()
            .max_capacity(CACHE_CAPACITY)
            .time_to_live(COUNT_TTL)
            .build();
        Self { limit, counts }
    }

    /// Counts one more token of this organisation.
    ///
    /// # Errors
    /// A 409 problem if the organisation is at the limit.
    pub(super) async fn take(&self, store: &Store, org: OrgId) -> Result<(), ControlError> {
        let count = match self.counts.get(&org).await {
            Some(count) => count,
            None => {
                let count = Arc::new(AtomicU64::new(store.count_live_tokens(org).await?));
                self.counts.insert(org, Arc::clone(&count)).await;
                count
            }
        };
        if count.fetch_add(1, Ordering::Relaxed) < self.limit {
            return Ok(());
        }
        count.fetch_sub(1, Ordering::Relaxed);
        Err(too_many(self.limit).into())
    }
}

fn too_many(limit: u64) -> Problem {
    let detail = format!(
        "The organisation has {limit} access tokens that have not expired, which is the limit. \
         Issue tokens with a shorter lifetime, or wait until some expire."
    );
    Problem::new(ProblemKind::TooManyTokens, detail).with("limit", limit)
}
