//! Finds the device and the tool that a request names.
//!
//! Invariant: a tool is reported as unknown only if all devices that could have it were read.

use std::sync::Arc;

use quick_cache::sync::Cache;
use rmcp::ErrorData;
use switchboard_protocol::id::{DeviceId, DeviceKey, OrgId};
use switchboard_runtime::paging::Limit;
use switchboard_store::Npc;
use switchboard_tools::tool_name::{self, DevicePart, Naming};

use super::{
    catalog::CatalogError,
    list::unavailable,
    toolset::{ServiceTool, Toolset},
};
use crate::{
    Gateway, devices,
    mcp::{
        npc,
        transport::auth::{ClientContext, Endpoint},
    },
};

/// Devices read at a time in the search for one with an encoded name.
const SEARCH_LIMIT: Limit = Limit::fixed(200);
/// Encoded device names that a node caches, at some hundred bytes each. Protects memory.
const CACHE_CAPACITY: usize = 16_384;

/// The device and the tool that a request names.
pub(in crate::mcp) struct ResolvedTool {
    pub(in crate::mcp) device: DeviceKey,
    pub(in crate::mcp) tool: Arc<ServiceTool>,
}

/// Devices by encoded name. The name of a device never changes, so entries stay valid. That there
/// is no such device can change, so it is not cached.
pub(in crate::mcp) struct DeviceNameCache {
    devices: Cache<(OrgId, Box<str>), DeviceId>,
}

impl ResolvedTool {
    pub(in crate::mcp) async fn find(
        gateway: &Gateway,
        client: &ClientContext,
        name: &str,
    ) -> Result<Self, ErrorData> {
        match &client.endpoint {
            Endpoint::Device(device) => find_on_device(gateway, device, name).await,
            Endpoint::All => find_in_org(gateway, client.caller.org, name).await,
            Endpoint::Npc(npc) => find_for_npc(gateway, npc, name).await,
        }
    }
}

async fn find_on_device(
    gateway: &Gateway,
    device: &DeviceKey,
    name: &str,
) -> Result<ResolvedTool, ErrorData> {
    let toolset = toolset_with(gateway, device, (Naming::Alone, name)).await?;
    let tool = toolset.and_then(|toolset| toolset.find(name).cloned());
    Ok(ResolvedTool {
        device: device.clone(),
        tool: tool.ok_or_else(|| unknown_tool(name))?,
    })
}

async fn find_in_org(gateway: &Gateway, org: OrgId, name: &str) -> Result<ResolvedTool, ErrorData> {
    let (part, tool) = tool_name::split(name).ok_or_else(|| unknown_tool(name))?;
    let device = match DevicePart::parse(part) {
        DevicePart::Id => part.parse().ok(),
        DevicePart::Generated => gateway.mcp.device_names.find(gateway, org, part).await?,
        DevicePart::Invalid => None,
    };
    let device = device.ok_or_else(|| unknown_tool(name))?;
    let device = DeviceKey { org, device };
    let toolset = toolset_with(gateway, &device, (Naming::Prefixed, tool)).await?;
    let tool = toolset.and_then(|toolset| toolset.find(tool).cloned());
    Ok(ResolvedTool {
        device,
        tool: tool.ok_or_else(|| unknown_tool(name))?,
    })
}

/// A tool that the NPC's policy denies is unknown.
async fn find_for_npc(gateway: &Gateway, npc: &Npc, name: &str) -> Result<ResolvedTool, ErrorData> {
    let devices = npc.settings.devices.iter();
    let naming = npc::naming(npc);
    let (mut devices, tool) = match naming {
        Naming::Alone => (devices.collect::<Vec<_>>(), name),
        Naming::Prefixed => {
            let (part, tool) = tool_name::split(name).ok_or_else(|| unknown_tool(name))?;
            let matches = |device: &&DeviceId| tool_name::device_part(device.as_str()) == part;
            (devices.filter(matches).collect(), tool)
        }
    };
    let device = devices.pop().ok_or_else(|| unknown_tool(name))?;
    if !devices.is_empty() {
        return Err(ambiguous(name));
    }
    let device = DeviceKey {
        org: npc.org,
        device: device.clone(),
    };
    let toolset = toolset_with(gateway, &device, (naming, tool)).await?;
    let tool = toolset.and_then(|toolset| toolset.find(tool).cloned());
    let tool = tool.filter(|tool| npc::may_use(npc, &tool.service));
    Ok(ResolvedTool {
        device,
        tool: tool.ok_or_else(|| unknown_tool(name))?,
    })
}

impl DeviceNameCache {
    pub(in crate::mcp) fn new() -> Self {
        Self {
            devices: Cache::new(CACHE_CAPACITY),
        }
    }

    /// The only device whose name is encoded as this part of a tool name.
    async fn find(
        &self,
        gateway: &Gateway,
        org: OrgId,
        part: &str,
    ) -> Result<Option<DeviceId>, ErrorData> {
        let key = (org, Box::from(part));
        if let Some(cached) = self.devices.get(&key) {
            return Ok(Some(cached));
        }
        match search(gateway, org, part).await? {
            DeviceMatch::Unique(device) => {
                self.devices.insert(key, device.clone());
                Ok(Some(device))
            }
            DeviceMatch::Unverified(device) => Ok(Some(device)),
            DeviceMatch::None => Ok(None),
        }
    }
}

enum DeviceMatch {
    Unique(DeviceId),
    /// One device, but not all devices could be read.
    Unverified(DeviceId),
    None,
}

/// Reads all devices, because a name that two of them share is ambiguous.
async fn search(gateway: &Gateway, org: OrgId, part: &str) -> Result<DeviceMatch, ErrorData> {
    let mut after: Option<DeviceId> = None;
    let mut found = Vec::new();
    let mut incomplete = false;
    loop {
        let start = after.as_ref().map(DeviceId::as_str);
        let page = devices::page(gateway, org, start, SEARCH_LIMIT).await;
        let page = page.map_err(|error| unavailable(&error.into()))?;
        incomplete |= page.incomplete;
        after = page.entries.last().map(|entry| entry.id.clone());
        let ids = page.entries.into_iter().map(|entry| entry.id);
        found.extend(ids.filter(|id| tool_name::device_part(id.as_str()) == part));
        if !page.more {
            break;
        }
    }
    match (found.pop(), found.is_empty(), incomplete) {
        (Some(_), false, _) => Err(ambiguous(part)),
        (Some(device), true, false) => Ok(DeviceMatch::Unique(device)),
        (Some(device), true, true) => Ok(DeviceMatch::Unverified(device)),
        (None, _, false) => Ok(DeviceMatch::None),
        // A device that is not connected may have this name.
        (None, _, true) => Err(unavailable(&CatalogError::Incomplete)),
    }
}

async fn toolset_with(
    gateway: &Gateway,
    device: &DeviceKey,
    tool: (Naming, &str),
) -> Result<Option<Arc<Toolset>>, ErrorData> {
    let toolset = gateway.mcp.catalog.with_tool(gateway, device, tool).await;
    toolset.map_err(|error| unavailable(&error))
}

fn ambiguous(part: &str) -> ErrorData {
    let detail =
        format!("{part:?} matches more than one device; use the endpoint of the device instead");
    ErrorData::invalid_params(detail, None)
}

fn unknown_tool(name: &str) -> ErrorData {
    let detail = format!("there is no tool {name:?}; see tools/list");
    ErrorData::invalid_params(detail, None)
}
