//! Deletes expired rows, every hour: in a task of its own, because there may be many of them.

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::Store;

use crate::metrics::BackgroundMetrics;

/// How long the services of a device are stored after no device has them.
const SERVICES_TTL: chrono::Duration = chrono::Duration::days(1);
/// How long the events of a forgotten device may be on their way.
const FORGOTTEN_TTL: chrono::Duration = chrono::Duration::days(7);
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
/// Stored entries of one organisation. Protects the disk.
const MAX_AUDIT_ENTRIES: i64 = 1_000_000;
/// How long a key is listed after it was revoked or has expired.
const UNUSABLE_KEY_TTL: TimeDelta = TimeDelta::days(30);
/// Revoked and expired keys of one organisation. Protects the database.
const MAX_UNUSABLE_KEYS: i64 = 1_000;

/// Deletes expired rows until the process drains.
pub(super) struct RowPurge {
    store: Store,
    metrics: BackgroundMetrics,
}

impl RowPurge {
    pub(super) const fn new(store: Store, metrics: BackgroundMetrics) -> Self {
        Self { store, metrics }
    }

    /// What is not deleted before the process drains is deleted by another one, or an hour later.
    pub(super) async fn run(self, shutdown: Shutdown) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(PURGE_INTERVAL) => {}
                () = shutdown.draining() => return,
            }
            tokio::select! {
                () = self.purge() => {}
                () = shutdown.draining() => return,
            }
        }
    }

    async fn purge(&self) {
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
        self.purge_settings().await;
        self.purge_devices().await;
        self.purge_recent_calls().await;
        self.purge_recordings().await;
    }

    /// What remains of changes of settings, and of keys.
    async fn purge_settings(&self) {
        let expired = Utc::now() - AUDIT_LOG_TTL;
        let purged = self.store.purge_audit_log(expired, MAX_AUDIT_ENTRIES);
        if let Err(error) = purged.await {
            tracing::warn!(
                error = error.report(),
                "expired audit log entries cannot be deleted; retrying in an hour"
            );
        }
        let unusable_since = Utc::now() - UNUSABLE_KEY_TTL;
        let purged = self.store.purge_api_keys(unusable_since, MAX_UNUSABLE_KEYS);
        if let Err(error) = purged.await {
            tracing::warn!(
                error = error.report(),
                "revoked and expired API keys cannot be deleted; retrying in an hour"
            );
        }
    }

    async fn purge_devices(&self) {
        let unused_since = Utc::now() - SERVICES_TTL;
        if let Err(error) = self.store.purge_contents(unused_since).await {
            tracing::warn!(
                error = error.report(),
                "unused services cannot be deleted; retrying in an hour"
            );
        }
        let forgotten_before = Utc::now() - FORGOTTEN_TTL;
        if let Err(error) = self.store.purge_forgotten_devices(forgotten_before).await {
            tracing::warn!(
                error = error.report(),
                "the marks of forgotten devices cannot be deleted; retrying in an hour"
            );
        }
    }

    async fn purge_recent_calls(&self) {
        if let Err(error) = self.store.purge_recent_calls().await {
            tracing::warn!(
                error = error.report(),
                "old calls cannot be deleted from the journal; retrying in an hour"
            );
        }
    }

    async fn purge_recordings(&self) {
        match self.store.purge_recordings().await {
            Ok(0) => {}
            Ok(recordings) => {
                tracing::info!(recordings, "recordings deleted after their retention")
            }
            Err(error) => tracing::warn!(
                error = error.report(),
                "recordings cannot be deleted after their retention; retrying in an hour"
            ),
        }
    }
}
