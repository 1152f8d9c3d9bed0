//! The NPC that answers for a device: the one bound to it, else that of its organisation. It is cached
//! until a change is published, and covers outages of the database. Devices with the same NPC share
//! one copy.

mod weight;

use std::{
    cmp::Ordering,
    sync::Arc,
    time::{Duration, Instant},
};

use quick_cache::sync::Cache;
use switchboard_bus::Bus;
use switchboard_protocol::id::{DeviceKey, NpcId};
use switchboard_runtime::budget::Budgets;
use switchboard_store::{Npc, Store};
use tracing::warn;

use weight::{Cached, Weight};

/// How long an NPC is used after it was read, where the publication of a change was lost.
const TTL: Duration = Duration::from_secs(30);
/// How long a turn waits for the database while the cache has an entry.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it waits without one: longer than two statements wait for a connection.
const UNCACHED_LOOKUP_TIMEOUT: Duration = Duration::from_secs(8);
/// Number of devices in the cache.
const CACHED_DEVICES: usize = 4_096;
/// Size of the cached NPCs in memory. One NPC takes about 1 MiB at most.
const CACHE_BYTES: usize = 32 * 1024 * 1024;
/// Estimated number of cached NPCs. A small one, because it determines into how many parts the
/// capacity is divided, and the largest NPC fits into each.
const EXPECTED_NPCS: usize = 128;

/// NPCs by device.
pub(crate) struct NpcCache {
    by_device: Cache<DeviceKey, Binding>,
    npcs: Cache<NpcId, Cached, Weight>,
}

/// The NPC of a device, when it was looked up.
#[derive(Debug, Clone, Copy)]
struct Binding {
    npc: Option<NpcId>,
    /// That of the organisation's NPCs before the lookup.
    edition: u64,
    read_at: Instant,
}

/// The database is unavailable and the cache has no entry for the device.
pub(crate) struct UnknownNpc;

impl NpcCache {
    pub(crate) fn new(budgets: &Budgets) -> Self {
        budgets.reserve("npcs", CACHE_BYTES);
        Self {
            by_device: Cache::new(CACHED_DEVICES),
            npcs: Cache::with_weighter(EXPECTED_NPCS, CACHE_BYTES as u64, Weight),
        }
    }

    /// The device's NPC: from the cache unless it may have changed, or while the database is
    /// unavailable.
    ///
    /// # Errors
    /// [`UnknownNpc`]: then the tool policy is unknown, too, and the turn must not call services.
    pub(crate) async fn find(
        &self,
        (bus, store): (&Bus, &Store),
        device: &DeviceKey,
    ) -> Result<Option<Arc<Npc>>, UnknownNpc> {
        let edition = bus.npcs_edition(device.org);
        let (binding, cached) = self.get(device).unzip();
        if let (Some(binding), Some(npc)) = (binding, &cached)
            && binding.edition == edition
            && binding.read_at.elapsed() < TTL
        {
            return Ok(npc.clone());
        }
        let timeout = match cached {
            Some(_) => LOOKUP_TIMEOUT,
            None => UNCACHED_LOOKUP_TIMEOUT,
        };
        let lookup = async {
            match store.npc_for_device(device.org, &device.device).await {
                // All connections may have been in use for the time that a statement waits for one.
                Err(error) if error.is_unavailable() && cached.is_none() => {
                    store.npc_for_device(device.org, &device.device).await
                }
                found => found,
            }
        };
        match tokio::time::timeout(timeout, lookup).await {
            Ok(Ok(npc)) => return Ok(self.insert(device, npc, edition)),
            Ok(Err(error)) => warn!(error = error.report(), "NPC lookup failed; using the cache"),
            Err(_) => warn!("NPC lookup timed out; using the cache"),
        }
        cached.ok_or(UnknownNpc)
    }

    /// `None` if the NPC of the device is unknown; without an NPC if it has none.
    fn get(&self, device: &DeviceKey) -> Option<(Binding, Option<Arc<Npc>>)> {
        let binding = self.by_device.get(device)?;
        let npc = match binding.npc {
            Some(npc) => Some(self.npcs.get(&npc)?.npc),
            None => None,
        };
        Some((binding, npc))
    }

    /// Replaces the NPC of a device, as read in this edition; returns the copy that devices share.
    fn insert(&self, device: &DeviceKey, npc: Option<Npc>, edition: u64) -> Option<Arc<Npc>> {
        let binding = Binding {
            npc: npc.as_ref().map(|npc| npc.id),
            edition,
            read_at: Instant::now(),
        };
        self.by_device.insert(device.clone(), binding);
        let npc = npc?;
        let version = |npc: &Npc| (npc.version, npc.effective_version);
        if let Some(shared) = self.npcs.get(&npc.id) {
            match version(&npc).cmp(&version(&shared.npc)) {
                // It was read before the change that the shared one has.
                Ordering::Less => return Some(Arc::new(npc)),
                Ordering::Equal => return Some(shared.npc),
                Ordering::Greater => {}
            }
        }
        let cached = Cached::new(npc);
        self.npcs.insert(cached.npc.id, cached.clone());
        Some(cached.npc)
    }
}

#[cfg(test)]
mod tests;
