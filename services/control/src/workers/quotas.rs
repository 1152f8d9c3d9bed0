//! Warns organisations that have nearly used up a quota.
//!
//! Invariant: an organisation is warned once of a quota, until its use falls.

use std::time::Duration;

use switchboard_identity::Quotas;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::{
    quota::{Quota, WARNING_PERCENT},
    shutdown::Shutdown,
};
use switchboard_store::{Store, StoreError};
use tokio::time::Instant;

use crate::{Config, Deps, metrics::QuotaMetrics};

/// Between looks for organisations that are due.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Between counts of warned organisations, for the metric.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);
/// Organisations that are claimed at once.
const CLAIM_BATCH: u32 = 20;

/// Measures organisations, one after the other.
pub(super) struct QuotaChecker {
    store: Store,
    quotas: Quotas,
    interval: Duration,
    metrics: QuotaMetrics,
    count_at: Instant,
    /// The kind of the last failure. A log line is written when it changes.
    failure: Option<&'static str>,
}

impl QuotaChecker {
    pub(super) fn new(config: &Config, deps: &Deps, metrics: QuotaMetrics) -> Self {
        Self {
            store: deps.store.clone(),
            quotas: deps.authenticator.quotas().clone(),
            interval: Duration::from_secs(config.quotas.quota_check_interval_s.into()),
            metrics,
            count_at: Instant::now(),
            failure: None,
        }
    }

    pub(super) async fn run(mut self, shutdown: Shutdown) {
        loop {
            let started = Instant::now();
            let checked = tokio::select! {
                checked = self.check() => checked,
                () = shutdown.draining() => return,
            };
            self.report(checked);
            // At most half of a connection, however large the organisations are.
            let pause = POLL_INTERVAL.max(started.elapsed());
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = shutdown.draining() => return,
            }
        }
    }

    /// The failure of one organisation does not keep off the others. Returns the last one.
    async fn check(&mut self) -> Result<(), StoreError> {
        let orgs = self.store.claim_quota_checks(self.interval, CLAIM_BATCH);
        let mut checked = Ok(());
        for org in orgs.await? {
            if let Err(error) = self.check_org(org).await {
                checked = Err(error);
            }
        }
        if self.count_at <= Instant::now() {
            self.count_at = Instant::now() + COUNT_INTERVAL;
            self.count_warnings().await?;
        }
        checked
    }

    async fn count_warnings(&self) -> Result<(), StoreError> {
        let counts = self.store.count_quota_warnings().await?;
        for quota in Quota::ALL {
            let count = counts.get(quota.as_str()).copied().unwrap_or_default();
            self.metrics.set_warned_orgs(quota, count);
        }
        Ok(())
    }

    async fn check_org(&self, org: OrgId) -> Result<(), StoreError> {
        let uses = self.quotas.check(org).await?;
        for warning in self.store.record_quota_use(org, &uses).await? {
            tracing::warn!(
                org.id = %org,
                quota = warning.quota.as_str(),
                used = warning.used,
                limit = warning.limit,
                "an organisation uses more than {WARNING_PERCENT} % of a quota"
            );
        }
        Ok(())
    }

    fn report(&mut self, checked: Result<(), StoreError>) {
        let failure = checked.as_ref().err().map(StoreError::kind);
        if let Err(error) = checked
            && failure != self.failure
        {
            tracing::warn!(
                error = error.report(),
                "the use of quotas cannot be measured; retrying"
            );
        }
        self.failure = failure;
    }
}
