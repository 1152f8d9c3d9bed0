//! Finds the device and the tool that a request names.
//!
//! Invariant: a tool is reported as unknown only if all devices that could have it were read.

use std::{sync::Arc, time::Duration};

use quick_cache::sync::Cache;
use rmcp::ErrorData;
use switchboard_identity::Caller;
use switchboard_protocol::{
    id::{DeviceId, DeviceKey, OrgId},
    schema::Digest,
    token::Outside,
};
use switchboard_runtime::budget::{Budget, Budgets, Kind, Owner};
use switchboard_store::Npc;
use switchboard_tools::tool_name::{self, DevicePart, Naming};
use tokio::time::Instant;

use super::{
    catalog::CatalogError,
    list::unavailable,
    toolset::{ServiceTool, Toolset},
};
use crate::{
    Gateway,
    mcp::{
        npc,
        transport::{
            auth::{ClientContext, Endpoint},
            reservation::exhausted,
        },
    },
};

/// Stored devices with the hash in an encoded name; two are more than expected.
const MAX_STORED: u32 = 16;
/// Connected devices read at a time in the search for one with an encoded name.
const SEARCH_PAGE_LEN: usize = 1_000;
/// Connected devices read in one search. Protects the bus.
const MAX_SEARCHED: usize = 65_536;
/// Searches among connected devices at a time, one for each organisation. Protects the bus.
const SEARCH_CAPACITY: usize = 8;
/// How long a search waits for others of its organisation.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Encoded device names that a node caches, at some hundred bytes each. Protects memory.
const CACHE_CAPACITY: usize = 16_384;

/// The device and the tool that a request names.
pub(in crate::mcp) struct ResolvedTool {
    pub(in crate::mcp) device: DeviceKey,
    pub(in crate::mcp) tool: Arc<ServiceTool>,
    /// The registration that the tool is of.
    pub(super) registration: Option<Digest>,
}

/// Devices by encoded name. The name of a device never changes, so entries stay valid. That there
/// is no such device can change, so it is not cached.
pub(in crate::mcp) struct DeviceNameCache {
    devices: Cache<(OrgId, Box<str>), DeviceId>,
    searches: Budget,
}

impl ResolvedTool {
    pub(in crate::mcp) async fn find(
        gateway: &Gateway,
        client: &ClientContext,
        name: &str,
    ) -> Result<Self, ErrorData> {
        match &client.endpoint {
            Endpoint::Device(device) => find_on_device(gateway, device, name).await,
            Endpoint::All => find_in_org(gateway, &client.caller, name).await,
            Endpoint::Npc(npc) => find_for_npc(gateway, &client.caller, npc, name).await,
        }
    }
}

async fn find_on_device(
    gateway: &Gateway,
    device: &DeviceKey,
    name: &str,
) -> Result<ResolvedTool, ErrorData> {
    let toolset = toolset_with(gateway, device, (Naming::Alone, name)).await?;
    let tool = toolset.find(name).cloned();
    Ok(ResolvedTool {
        device: device.clone(),
        tool: tool.ok_or_else(|| unknown_tool(name))?,
        registration: toolset.digest(),
    })
}

async fn find_in_org(
    gateway: &Gateway,
    caller: &Caller,
    name: &str,
) -> Result<ResolvedTool, ErrorData> {
    let org = caller.org;
    let (part, tool) = tool_name::split(name).ok_or_else(|| unknown_tool(name))?;
    let device = match DevicePart::parse(part) {
        DevicePart::Id => part.parse().ok(),
        DevicePart::Generated => gateway.mcp.device_names.find(gateway, org, part).await?,
        DevicePart::Invalid => None,
    };
    let device = device.ok_or_else(|| unknown_tool(name))?;
    check_device(caller, &device)?;
    let device = DeviceKey { org, device };
    let toolset = toolset_with(gateway, &device, (Naming::Prefixed, tool)).await?;
    let tool = toolset.find(tool).cloned();
    Ok(ResolvedTool {
        device,
        tool: tool.ok_or_else(|| unknown_tool(name))?,
        registration: toolset.digest(),
    })
}

/// A tool that the NPC's policy denies is unknown.
async fn find_for_npc(
    gateway: &Gateway,
    caller: &Caller,
    npc: &Npc,
    name: &str,
) -> Result<ResolvedTool, ErrorData> {
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
    check_device(caller, device)?;
    let device = DeviceKey {
        org: npc.org,
        device: device.clone(),
    };
    let toolset = toolset_with(gateway, &device, (naming, tool)).await?;
    let tool = toolset.find(tool).cloned();
    let tool = tool.filter(|tool| npc::may_use(npc, &tool.service));
    Ok(ResolvedTool {
        device,
        tool: tool.ok_or_else(|| unknown_tool(name))?,
        registration: toolset.digest(),
    })
}

impl DeviceNameCache {
    pub(in crate::mcp) fn new(budgets: &Budgets) -> Self {
        let kind = Kind::Held { share: 1 };
        Self {
            devices: Cache::new(CACHE_CAPACITY),
            searches: budgets.slots("mcp_device_searches", SEARCH_CAPACITY, kind),
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
        // Boxed: the future is large, and that of every call contains it.
        match Box::pin(search(gateway, org, part)).await? {
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

/// Finds the device in the database by the hash in its name, and otherwise among the connected
/// devices: one that has just connected for the first time may not be stored yet. Registrations are
/// not read.
async fn search(gateway: &Gateway, org: OrgId, part: &str) -> Result<DeviceMatch, ErrorData> {
    let Some(hash) = tool_name::generated_hash(part) else {
        return Ok(DeviceMatch::None);
    };
    let stored = gateway.store.devices_by_name_hash(org, hash, MAX_STORED);
    let (stored, incomplete) = match stored.await {
        Ok(stored) => (stored, false),
        Err(error) => {
            tracing::warn!(
                error = error.report(),
                "devices could not be found by name in the database; only connected ones are"
            );
            (Vec::new(), true)
        }
    };
    let mut found = with_part(stored, part);
    if found.is_empty() {
        found = search_live(gateway, org, part).await?;
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

/// The devices whose names are encoded as this part.
fn with_part(ids: impl IntoIterator<Item = DeviceId>, part: &str) -> Vec<DeviceId> {
    let ids = ids.into_iter();
    ids.filter(|id| tool_name::device_part(id.as_str()) == part)
        .collect()
}

/// The connected devices with this part. One organisation has one search at a time.
async fn search_live(
    gateway: &Gateway,
    org: OrgId,
    part: &str,
) -> Result<Vec<DeviceId>, ErrorData> {
    let deadline = Instant::now() + SEARCH_TIMEOUT;
    let slots = &gateway.mcp.device_names.searches;
    let slot = slots.acquire(Owner::Org(org.uuid()), 1, deadline).await;
    let _slot = slot.map_err(exhausted)?;
    let mut after: Option<DeviceId> = None;
    let (mut found, mut searched) = (Vec::new(), 0);
    loop {
        let start = after.as_ref().map(DeviceId::as_str);
        let page = gateway.bus.list(org, start, SEARCH_PAGE_LEN).await;
        let page = page.map_err(|error| unavailable(&error.into()))?;
        let is_last = page.len() < SEARCH_PAGE_LEN;
        searched += page.len();
        after = page.last().map(|(id, _)| id.clone());
        found.extend(with_part(page.into_iter().map(|(id, _)| id), part));
        if is_last {
            return Ok(found);
        }
        if searched >= MAX_SEARCHED {
            return Err(unavailable(&CatalogError::Incomplete));
        }
    }
}

/// The tools of a device; none if there is no such device.
async fn toolset_with(
    gateway: &Gateway,
    device: &DeviceKey,
    tool: (Naming, &str),
) -> Result<Arc<Toolset>, ErrorData> {
    let toolset = gateway.mcp.catalog.with_tool(gateway, device, tool).await;
    let toolset = toolset.map_err(|error| unavailable(&error))?;
    Ok(toolset.unwrap_or_default())
}

/// Before anything of the device is read.
fn check_device(caller: &Caller, device: &DeviceId) -> Result<(), ErrorData> {
    let checked = caller.check_device(device);
    checked.map_err(|outside| outside_key(&outside))
}

/// The error of a request for what the credential does not reach.
pub(super) fn outside_key(outside: &Outside<'_>) -> ErrorData {
    let mut problem = switchboard_identity::outside_key(outside);
    let kind = format!("/problems/{}", problem.slug());
    problem.extra.insert("type".to_owned(), kind.into());
    ErrorData::invalid_params(problem.detail, Some(problem.extra.into()))
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
