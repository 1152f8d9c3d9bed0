//! The quotas and some settings of organisations, as the control plane publishes them to all nodes.
//!
//! A node polls them together with the token keys. While the bus is not reachable it continues with
//! those that it has; before the first ones, nothing is limited.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use switchboard_protocol::id::OrgId;
use switchboard_runtime::quota::{Limits, Quota, QuotaExceeded};

use crate::{
    backend::BackendFuture,
    bus::{Bus, Node},
    error::BusError,
    transport::Message,
};

/// The quotas of all organisations, and of their settings those that all nodes need.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaLimits {
    /// For organisations without one of their own.
    pub defaults: Limits,
    /// What organisations have in place of the defaults.
    pub orgs: Vec<(OrgId, Limits)>,
    /// The language of their users as BCP 47 tags, of organisations that name one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locales: Vec<(OrgId, String)>,
    /// The organisations that want params and results in the journal of their calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub journal_params: Vec<OrgId>,
    /// Those that approve services before models call them. `None` if they were published by a control plane of a
    /// release that does not know them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approving: Option<Vec<OrgId>>,
}

/// Stores the published quotas, and counts what they bound on the bus.
pub(crate) trait QuotaStore: Send + Sync + 'static {
    /// Replaces the quotas.
    fn publish_quotas<'a>(&'a self, quotas: &'a QuotaLimits) -> BackendFuture<'a, ()>;

    /// The stored quotas; `None` when nothing is stored.
    fn quotas(&self) -> BackendFuture<'_, Option<QuotaLimits>>;

    /// The number of an organisation's live devices.
    fn count_devices(&self, org: OrgId) -> BackendFuture<'_, u64>;
}

/// Why a claim is refused.
pub(crate) const fn too_many_devices(used: u64, limit: u64) -> BusError {
    BusError::Quota(QuotaExceeded {
        quota: Quota::DevicesConnected,
        used,
        limit,
    })
}

/// The quotas that this node knows.
#[derive(Default)]
pub(crate) struct KnownQuotas {
    published: QuotaLimits,
    orgs: HashMap<OrgId, Limits>,
    locales: HashMap<OrgId, String>,
    journal_params: HashSet<OrgId>,
    approving: Option<HashSet<OrgId>>,
}

impl From<QuotaLimits> for KnownQuotas {
    fn from(published: QuotaLimits) -> Self {
        Self {
            orgs: published.orgs.iter().cloned().collect(),
            locales: published.locales.iter().cloned().collect(),
            journal_params: published.journal_params.iter().copied().collect(),
            approving: published.approving.clone().map(HashSet::from_iter),
            published,
        }
    }
}

impl KnownQuotas {
    fn limit(&self, org: OrgId, quota: Quota) -> Option<u64> {
        let own = self.orgs.get(&org).and_then(|own| own.0.get(&quota));
        let limit = own.or_else(|| self.published.defaults.0.get(&quota));
        limit.copied().filter(|limit| *limit > 0)
    }
}

impl Node {
    /// Reads the published quotas. Reports when they become unusable for another reason than
    /// before, and when they are usable again.
    pub(crate) async fn follow_quotas(&self, unusable: &mut Option<String>) {
        let now = match self.read_quotas().await {
            Ok(()) => None,
            Err(BusError::Unexpected(reason)) => Some(reason),
            // The bus is not reachable.
            Err(_) => return,
        };
        match &now {
            Some(reason) if now != *unusable => tracing::error!(
                %reason,
                "the published quotas are not usable; the former ones stay in use"
            ),
            None if unusable.is_some() => {
                tracing::info!("the published quotas are adopted again");
            }
            _ => {}
        }
        *unusable = now;
    }

    async fn read_quotas(&self) -> Result<(), BusError> {
        if let Some(quotas) = self.backend.quotas().await? {
            let known = self.quotas.load();
            if known.published != quotas {
                self.quotas.store(Arc::new(quotas.into()));
            }
        }
        Ok(())
    }
}

impl Bus {
    /// How much of a quota an organisation may have; `None` is unlimited.
    #[must_use]
    pub fn quota_limit(&self, org: OrgId, quota: Quota) -> Option<u64> {
        self.0.quotas.load().limit(org, quota)
    }

    /// Reads the language of an organisation's users as a BCP 47 tag, if it names one. It is borrowed,
    /// because messages of devices ask for it.
    pub fn org_locale<T>(&self, org: OrgId, read: impl FnOnce(&str) -> T) -> Option<T> {
        let quotas = self.0.quotas.load();
        quotas.locales.get(&org).map(|locale| read(locale))
    }

    /// Whether an organisation wants params and results in the journal of its calls.
    #[must_use]
    pub fn journals_params(&self, org: OrgId) -> bool {
        self.0.quotas.load().journal_params.contains(&org)
    }

    /// Whether an organisation approves services before models call them. `None` while nothing that is published with
    /// it was read.
    #[must_use]
    pub fn requires_approvals(&self, org: OrgId) -> Option<bool> {
        let known = self.0.quotas.load();
        let approving = known.approving.as_ref()?;
        Some(approving.contains(&org))
    }

    /// What is published. `None` when nothing is, such as after the backend lost its data.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn published_quotas(&self) -> Result<Option<QuotaLimits>, BusError> {
        self.0.backend.quotas().await
    }

    /// Publishes the quotas to all nodes, in place of the former ones.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn publish_quotas(&self, quotas: &QuotaLimits) -> Result<(), BusError> {
        let node = &self.0;
        node.backend.publish_quotas(quotas).await?;
        node.keys_changed.notify_one();
        node.broadcast(&Message::KeysChanged).await
    }

    /// The number of an organisation's connected devices, with those of nodes that died seconds
    /// ago.
    ///
    /// # Errors
    /// When the bus is not reachable.
    pub async fn count_devices(&self, org: OrgId) -> Result<u64, BusError> {
        self.0.backend.count_devices(org).await
    }
}
