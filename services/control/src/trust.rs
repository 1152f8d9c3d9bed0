//! Tells every node which tokens to trust: the public keys, and what was revoked.
//! Never: gives up; a node that starts later, or a bus that lost its memory, learns it within seconds.

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use switchboard_bus::{Bus, BusError};
use switchboard_runtime::{backoff::Backoff, shutdown::Shutdown};
use switchboard_store::{Store, StoreError};
use tokio::time::Instant;

use crate::{metrics::BackgroundMetrics, signing};

/// Between rounds. A revocation that the bus missed must still reach every node within 5 s: one round, and
/// the second or two after which nodes look at the bus again.
const ROUND: Duration = Duration::from_secs(2);
/// How long services objects stay that no device offers any more.
const CONTENTS_KEPT: chrono::Duration = chrono::Duration::days(1);
/// How long the end of a call stays that nobody waited for.
const CALLS_KEPT: Duration = Duration::from_secs(24 * 3_600);
/// How long the usage of organisations stays on record.
const USAGE_KEPT: Duration = Duration::from_secs(400 * 24 * 3_600);
/// Between purges of what is not needed any more.
const PURGE: Duration = Duration::from_secs(3_600);
/// How long a token stays on record after it expired, so that revoking it late is not "unknown".
const KEPT_AFTER_EXPIRY: TimeDelta = TimeDelta::days(1);
/// How long it is remembered who changed what.
const AUDIT_KEPT: TimeDelta = TimeDelta::days(365);

/// Publishes trust until it is told to stop.
pub(crate) struct Publisher {
    store: Store,
    bus: Bus,
    metrics: BackgroundMetrics,
    /// The kind of the last failure; a log line is written when it changes.
    trouble: Option<&'static str>,
    purge_at: Instant,
}

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error("the settings cannot be read")]
    Store(#[from] StoreError),
    #[error("the nodes cannot be told")]
    Bus(#[from] BusError),
}

impl RoundError {
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

impl Publisher {
    pub(crate) fn new(store: Store, bus: Bus, metrics: BackgroundMetrics) -> Self {
        Self {
            store,
            bus,
            metrics,
            trouble: None,
            purge_at: Instant::now() + PURGE,
        }
    }

    pub(crate) async fn run(mut self, shutdown: Shutdown) {
        let mut backoff = Backoff::new();
        loop {
            let round = tokio::select! {
                round = self.publish() => round,
                () = shutdown.draining() => return,
            };
            let goes_on = if self.succeeded(round) {
                backoff.reset();
                self.purge_when_due().await;
                rest(&shutdown).await
            } else {
                backoff.pause(&shutdown).await
            };
            if !goes_on {
                return;
            }
        }
    }

    async fn publish(&self) -> Result<(), RoundError> {
        let keys = signing::load(&self.store).await?.verifying;
        let revoked = self.store.revoked_tokens().await?;
        let revoked = revoked
            .into_iter()
            .filter_map(|token| Some((token.id, u64::try_from(token.expires_at.timestamp()).ok()?)))
            .collect();
        Ok(self.bus.publish_trust(keys, revoked).await?)
    }

    /// Counts the round, and logs when something changed.
    fn succeeded(&mut self, round: Result<(), RoundError>) -> bool {
        let trouble = round.as_ref().err().map(RoundError::kind);
        match round {
            Err(error) if trouble != self.trouble => {
                tracing::warn!(error = %error, cause = error.report(), "trust cannot be published; retrying");
            }
            Ok(()) if self.trouble.is_some() => tracing::info!("trust is published again"),
            _ => {}
        }
        self.trouble = trouble;
        self.metrics
            .trust_published
            .set(i64::from(trouble.is_none()));
        trouble.is_none()
    }

    async fn purge_when_due(&mut self) {
        if Instant::now() < self.purge_at {
            return;
        }
        self.purge_at = Instant::now() + PURGE;
        match self
            .store
            .purge_tokens(Utc::now() - KEPT_AFTER_EXPIRY)
            .await
        {
            Ok(purged) => self.metrics.tokens_purged.inc_by(purged),
            Err(error) => tracing::warn!(
                error = error.report(),
                "expired tokens stay on record for another hour"
            ),
        }
        match self.store.purge_calls().await {
            Ok(purged) => self.metrics.calls_purged.inc_by(purged),
            Err(error) => tracing::warn!(
                error = error.report(),
                "expired idempotent calls stay on record for another hour"
            ),
        }
        if let Err(error) = self.store.purge_kept_calls(CALLS_KEPT).await {
            tracing::warn!(
                error = error.report(),
                "calls that ended a day ago stay on record for another hour"
            );
        }
        if let Err(error) = self.store.purge_usage(USAGE_KEPT).await {
            tracing::warn!(
                error = error.report(),
                "old usage stays on record for another hour"
            );
        }
        match self.store.purge_answers().await {
            Ok(purged) => self.metrics.answers_purged.inc_by(purged),
            Err(error) => tracing::warn!(
                error = error.report(),
                "expired answers to idempotent requests stay on record for another hour"
            ),
        }
        if let Err(error) = self.store.purge_audit_log(Utc::now() - AUDIT_KEPT).await {
            tracing::warn!(
                error = error.report(),
                "the audit log keeps entries of more than a year for another hour"
            );
        }
        let untold_since = Utc::now() - CONTENTS_KEPT;
        if let Err(error) = self.store.purge_contents(untold_since).await {
            tracing::warn!(
                error = error.report(),
                "services that no device offers stay on record for another hour"
            );
        }
    }
}

async fn rest(shutdown: &Shutdown) -> bool {
    tokio::select! {
        () = tokio::time::sleep(ROUND) => true,
        () = shutdown.draining() => false,
    }
}
