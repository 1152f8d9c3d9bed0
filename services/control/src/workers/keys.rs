//! Publishes token keys, revocations, suspended organisations and quotas to all nodes.
//!
//! It compares what is stored with what is published, and publishes the difference: a bus that lost
//! its data has all of it within seconds.

use std::{collections::HashSet, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use switchboard_bus::{Bus, BusError};
use switchboard_protocol::{id::TokenId, token::AccessError};
use switchboard_runtime::{backoff::Backoff, quota::Limits, shutdown::Shutdown};
use switchboard_store::{Store, StoreError};
use tokio::time::Instant;

use crate::{
    Config, Deps,
    key_set::KeySetSigner,
    metrics::BackgroundMetrics,
    quotas,
    signing_keys::{self, PublicKeys},
};

/// A revocation that was not published must still reach every node within 5 s: one interval, and
/// one or two seconds until nodes poll the bus.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(2);
/// Between comparisons of all revocations. In between, only new ones are published.
const COMPARE_INTERVAL: Duration = Duration::from_secs(60);
/// A revocation becomes visible at most this long after its time: longer than a statement may take.
const REVOCATION_OVERLAP: TimeDelta = TimeDelta::seconds(10);

/// Publishes keys and revocations until the process drains.
pub(super) struct KeyPublisher {
    store: Store,
    bus: Bus,
    public_keys: PublicKeys,
    metrics: BackgroundMetrics,
    /// The kind of the last failure. A log line is written when it changes.
    failure: Option<&'static str>,
    revocations: PublishedRevocations,
    quota_defaults: Limits,
    signer: KeySetSigner,
}

/// The revocations that this process has published.
#[derive(Default)]
struct PublishedRevocations {
    /// When the store was last read, by its clock; `None` before the first time.
    read_at: Option<DateTime<Utc>>,
    /// What was read then: later readings overlap with that one.
    newest: HashSet<TokenId>,
    compare_at: Option<Instant>,
}

/// Why a publication failed.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error("the keys cannot be loaded")]
    Store(#[from] StoreError),
    #[error("the bus is unavailable")]
    Bus(#[from] BusError),
    #[error("the keys cannot be signed")]
    Sign(#[from] AccessError),
}

impl PublishError {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Store(error) => error.kind(),
            Self::Bus(_) => "bus",
            Self::Sign(_) => "sign",
        }
    }

    fn report(&self) -> String {
        match self {
            Self::Store(error) => error.report(),
            Self::Bus(error) => error.to_string(),
            Self::Sign(error) => error.to_string(),
        }
    }
}

impl KeyPublisher {
    pub(super) fn new(config: &Config, deps: &Deps, metrics: BackgroundMetrics) -> Self {
        Self {
            store: deps.store.clone(),
            bus: deps.bus.clone(),
            public_keys: deps.public_keys.clone(),
            metrics,
            failure: None,
            revocations: PublishedRevocations::default(),
            quota_defaults: config.quotas.limits(),
            signer: KeySetSigner::default(),
        }
    }

    pub(super) async fn run(mut self, shutdown: Shutdown) {
        let mut backoff = Backoff::new();
        loop {
            let published = tokio::select! {
                published = self.publish() => published,
                () = shutdown.draining() => return,
            };
            let is_running = if self.report(published) {
                backoff.reset();
                wait_for_next(&shutdown).await
            } else {
                backoff.pause(&shutdown).await
            };
            if !is_running {
                return;
            }
        }
    }

    async fn publish(&mut self) -> Result<(), PublishError> {
        let published = self.publish_changes().await;
        if published.is_err() {
            // What reached Redis is unknown: the next attempt compares.
            self.revocations = PublishedRevocations::default();
        }
        published
    }

    async fn publish_changes(&mut self) -> Result<(), PublishError> {
        let keys = signing_keys::load(&self.store, None).await?.verifying;
        self.public_keys.set(&keys);
        let published = self.bus.key_set().await?;
        let is_lost = published.is_none();
        let published = published.unwrap_or_default();
        let suspended = self.store.suspended_orgs().await?;
        // First, so that no node has keys without the suspended organisations.
        if published.suspended != suspended.orgs {
            // Read after the published list, so it is newer, even if the clock was set back.
            let newer = published.suspended_version.map_or(0, |version| version + 1);
            let version = suspended.version.max(newer);
            let published = self.bus.publish_suspended_orgs(&suspended.orgs, version);
            published.await?;
        }
        let quotas = quotas::load(&self.store, &self.quota_defaults).await?;
        let published_quotas = match self.bus.published_quotas().await {
            // Unreadable ones are replaced, too; keys and revocations do not depend on them.
            Err(BusError::Unexpected(_)) => None,
            read => read?,
        };
        if published_quotas.as_ref() != Some(&quotas) {
            self.bus.publish_quotas(&quotas).await?;
        }
        let since = self.published_until(is_lost, published.revocations).await?;
        let read = self.store.revocations(since).await?;
        let newest: HashSet<TokenId> = read.tokens.iter().map(|token| token.id).collect();
        let former = &self.revocations.newest;
        let new = read
            .tokens
            .iter()
            .filter(|token| since.is_none() || !former.contains(&token.id))
            .filter_map(|token| {
                Some((token.id, u64::try_from(token.expires_at.timestamp()).ok()?))
            });
        let new: Vec<_> = new.collect();
        let key = self.store.master_keys().key_set_key();
        let (keys, has_changed) = self.signer.sign(key, keys, &published, read.read_at)?;
        if is_lost || has_changed || !new.is_empty() {
            self.bus.publish_keys(keys, new).await?;
        }
        self.revocations.newest = newest;
        self.revocations.read_at = Some(read.read_at);
        Ok(())
    }

    /// The time until which all revocations are published; `None` if some may not be.
    async fn published_until(
        &mut self,
        is_lost: bool,
        published: usize,
    ) -> Result<Option<DateTime<Utc>>, StoreError> {
        let now = Instant::now();
        let mut lacks = is_lost;
        if self.revocations.compare_at.is_none_or(|at| at <= now) {
            lacks |= self.store.count_revocations().await? > published;
            self.revocations.compare_at = Some(now + COMPARE_INTERVAL);
        }
        let read_at = self.revocations.read_at.filter(|_| !lacks);
        Ok(read_at.map(|read_at| read_at - REVOCATION_OVERLAP))
    }

    /// Updates the metric, logs changes, and returns whether the publication succeeded.
    fn report(&mut self, published: Result<(), PublishError>) -> bool {
        let failure = published.as_ref().err().map(PublishError::kind);
        match published {
            Err(error) if failure != self.failure => {
                tracing::warn!(error = %error, cause = error.report(), "token keys cannot be published; retrying");
            }
            Ok(()) if self.failure.is_some() => tracing::info!("token keys are published again"),
            _ => {}
        }
        self.failure = failure;
        self.metrics
            .keys_published
            .set(i64::from(failure.is_none()));
        failure.is_none()
    }
}

/// False when draining begins.
async fn wait_for_next(shutdown: &Shutdown) -> bool {
    tokio::select! {
        () = tokio::time::sleep(PUBLISH_INTERVAL) => true,
        () = shutdown.draining() => false,
    }
}
