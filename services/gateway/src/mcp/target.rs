//! Which device's tool a request means by a name.
//! Never: a device of another organisation, or "there is no such tool" while not every device could be looked at.

use std::sync::Arc;

use quick_cache::sync::Cache;
use rmcp::ErrorData;
use switchboard_protocol::id::{DeviceId, DeviceKey, OrgId};
use switchboard_store::Npc;
use switchboard_tools::tool_name::{self, Naming, Part};

use super::{
    access::{Reach, Visit},
    listing::unavailable,
    npc,
    toolset::{Offered, Toolset},
    toolsets::ToolsetError,
};
use crate::{Gateway, devices};

/// Devices that are looked through at once for one whose name was made safe.
const DEVICES_A_LOOK: u16 = 200;
/// Devices with such names that a node remembers. Protects memory: each takes some hundred bytes.
const REMEMBERED: usize = 16_384;

/// The device that a request named, and its tools.
pub(super) struct Target {
    pub(super) device: DeviceKey,
    toolset: Arc<Toolset>,
    /// The tool's name in the toolset.
    name: String,
}

/// Devices whose part of a tool's name is not their id, as far as they were asked for. What a part was made of never
/// changes, so what is known stays true; that there is no such device does not, and is not kept.
pub(super) struct NamedDevices {
    known: Cache<(OrgId, Box<str>), DeviceId>,
}

impl Target {
    pub(super) async fn find(
        gateway: &Gateway,
        visit: &Visit,
        name: &str,
    ) -> Result<Self, ErrorData> {
        match &visit.reach {
            Reach::Device(device) => at_device(gateway, device, name).await,
            Reach::All => among_all(gateway, visit.caller.org, name).await,
            Reach::Npc(npc) => of_npc(gateway, npc, name).await,
        }
    }

    /// The tool, which the request called `name`.
    pub(super) fn tool(&self, name: &str) -> Result<&Offered, ErrorData> {
        self.toolset
            .find(&self.name)
            .ok_or_else(|| unknown_tool(name))
    }
}

async fn at_device(gateway: &Gateway, device: &DeviceKey, name: &str) -> Result<Target, ErrorData> {
    let toolset = toolset_with(gateway, device, (Naming::Alone, name)).await?;
    Ok(Target {
        device: device.clone(),
        toolset: toolset.unwrap_or_default(),
        name: name.to_owned(),
    })
}

async fn among_all(gateway: &Gateway, org: OrgId, name: &str) -> Result<Target, ErrorData> {
    let (part, tool) = tool_name::split(name).ok_or_else(|| unknown_tool(name))?;
    let device = match Part::of(part) {
        Part::Id => part.parse().ok(),
        Part::Made => gateway.mcp.named_devices.find(gateway, org, part).await?,
        Part::Nobody => None,
    };
    let device = device.ok_or_else(|| unknown_tool(name))?;
    let device = DeviceKey { org, device };
    let toolset = toolset_with(gateway, &device, (Naming::Prefixed, tool)).await?;
    Ok(Target {
        device,
        toolset: toolset.unwrap_or_default(),
        name: tool.to_owned(),
    })
}

/// A tool that the NPC may not use is none.
async fn of_npc(gateway: &Gateway, npc: &Npc, name: &str) -> Result<Target, ErrorData> {
    let devices = npc.settings.devices.iter();
    let naming = npc::naming(npc);
    let (mut devices, tool) = match naming {
        Naming::Alone => (devices.collect::<Vec<_>>(), name),
        Naming::Prefixed => {
            let (part, tool) = tool_name::split(name).ok_or_else(|| unknown_tool(name))?;
            let meant = |device: &&DeviceId| tool_name::device_part(device.as_str()) == part;
            (devices.filter(meant).collect(), tool)
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
    let toolset = toolset.unwrap_or_default();
    let offered = toolset.find(tool);
    if !offered.is_some_and(|offered| npc::may_use(npc, &offered.service)) {
        return Err(unknown_tool(name));
    }
    Ok(Target {
        device,
        name: tool.to_owned(),
        toolset,
    })
}

impl NamedDevices {
    pub(super) fn new() -> Self {
        Self {
            known: Cache::new(REMEMBERED),
        }
    }

    /// The one device whose id was made into this part.
    async fn find(
        &self,
        gateway: &Gateway,
        org: OrgId,
        part: &str,
    ) -> Result<Option<DeviceId>, ErrorData> {
        let key = (org, Box::from(part));
        if let Some(known) = self.known.get(&key) {
            return Ok(Some(known));
        }
        match look_through(gateway, org, part).await? {
            Search::One(device) => {
                self.known.insert(key, device.clone());
                Ok(Some(device))
            }
            Search::OneOfThose(device) => Ok(Some(device)),
            Search::Nobody => Ok(None),
        }
    }
}

/// What came of looking through an organisation's devices.
enum Search {
    One(DeviceId),
    /// One, and not all devices could be looked at.
    OneOfThose(DeviceId),
    Nobody,
}

/// Looks at all devices, since what two of them are called means neither.
async fn look_through(gateway: &Gateway, org: OrgId, part: &str) -> Result<Search, ErrorData> {
    let mut after: Option<DeviceId> = None;
    let mut found = Vec::new();
    let mut incomplete = false;
    loop {
        let begin = after.as_ref().map(DeviceId::as_str);
        let page = devices::page(gateway, org, begin, DEVICES_A_LOOK).await;
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
        (Some(device), true, false) => Ok(Search::One(device)),
        (Some(device), true, true) => Ok(Search::OneOfThose(device)),
        (None, _, false) => Ok(Search::Nobody),
        // It may be among those that sleep.
        (None, _, true) => Err(unavailable(&ToolsetError::Incomplete)),
    }
}

async fn toolset_with(
    gateway: &Gateway,
    device: &DeviceKey,
    tool: (Naming, &str),
) -> Result<Option<Arc<Toolset>>, ErrorData> {
    let toolset = gateway.mcp.toolsets.with_tool(gateway, device, tool).await;
    toolset.map_err(|error| unavailable(&error))
}

fn ambiguous(part: &str) -> ErrorData {
    let detail =
        format!("{part:?} stands for more than one device; each has an endpoint of its own");
    ErrorData::invalid_params(detail, None)
}

fn unknown_tool(name: &str) -> ErrorData {
    let detail = format!("there is no tool {name:?}; tools/list has those that there are");
    ErrorData::invalid_params(detail, None)
}
