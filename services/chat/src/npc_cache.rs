//! The NPC that answers for a device: the one bound to it, else that of its organisation. A cache
//! covers outages of the database.

use std::{sync::Arc, time::Duration};

use quick_cache::sync::Cache;
use switchboard_protocol::id::DeviceKey;
use switchboard_store::{Npc, Store};
use tracing::warn;

/// How long a turn waits for the database while the cache has an entry.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it waits without one: longer than a statement waits for a connection.
const UNCACHED_LOOKUP_TIMEOUT: Duration = Duration::from_secs(4);
/// Number of devices in the cache.
const CACHE_CAPACITY: usize = 4_096;

/// NPCs by device.
pub(crate) struct NpcCache {
    entries: Cache<DeviceKey, Option<Arc<Npc>>>,
}

/// The database is unavailable and the cache has no entry for the device.
pub(crate) struct UnknownNpc;

impl NpcCache {
    pub(crate) fn new() -> Self {
        Self {
            entries: Cache::new(CACHE_CAPACITY),
        }
    }

    /// The device's NPC from the database; from the cache while the database is unavailable.
    ///
    /// # Errors
    /// [`UnknownNpc`]: then the tool policy is unknown, too, and the turn must not call services.
    pub(crate) async fn find(
        &self,
        store: &Store,
        device: &DeviceKey,
    ) -> Result<Option<Arc<Npc>>, UnknownNpc> {
        let lookup = store.npc_for_device(device.org, &device.device);
        let cached = self.entries.get(device);
        let timeout = match cached {
            Some(_) => LOOKUP_TIMEOUT,
            None => UNCACHED_LOOKUP_TIMEOUT,
        };
        match tokio::time::timeout(timeout, lookup).await {
            Ok(Ok(npc)) => {
                let npc = npc.map(Arc::new);
                self.entries.insert(device.clone(), npc.clone());
                return Ok(npc);
            }
            Ok(Err(error)) => warn!(error = error.report(), "NPC lookup failed; using the cache"),
            Err(_) => warn!("NPC lookup timed out; using the cache"),
        }
        cached.ok_or(UnknownNpc)
    }
}
