//! Whose tools are asked for, and where they are read: the live directory, or the record while a device sleeps.
//! Never: a registration parsed for each call, or more of them kept than their bytes allow.

use std::sync::Arc;

use quick_cache::{Weighter, sync::Cache};
use serde_json::value::RawValue;
use switchboard_bus::{BusError, Presence};
use switchboard_protocol::{id::DeviceKey, schema::Digest};
use switchboard_store::StoreError;
use switchboard_tools::Naming;

use super::toolset::Toolset;
use crate::{Gateway, devices::Entry};

/// What the registrations that a node remembers as tools take, in bytes. Protects memory; devices of one firmware share
/// one.
const REMEMBERED_BYTES: u64 = 64 * 1024 * 1024;
/// How many registrations that are, as most are.
const USUALLY: usize = 4_096;

/// The registrations that were read lately.
pub(super) struct Toolsets {
    read: Cache<(Digest, Naming), Arc<Toolset>, Weight>,
}

#[derive(Clone)]
struct Weight;

impl Weighter<(Digest, Naming), Arc<Toolset>> for Weight {
    fn weight(&self, key: &(Digest, Naming), toolset: &Arc<Toolset>) -> u64 {
        let place = size_of_val(key).saturating_add(size_of::<Toolset>());
        toolset.bytes().saturating_add(place as u64)
    }
}

/// Why a device's tools could not be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum ToolsetError {
    #[error("the directory of live devices cannot be read")]
    Directory(#[from] BusError),
    #[error("the record of devices cannot be read")]
    Record(#[from] StoreError),
    #[error("only live devices can be looked at")]
    Incomplete,
    #[error("what the device registered cannot be read")]
    Registration(#[from] serde_json::Error),
}

impl Toolsets {
    pub(super) fn new() -> Self {
        Self {
            read: Cache::with_weighter(USUALLY, REMEMBERED_BYTES, Weight),
        }
    }

    /// A device's tools; `None` when the organisation has no such device.
    pub(super) async fn of(
        &self,
        gateway: &Gateway,
        device: &DeviceKey,
        naming: Naming,
    ) -> Result<Option<Arc<Toolset>>, ToolsetError> {
        if let Some(presence) = gateway.bus.find(device).await?
            && let Some(live) = self.of_live(gateway, &presence, naming).await?
        {
            return Ok(Some(live));
        }
        let Some(stored) = gateway.store.device(device.org, &device.device).await? else {
            return Ok(None);
        };
        self.of_text(stored.services.as_deref(), naming).map(Some)
    }

    /// The tools of a device among which there is one with this name, as far as this node remembers; all that it has
    /// at this moment when that one is not among them.
    pub(super) async fn with_tool(
        &self,
        gateway: &Gateway,
        device: &DeviceKey,
        (naming, name): (Naming, &str),
    ) -> Result<Option<Arc<Toolset>>, ToolsetError> {
        if let Some(presence) = gateway.bus.recall(device).await?
            && let Some(known) = self.of_live(gateway, &presence, naming).await?
            && known.find(name).is_some()
        {
            return Ok(Some(known));
        }
        self.of(gateway, device, naming).await
    }

    /// The tools of a live device; `None` while it has registered nothing.
    pub(super) async fn of_live(
        &self,
        gateway: &Gateway,
        presence: &Presence,
        naming: Naming,
    ) -> Result<Option<Arc<Toolset>>, ToolsetError> {
        let Some(digest) = presence.digest else {
            return Ok(None);
        };
        if let Some(known) = self.read.get(&(digest, naming)) {
            return Ok(Some(known));
        }
        match gateway.bus.services(presence).await? {
            Some(json) => self.parsed(digest, &json, naming).map(Some),
            None => Ok(None),
        }
    }

    /// The tools of a device in a list, live or remembered.
    pub(super) async fn of_entry(
        &self,
        gateway: &Gateway,
        entry: &Entry,
    ) -> Result<Arc<Toolset>, ToolsetError> {
        if let Some(presence) = &entry.live
            && let Some(live) = self.of_live(gateway, presence, Naming::Prefixed).await?
        {
            return Ok(live);
        }
        let stored = entry.stored.as_ref();
        let services = stored.and_then(|stored| stored.services.as_deref());
        self.of_text(services, Naming::Prefixed)
    }

    fn of_text(
        &self,
        services: Option<&RawValue>,
        naming: Naming,
    ) -> Result<Arc<Toolset>, ToolsetError> {
        let json = services.map_or("{}", RawValue::get).as_bytes();
        self.parsed(Digest::of(json), json, naming)
    }

    /// The tools that a services object stands for.
    fn parsed(
        &self,
        digest: Digest,
        json: &[u8],
        naming: Naming,
    ) -> Result<Arc<Toolset>, ToolsetError> {
        if let Some(known) = self.read.get(&(digest, naming)) {
            return Ok(known);
        }
        let toolset = Arc::new(Toolset::read(json, naming)?);
        self.read.insert((digest, naming), Arc::clone(&toolset));
        Ok(toolset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_by_bytes() {
        let toolsets = Toolsets::new();
        // Each takes much more in memory than as text.
        let services = |at: usize| {
            let schemas = vec![r#"{"not":{"not":{}}}"#; 2_000].join(",");
            format!(r#"{{"{at}":{{"parameters":{{"allOf":[{schemas}]}}}}}}"#)
        };
        for at in 0..100 {
            let json = services(at);
            toolsets
                .of_text(Some(&RawValue::from_string(json).unwrap()), Naming::Alone)
                .unwrap();
            assert!(toolsets.read.weight() <= REMEMBERED_BYTES);
        }
        assert!(!toolsets.read.is_empty() && toolsets.read.len() < 50);
    }
}
