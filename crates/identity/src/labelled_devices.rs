//! The devices that have a label, for credentials that a label restricts.

use std::{collections::HashSet, sync::Arc, time::Duration};

use moka::future::Cache;
use switchboard_protocol::{
    id::{DeviceId, DeviceRange, OrgId},
    label::DeviceLabel,
    token::Outside,
};
use switchboard_runtime::{budget::Budgets, problem::Problem};
use switchboard_store::{Store, StoreError};

use crate::problems;

/// The most devices with one label that restricts a credential. Protects memory and the database.
const MAX_DEVICES: usize = 10_000;
/// How long it takes at most until a label that was added or removed counts.
const TTL: Duration = Duration::from_secs(3);
/// The size of the cache. Evicted entries cost a query.
const CACHE_BYTES: usize = 8 * 1024 * 1024;

/// Reads the devices that have a label, and caches them for [`TTL`]; cheap to clone.
#[derive(Clone)]
pub(crate) struct LabelledDevices {
    store: Store,
    /// `None`: more than [`MAX_DEVICES`].
    cache: Cache<(OrgId, DeviceLabel), Option<Arc<HashSet<DeviceId>>>>,
}

impl LabelledDevices {
    pub(crate) fn new(store: Store, budgets: &Budgets) -> Self {
        budgets.reserve("labelled_devices", CACHE_BYTES);
        let cache = Cache::builder()
            .max_capacity(CACHE_BYTES as u64)
            .weigher(|(_, label): &(OrgId, DeviceLabel), devices: &Option<_>| {
                let devices = devices.as_deref().map_or(0, bytes);
                u32::try_from(devices + label.as_str().len() + 64).unwrap_or(u32::MAX)
            })
            .time_to_live(TTL)
            .build();
        Self { store, cache }
    }

    /// The devices of an organisation that have this label, as they were within [`TTL`].
    ///
    /// # Errors
    /// A 403 problem if there are more than [`MAX_DEVICES`], or 503 if the database is unavailable.
    pub(crate) async fn of(
        &self,
        org: OrgId,
        label: &DeviceLabel,
    ) -> Result<Arc<HashSet<DeviceId>>, Problem> {
        let key = (org, label.clone());
        let found = self.cache.try_get_with(key, self.read(org, label)).await;
        match found {
            Ok(Some(devices)) => Ok(devices),
            Ok(None) => Err(too_many(label)),
            Err(error) => {
                tracing::warn!(org.id = %org, error = error.report(), "the devices of a label cannot be read");
                let detail = "The devices with the label of the credential cannot be read at the moment; a retry is safe.";
                Err(problems::unavailable(detail))
            }
        }
    }

    async fn read(
        &self,
        org: OrgId,
        label: &DeviceLabel,
    ) -> Result<Option<Arc<HashSet<DeviceId>>>, StoreError> {
        let limit = u32::try_from(MAX_DEVICES + 1).unwrap_or(u32::MAX);
        let labels = std::slice::from_ref(label);
        let store = &self.store;
        let found = store.labelled_devices(org, DeviceRange::default(), labels, limit);
        let found = found.await?;
        let fits = found.len() <= MAX_DEVICES;
        Ok(fits.then(|| Arc::new(found.into_iter().collect())))
    }
}

/// Estimated size in memory.
fn bytes(devices: &HashSet<DeviceId>) -> usize {
    // A table is at least half full.
    let texts = devices.iter().map(|device| device.as_str().len() + 16);
    texts.sum::<usize>() + 2 * devices.len() * (size_of::<DeviceId>() + 1)
}

fn too_many(label: &DeviceLabel) -> Problem {
    let detail = format!(
        "More than {MAX_DEVICES} devices have the label `{label}`, to which the credential is limited. \
         Use a label of fewer devices."
    );
    Problem {
        detail,
        ..problems::outside_key(&Outside::DeviceLabel(label))
    }
}
