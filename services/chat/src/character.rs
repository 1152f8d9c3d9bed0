//! Who answers: the NPC that is bound to the device, else its organisation's.
//! Never: an NPC of another organisation, or a turn that waits long because the record is away.

use std::{sync::Arc, time::Duration};

use quick_cache::sync::Cache;
use switchboard_protocol::id::DeviceKey;
use switchboard_store::{Npc, Store};
use tracing::warn;

/// How long the record may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Devices whose NPC a node remembers for the time in which the record is away. Protects memory.
const REMEMBERED: usize = 4_096;

/// Who answered for which device.
pub(crate) struct Characters {
    seen: Cache<DeviceKey, Option<Arc<Npc>>>,
}

/// Nobody knows who is to answer: the record is away, and this node has not seen the device before.
pub(crate) struct Unknown;

impl Characters {
    pub(crate) fn new() -> Self {
        Self {
            seen: Cache::new(REMEMBERED),
        }
    }

    /// The device's NPC as it is now, or as it was last while the record is away; none when it has none.
    ///
    /// # Errors
    /// [`Unknown`]: then what its NPC may not do is not known either.
    pub(crate) async fn of(
        &self,
        store: &Store,
        device: &DeviceKey,
    ) -> Result<Option<Arc<Npc>>, Unknown> {
        let asked = store.npc_of_device(device.org, &device.device);
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(npc)) => {
                let npc = npc.map(Arc::new);
                self.seen.insert(device.clone(), npc.clone());
                return Ok(npc);
            }
            Ok(Err(error)) => warn!(error = error.report(), "who answers could not be looked up"),
            Err(_) => warn!("who answers was not looked up in time"),
        }
        self.seen.get(device).ok_or(Unknown)
    }
}
