//! Which services models may call, of organisations that require approvals.
//!
//! The policy comes from the bus, the approvals from the database: cached for 5 s, or until a change of them is published.
//!
//! Invariant: what cannot be read is not approved.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use moka::future::Cache;
use switchboard_bus::Bus;
use switchboard_protocol::{
    id::{DeviceId, DeviceKey, OrgId},
    schema::Digest,
};
use switchboard_runtime::budget::Budgets;
use switchboard_store::{ModelApproval, Store, StoreError};

/// How long approvals are used after they were read, where the publication of a change was lost.
const TTL: Duration = Duration::from_secs(5);
/// Size of the approvals that a process caches. Protects memory.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// The approvals of organisations; cheap to clone.
#[derive(Clone)]
pub struct Approvals {
    store: Store,
    bus: Bus,
    /// By organisation and by edition, so that a change replaces what was read before.
    cache: Cache<(OrgId, u64), Option<Arc<ApprovedServices>>>,
}

/// What an organisation has approved.
#[derive(Debug, Default)]
pub struct ApprovedServices {
    on_all_devices: HashSet<Digest>,
    on_devices: HashMap<DeviceId, HashSet<Digest>>,
}

/// The approvals of an organisation that requires them cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("models call only services that were approved, and the approvals cannot be read")]
pub struct ApprovalsUnavailable(#[source] Arc<StoreError>);

impl Approvals {
    /// Reads the policy from this bus and the approvals from this store.
    #[must_use]
    pub(crate) fn new(store: Store, bus: Bus, budgets: &Budgets) -> Self {
        budgets.reserve("approvals", CACHE_BYTES);
        let cache = Cache::builder()
            .max_capacity(CACHE_BYTES as u64)
            .weigher(|key, approved: &Option<Arc<ApprovedServices>>| {
                let approved = approved.as_ref().map_or(0, |approved| approved.bytes());
                u32::try_from(approved + size_of_val(key)).unwrap_or(u32::MAX)
            })
            .time_to_live(TTL)
            .build();
        Self { store, bus, cache }
    }

    /// What an organisation has approved; `None` if it requires no approvals, which costs no query.
    ///
    /// # Errors
    /// If it requires approvals and they cannot be read, or if it is not known whether it does.
    pub async fn of(
        &self,
        org: OrgId,
    ) -> Result<Option<Arc<ApprovedServices>>, ApprovalsUnavailable> {
        let required = self.bus.requires_approvals(org);
        if required == Some(false) {
            return Ok(None);
        }
        let key = (org, self.bus.approvals_edition(org));
        let read = async {
            if required.is_none() && !self.is_required(org).await? {
                return Ok::<_, StoreError>(None);
            }
            let digests = self.store.approved_digests(org).await?;
            Ok(Some(Arc::new(digests.into_iter().collect())))
        };
        // Boxed: the future is large, and that of every call of a model contains it.
        let read = Box::pin(self.cache.try_get_with(key, read)).await;
        read.map_err(ApprovalsUnavailable)
    }

    /// Before this node has read what is published.
    async fn is_required(&self, org: OrgId) -> Result<bool, StoreError> {
        let org = self.store.org(org).await?;
        Ok(org.is_some_and(|org| org.settings.model_approval == ModelApproval::Required))
    }
}

impl ApprovedServices {
    /// Whether a service with this digest may be called on a device.
    #[must_use]
    pub fn permit(&self, device: &DeviceKey, service: &Digest) -> bool {
        let own = self.on_devices.get(&device.device);
        self.on_all_devices.contains(service) || own.is_some_and(|own| own.contains(service))
    }

    /// Estimated size in memory.
    fn bytes(&self) -> usize {
        /// Of an entry in a table that is at least half full.
        const ENTRY: usize = 2 * size_of::<Digest>();
        let own = self.on_devices.iter().map(|(device, digests)| {
            2 * size_of::<(DeviceId, HashSet<Digest>)>()
                + device.as_str().len()
                + 4 * ENTRY
                + digests.len() * ENTRY
        });
        size_of::<Self>() + self.on_all_devices.len() * ENTRY + own.sum::<usize>()
    }
}

impl FromIterator<(Option<DeviceId>, Digest)> for ApprovedServices {
    fn from_iter<I: IntoIterator<Item = (Option<DeviceId>, Digest)>>(approvals: I) -> Self {
        let mut approved = Self::default();
        for (device, digest) in approvals {
            match device {
                Some(device) => approved
                    .on_devices
                    .entry(device)
                    .or_default()
                    .insert(digest),
                None => approved.on_all_devices.insert(digest),
            };
        }
        approved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approval_is_for_its_device_or_for_all() {
        let [shared, own] = [b"a", b"b"].map(|json| Digest::compute(json));
        let approved: ApprovedServices = [(None, shared), (Some("toy-1".parse().unwrap()), own)]
            .into_iter()
            .collect();
        let permit = |device: &str, service| {
            let device = DeviceKey {
                org: "org_0000000000000000000000000000abcd".parse().unwrap(),
                device: device.parse().unwrap(),
            };
            approved.permit(&device, &service)
        };
        assert_eq!(
            [permit("toy-1", shared), permit("toy-2", shared)],
            [true, true]
        );
        assert_eq!([permit("toy-1", own), permit("toy-2", own)], [true, false]);
        assert!(!permit("toy-1", Digest::compute(b"c")));
    }
}
