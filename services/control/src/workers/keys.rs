//! Publishes token keys and revocations to all nodes, and deletes expired rows.
//!
//! It publishes repeatedly: a node that starts later, or a bus that lost its data,
//! gets the current keys within seconds.

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use switchboard_bus::{Bus, BusError};
use switchboard_runtime::{backoff::Backoff, shutdown::Shutdown};
use switchboard_store::{Store, StoreError};
use tokio::time::Instant;

use crate::{metrics::BackgroundMetrics, signing_keys};

/// A revocation that was not published must still reach every node within 5 s: one interval, and
/// one or two seconds until nodes poll the bus.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(2);
/// How long the services of a device are stored after no device has them.
const SERVICES_TTL: chrono::Duration = chrono::Duration::days(1);
/// How long the result of an asynchronous call is stored.
const CALL_TTL: Duration = Duration::from_secs(24 * 3_600);
/// How long the usage of organisations is stored.
const USAGE_TTL: Duration = Duration::from_secs(400 * 24 * 3_600);
/// Between deletions of expired rows.
const PURGE_INTERVAL: Duration = Duration::from_secs(3_600);
/// How long a token is stored after its expiry, so that a late revocation finds it.
const EXPIRED_TOKEN_TTL: TimeDelta = TimeDelta::days(1);
/// How long entries of the audit log are stored.
const AUDIT_LOG_TTL: TimeDelta = TimeDelta::days(365);

/// Publishes keys and revocations until the process drains.
pub(super) struct KeyPublisher {
    store: Store,
    bus: Bus,
    metrics: BackgroundMetrics,
    /// The kind of the last failure. A log line is written when it changes.
    failure: Option<&'static str>,
    purge_at: Instant,
}

/// Why a publication failed.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error("the keys cannot be loaded")]
    Store(#[from] StoreError),
    #[error("the bus is unavailable")]
    Bus(#[from] BusError),
}

impl PublishError {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Store(error) => error.kind(),
            Self::Bus(_) => "bus",
        }
    }

    fn report(&self) -> String {
        match self {
            Self::Store(error) => error.report(),
            Self::Bus(error) => error.to_string(),
        }
    }
}

impl KeyPublisher {
    pub(super) fn new(store: Store, bus: Bus, metrics: BackgroundMetrics) -> Self {
        Self {
            store,
            bus,
            metrics,
            failure: None,
            purge_at: Instant::now() + PURGE_INTERVAL,
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
                self.purge_when_due().await;
                wait_for_next(&shutdown).await
            } else {
                backoff.pause(&shutdown).await
            };
            if !is_running {
                return;
            }
        }
    }

    async fn publish(&self) -> Result<(), PublishError> {
        let keys = signing_keys::load(&self.store).await?.verifying;
        let revoked = self.store.revoked_tokens().await?;
        let revoked = revoked
            .into_iter()
            .filter_map(|token| Some((token.id, u64::try_from(token.expires_at.timestamp()).ok()?)))
            .collect();
        Ok(self.bus.publish_keys(keys, revoked).await?)
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

    async fn purge_when_due(&mut self) {
        if Instant::now() < self.purge_at {
            return;
        }
        self.purge_at = Instant::now() + PURGE_INTERVAL;
        match self
            .store
            .purge_tokens(Utc::now() - EXPIRED_TOKEN_TTL)
            .await
        {
            Ok(purged) => self.metrics.tokens_purged.inc_by(purged),
            Err(error) => tracing::warn!(
                error = error.report(),
                "expired tokens cannot be deleted; retrying in an hour"
            ),
        }
        match self.store.purge_calls().await {
            Ok(purged) => self.metrics.calls_purged.inc_by(purged),
            Err(error) => tracing::warn!(
                error = error.report(),
                "expired idempotent calls cannot be deleted; retrying in an hour"
            ),
        }
        if let Err(error) = self.store.purge_stored_calls(CALL_TTL).await {
            tracing::warn!(
                error = error.report(),
                "expired results of asynchronous calls cannot be deleted; retrying in an hour"
            );
        }
        if let Err(error) = self.store.purge_usage(USAGE_TTL).await {
            tracing::warn!(
                error = error.report(),
                "expired usage cannot be deleted; retrying in an hour"
            );
        }
        match self.store.purge_responses().await {
            Ok(purged) => self.metrics.responses_purged.inc_by(purged),
            Err(error) => tracing::warn!(
                error = error.report(),
                "expired responses to idempotent requests cannot be deleted; retrying in an hour"
            ),
        }
        if let Err(error) = self.store.purge_audit_log(Utc::now() - AUDIT_LOG_TTL).await {
            tracing::warn!(
                error = error.report(),
                "expired audit log entries cannot be deleted; retrying in an hour"
            );
        }
        let unused_since = Utc::now() - SERVICES_TTL;
        if let Err(error) = self.store.purge_contents(unused_since).await {
            tracing::warn!(
                error = error.report(),
                "unused services cannot be deleted; retrying in an hour"
            );
        }
    }
}

/// False when draining begins.
async fn wait_for_next(shutdown: &Shutdown) -> bool {
    tokio::select! {
        () = tokio::time::sleep(PUBLISH_INTERVAL) => true,
        () = shutdown.draining() => false,
    }
}
