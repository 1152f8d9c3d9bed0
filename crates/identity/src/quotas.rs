//! Admission of what is bounded by the quota of an organisation.
//!
//! Limits come from the bus, amounts from the database. An amount is cached for 10 s, or for 50 times
//! as long as its measurement took, together with what this process admitted since: an organisation
//! can exceed a quota by what it does with other processes in this time.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use moka::{Expiry, future::Cache};
use prometheus::Registry;
use switchboard_bus::{Bus, BusError};
use switchboard_protocol::id::OrgId;
use switchboard_runtime::{
    metrics::{Counters, Group},
    problem::{self, Problem},
    quota::{Quota, QuotaExceeded, QuotaUse, WARNING_PERCENT},
    shutdown::Shutdown,
};
use switchboard_store::{Store, StoreError};

/// How long an amount is used at least.
const MIN_TTL: Duration = Duration::from_secs(10);
/// How long it is used if its measurement took longer, as a multiple of that time. Bounds the part of
/// PostgreSQL that measurements take to 2 % for each process and quota, whatever the number of rows.
const TTL_FACTOR: u32 = 50;
/// How long an amount is used at most.
const MAX_TTL: Duration = Duration::from_secs(300);
/// Amounts that are cached. Protects memory.
const CACHE_CAPACITY: u64 = 50_000;

/// The quotas of organisations; cheap to clone.
#[derive(Clone)]
pub struct Quotas {
    store: Store,
    bus: Bus,
    amounts: Cache<(OrgId, Quota), Arc<Amount>>,
    refused: Option<Counters<Quota>>,
    measurements: Shutdown,
}

/// What an organisation uses of a quota.
struct Amount {
    /// As measured, and what this process admitted since.
    used: AtomicU64,
    ttl: Duration,
}

impl Amount {
    fn measured(used: u64, took: Duration) -> Self {
        Self {
            used: AtomicU64::new(used),
            ttl: (took * TTL_FACTOR).clamp(MIN_TTL, MAX_TTL),
        }
    }
}

struct AmountTtl;

impl Expiry<(OrgId, Quota), Arc<Amount>> for AmountTtl {
    fn expire_after_create(
        &self,
        _: &(OrgId, Quota),
        amount: &Arc<Amount>,
        _: Instant,
    ) -> Option<Duration> {
        Some(amount.ttl)
    }
}

/// Why something was not admitted.
#[derive(Debug, thiserror::Error)]
pub enum QuotaError {
    /// The organisation is at its quota.
    #[error(transparent)]
    Exceeded(#[from] QuotaExceeded),
    /// What it uses cannot be measured.
    #[error("the use of a quota cannot be measured")]
    Store(#[from] Arc<StoreError>),
}

impl From<QuotaError> for Problem {
    fn from(error: QuotaError) -> Self {
        match error {
            QuotaError::Exceeded(exceeded) => exceeded.into(),
            QuotaError::Store(error) => problem::store_failed(
                error.is_unavailable(),
                &error.report(),
                "the use of a quota cannot be measured",
                "Quotas cannot be checked at the moment. Try again in a moment.",
            ),
        }
    }
}

impl Quotas {
    /// Measures with this store, and reads limits and connected devices from this bus.
    #[must_use]
    pub(crate) fn new(store: Store, bus: Bus) -> Self {
        let amounts = Cache::builder()
            .max_capacity(CACHE_CAPACITY)
            .expire_after(AmountTtl)
            .build();
        Self {
            store,
            bus,
            amounts,
            refused: None,
            measurements: Shutdown::new(),
        }
    }

    /// Adds a counter of refusals of this service, by quota.
    pub(crate) fn with_metrics(
        self,
        service: &str,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        let group = Group::new(registry, "switchboard_http").with_service(service);
        let help = "Requests and turns refused because of the quota of an organisation, by quota";
        Ok(Self {
            refused: Some(group.counters("quota_refused_total", help, "quota")?),
            ..self
        })
    }

    /// Admits this much more.
    ///
    /// # Errors
    /// [`QuotaError::Exceeded`] if the organisation would have more than its quota.
    pub async fn admit(&self, org: OrgId, quota: Quota, more: u64) -> Result<(), QuotaError> {
        self.admit_part(org, quota, more, 1).await
    }

    /// Admits this much more for who gets a part of the quota: the half if `parts` is 2. The rest
    /// is left to others.
    ///
    /// # Errors
    /// [`QuotaError::Exceeded`] if the organisation would have more than this part of its quota.
    pub async fn admit_part(
        &self,
        org: OrgId,
        quota: Quota,
        more: u64,
        parts: u64,
    ) -> Result<(), QuotaError> {
        let Some(limit) = self.bus.quota_limit(org, quota).filter(|_| more > 0) else {
            return Ok(());
        };
        let limit = limit.div_ceil(parts);
        let amount = self.amount(org, quota).await?;
        let used = amount.used.fetch_add(more, Ordering::Relaxed);
        if used.saturating_add(more) <= limit {
            return Ok(());
        }
        amount.used.fetch_sub(more, Ordering::Relaxed);
        if let Some(refused) = &self.refused {
            refused.inc(quota);
        }
        Err(QuotaExceeded { quota, used, limit }.into())
    }

    /// Admits one that may exist already, which costs nothing then.
    ///
    /// `is_new` is executed only near the quota, from [`WARNING_PERCENT`]. Below, one counts as
    /// new until the next measurement.
    ///
    /// # Errors
    /// [`QuotaError::Exceeded`] if it is new and the organisation is at its quota.
    pub async fn admit_if_new(
        &self,
        org: OrgId,
        quota: Quota,
        is_new: impl Future<Output = Result<bool, StoreError>> + Send,
    ) -> Result<(), QuotaError> {
        let Some(limit) = self.bus.quota_limit(org, quota) else {
            return Ok(());
        };
        let used = self.amount(org, quota).await?.used.load(Ordering::Relaxed);
        let is_near = used.saturating_add(1).saturating_mul(100) > limit * WARNING_PERCENT;
        if is_near && !is_new.await.map_err(Arc::new)? {
            return Ok(());
        }
        self.admit(org, quota, 1).await
    }

    /// Adds what was used without admission, until the next measurement.
    pub async fn add(&self, org: OrgId, quota: Quota, more: usize) {
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        if let Some(amount) = self.amounts.get(&(org, quota)).await {
            amount.used.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Concurrent requests share one measurement, and add to the same amount. The measurement ends
    /// also when they do not wait for it.
    async fn amount(&self, org: OrgId, quota: Quota) -> Result<Arc<Amount>, Arc<StoreError>> {
        if let Some(amount) = self.amounts.get(&(org, quota)).await {
            return Ok(amount);
        }
        let (amounts, store) = (self.amounts.clone(), self.store.clone());
        let measure = async move {
            let begun = Instant::now();
            let measured = store.measure_quotas(org, &[quota]).await?;
            let used = measured.get(&quota).copied().unwrap_or_default();
            Ok(Arc::new(Amount::measured(used, begun.elapsed())))
        };
        let measured = self
            .measurements
            .spawn(async move { amounts.try_get_with((org, quota), measure).await });
        let stopped = |_| Err(Arc::new(StoreError::Unavailable(None)));
        measured.await.unwrap_or_else(stopped)
    }

    /// Measures how much of each quota an organisation uses. Connected devices are left out while
    /// the bus is not reachable.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn measure(&self, org: OrgId) -> Result<Vec<QuotaUse>, StoreError> {
        let amounts = self.store.measure_quotas(org, &Quota::ALL).await?;
        Ok(self.uses(org, amounts).await)
    }

    /// The same outside the organisation's share of database connections, for background work.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn check(&self, org: OrgId) -> Result<Vec<QuotaUse>, StoreError> {
        let amounts = self.store.check_quotas(org).await?;
        Ok(self.uses(org, amounts).await)
    }

    async fn uses(&self, org: OrgId, mut amounts: BTreeMap<Quota, u64>) -> Vec<QuotaUse> {
        if let Ok::<_, BusError>(devices) = self.bus.count_devices(org).await {
            amounts.insert(Quota::DevicesConnected, devices);
        }
        let amounts = amounts.into_iter();
        amounts
            .map(|(quota, used)| QuotaUse {
                quota,
                used,
                limit: self.bus.quota_limit(org, quota),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_measurement_is_used_longer() {
        for (took, expect) in [
            (0, 10_000),
            (200, 10_000),
            (1_000, 50_000),
            (60_000, 300_000),
        ] {
            let ttl = Amount::measured(7, Duration::from_millis(took)).ttl;
            assert_eq!(ttl, Duration::from_millis(expect), "{took} ms");
        }
    }
}
