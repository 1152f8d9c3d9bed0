//! The tools of devices, from the directory of connected devices or from the database.
//!
//! Parsed registrations are cached by digest, within a budget of bytes.

use std::sync::Arc;

use quick_cache::{Weighter, sync::Cache};
use switchboard_bus::{BusError, Presence};
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    schema::Digest,
};
use switchboard_runtime::budget::Budgets;
use switchboard_store::StoreError;
use switchboard_tools::Naming;

use super::toolset::Toolset;
use crate::{
    Gateway,
    devices::{DeviceEntry, Unavailable},
};

/// Size of the parsed registrations that a node caches. Protects memory. Devices with the same
/// firmware share one registration.
const CACHE_BYTES: usize = 64 * 1024 * 1024;
/// Estimated number of cached registrations.
const CACHE_CAPACITY: usize = 4_096;

/// The cache of parsed registrations.
pub(in crate::mcp) struct ToolCatalog {
    cache: Cache<(Digest, Naming), Arc<Toolset>, Weight>,
}

#[derive(Clone)]
struct Weight;

impl Weighter<(Digest, Naming), Arc<Toolset>> for Weight {
    fn weight(&self, key: &(Digest, Naming), toolset: &Arc<Toolset>) -> u64 {
        let entry = size_of_val(key).saturating_add(size_of::<Toolset>());
        toolset.bytes().saturating_add(entry as u64)
    }
}

/// Why the tools of a device could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum CatalogError {
    #[error("the directory of live devices cannot be read")]
    Directory(#[from] BusError),
    #[error("the database of devices cannot be read")]
    Store(#[from] StoreError),
    #[error("only connected devices can be read")]
    Incomplete,
    #[error("the registration of the device cannot be parsed")]
    Registration(#[from] serde_json::Error),
}

impl From<Unavailable> for CatalogError {
    fn from(error: Unavailable) -> Self {
        match error {
            Unavailable::Bus(error) => Self::Directory(error),
            Unavailable::Store(error) => Self::Store(error),
        }
    }
}

impl ToolCatalog {
    pub(in crate::mcp) fn new(budgets: &Budgets) -> Self {
        budgets.reserve("mcp_tools", CACHE_BYTES);
        Self {
            cache: Cache::with_weighter(CACHE_CAPACITY, CACHE_BYTES as u64, Weight),
        }
    }

    /// The tools of a device. `None` if the organisation has no such device.
    pub(super) async fn get(
        &self,
        gateway: &Gateway,
        device: &DeviceKey,
        naming: Naming,
    ) -> Result<Option<Arc<Toolset>>, CatalogError> {
        if let Some(presence) = gateway.bus.find(device).await?
            && let Some(live) = self.live(gateway, (device.org, &presence), naming).await?
        {
            return Ok(Some(live));
        }
        let Some(stored) = gateway.store.device(device.org, &device.device).await? else {
            return Ok(None);
        };
        let stored = self.stored(gateway, device.org, stored.digest, naming);
        stored.await.map(Some)
    }

    /// The tools of a device, from the presence cache if they include this tool. Otherwise they
    /// are read again, since the cached presence may be stale.
    pub(super) async fn with_tool(
        &self,
        gateway: &Gateway,
        device: &DeviceKey,
        (naming, name): (Naming, &str),
    ) -> Result<Option<Arc<Toolset>>, CatalogError> {
        if let Some(presence) = gateway.bus.find_cached(device).await?
            && let Some(known) = self.live(gateway, (device.org, &presence), naming).await?
            && known.find(name).is_some()
        {
            return Ok(Some(known));
        }
        // Boxed: the future is large, and that of every call contains it.
        Box::pin(self.get(gateway, device, naming)).await
    }

    /// The tools of a connected device. `None` if it has not registered any.
    async fn live(
        &self,
        gateway: &Gateway,
        (org, presence): (OrgId, &Presence),
        naming: Naming,
    ) -> Result<Option<Arc<Toolset>>, CatalogError> {
        let Some(digest) = presence.digest else {
            return Ok(None);
        };
        if let Some(known) = self.cache.get(&(digest, naming)) {
            return Ok(Some(known));
        }
        // Boxed for the same reason.
        match Box::pin(gateway.live_services(org, presence)).await? {
            Some(json) => self.parsed(digest, &json, naming).map(Some),
            None => Ok(None),
        }
    }

    /// The tools of a listed device, connected or stored.
    pub(super) async fn for_entry(
        &self,
        gateway: &Gateway,
        org: OrgId,
        entry: &DeviceEntry,
    ) -> Result<Arc<Toolset>, CatalogError> {
        if let Some(presence) = &entry.live
            && let Some(live) = self
                .live(gateway, (org, presence), Naming::Prefixed)
                .await?
        {
            return Ok(live);
        }
        let stored = entry.stored.as_ref();
        let digest = stored.and_then(|stored| stored.digest);
        self.stored(gateway, org, digest, Naming::Prefixed).await
    }

    /// The tools of a stored registration, which is read only if it is not cached.
    async fn stored(
        &self,
        gateway: &Gateway,
        org: OrgId,
        digest: Option<Digest>,
        naming: Naming,
    ) -> Result<Arc<Toolset>, CatalogError> {
        let Some(digest) = digest else {
            return Ok(Arc::default());
        };
        if let Some(known) = self.cache.get(&(digest, naming)) {
            return Ok(known);
        }
        let read = gateway.store.services(org, &[digest]).await?;
        match read.into_iter().next().flatten() {
            Some(services) => self.parsed(digest, services.get().as_bytes(), naming),
            None => Ok(Arc::default()),
        }
    }

    fn parsed(
        &self,
        digest: Digest,
        json: &[u8],
        naming: Naming,
    ) -> Result<Arc<Toolset>, CatalogError> {
        if let Some(known) = self.cache.get(&(digest, naming)) {
            return Ok(known);
        }
        let toolset = Arc::new(Toolset::parse(digest, json, naming)?);
        self.cache.insert((digest, naming), Arc::clone(&toolset));
        Ok(toolset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_is_bounded_by_bytes() {
        let catalog = ToolCatalog::new(&Budgets::new(&prometheus::Registry::new()).unwrap());
        // The parsed form is much larger than the text.
        let services = |at: usize| {
            let schemas = vec![r#"{"not":{"not":{}}}"#; 2_000].join(",");
            format!(r#"{{"{at}":{{"parameters":{{"allOf":[{schemas}]}}}}}}"#)
        };
        for at in 0..100 {
            let json = services(at).into_bytes();
            catalog
                .parsed(Digest::compute(&json), &json, Naming::Alone)
                .unwrap();
            assert!(catalog.cache.weight() <= CACHE_BYTES as u64);
        }
        assert!(!catalog.cache.is_empty() && catalog.cache.len() < 50);
    }
}
