//! The size of cached NPCs.

use std::sync::Arc;

use quick_cache::Weighter;
use switchboard_protocol::id::NpcId;
use switchboard_runtime::response_budget::json_bytes;
use switchboard_store::Npc;

/// A cached NPC and its size.
#[derive(Clone)]
pub(super) struct Cached {
    pub(super) npc: Arc<Npc>,
    /// Measured once, since the cache asks often.
    pub(super) bytes: u64,
}

impl Cached {
    pub(super) fn new(npc: Npc) -> Self {
        Self {
            bytes: bytes(&npc) as u64,
            npc: Arc::new(npc),
        }
    }
}

/// Weighs NPCs by their size.
#[derive(Clone)]
pub(super) struct Weight;

impl Weighter<NpcId, Cached> for Weight {
    fn weight(&self, _: &NpcId, cached: &Cached) -> u64 {
        cached.bytes
    }
}

/// Estimated size in memory. Most of it are texts. An item of a list takes a `String` more.
fn bytes(npc: &Npc) -> usize {
    let settings = &npc.effective.settings;
    let (persona, tools) = (&settings.persona, &settings.tools);
    let items = settings.tags.len()
        + persona.greeting.len()
        + persona.forbidden_topics.len()
        + tools.allow.as_ref().map_or(0, Vec::len)
        + tools.deny.len();
    let devices = npc.settings.devices.iter().map(|id| id.as_str().len());
    let texts = json_bytes(settings) + devices.sum::<usize>();
    size_of::<Npc>() + texts + (items + npc.settings.devices.len()) * 2 * size_of::<String>()
}
