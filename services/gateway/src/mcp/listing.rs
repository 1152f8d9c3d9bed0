//! `tools/list`: what an endpoint offers at this moment, sleeping devices included.
//! Never: an order that differs between two nodes, or a list cut short that looks whole.

use rmcp::{ErrorData, model::Tool};
use switchboard_protocol::id::{DeviceId, DeviceKey, OrgId};
use switchboard_store::Npc;
use switchboard_tools::tool_name::{self, Naming};

use super::{
    access::{Reach, Visit},
    npc,
    toolset::{self, Offered},
    toolsets::ToolsetError,
};
use crate::{Gateway, devices};

/// Devices whose tools make one page.
const DEVICES_A_PAGE: u16 = 25;

/// Some tools, and where to go on.
pub(super) struct Page {
    pub(super) tools: Vec<Tool>,
    pub(super) next_cursor: Option<String>,
    /// The record could not be read: tools of devices that sleep are missing.
    pub(super) incomplete: bool,
}

pub(super) async fn tools(
    gateway: &Gateway,
    visit: &Visit,
    cursor: Option<&str>,
) -> Result<Page, ErrorData> {
    match &visit.reach {
        Reach::Device(device) => of_device(gateway, device, cursor).await,
        Reach::All => of_all(gateway, visit.caller.org, cursor).await,
        Reach::Npc(npc) => of_npc(gateway, npc, cursor).await,
    }
}

async fn of_device(
    gateway: &Gateway,
    device: &DeviceKey,
    cursor: Option<&str>,
) -> Result<Page, ErrorData> {
    if let Some(cursor) = cursor {
        return Err(unknown_cursor(cursor));
    }
    let toolset = gateway
        .mcp
        .toolsets
        .of(gateway, device, Naming::Alone)
        .await;
    let toolset = toolset
        .map_err(|error| unavailable(&error))?
        .ok_or_else(|| unknown_device(&device.device))?;
    let offered = toolset.offered().iter();
    Ok(Page {
        tools: offered.map(|offered| offered.tool.clone()).collect(),
        next_cursor: None,
        incomplete: false,
    })
}

/// The tools of the next devices in byte order of their ids. The cursor is the last of them.
async fn of_all(gateway: &Gateway, org: OrgId, cursor: Option<&str>) -> Result<Page, ErrorData> {
    if let Some(cursor) = cursor
        && cursor.parse::<DeviceId>().is_err()
    {
        return Err(unknown_cursor(cursor));
    }
    let page = devices::page(gateway, org, cursor, DEVICES_A_PAGE).await;
    let page = page.map_err(|error| unavailable(&error.into()))?;
    let next_cursor = match page.entries.last() {
        Some(last) if page.more => Some(last.id.to_string()),
        _ => None,
    };
    let mut tools = Vec::new();
    for entry in &page.entries {
        let toolset = gateway.mcp.toolsets.of_entry(gateway, entry).await;
        let toolset = toolset.map_err(|error| unavailable(&error))?;
        tools.extend(prefixed(&entry.id, toolset.offered()));
    }
    Ok(Page {
        tools,
        next_cursor,
        incomplete: page.incomplete,
    })
}

/// The tools of an NPC's next devices that it may use, in byte order of their ids. The cursor is the last of them.
async fn of_npc(gateway: &Gateway, npc: &Npc, cursor: Option<&str>) -> Result<Page, ErrorData> {
    if let Some(cursor) = cursor
        && cursor.parse::<DeviceId>().is_err()
    {
        return Err(unknown_cursor(cursor));
    }
    let naming = npc::naming(npc);
    let devices = npc.settings.devices.iter();
    let mut devices = devices.filter(|device| cursor.is_none_or(|after| device.as_str() > after));
    let mut tools = Vec::new();
    let mut last = None;
    for device in devices.by_ref().take(DEVICES_A_PAGE.into()) {
        last = Some(device.to_string());
        let key = DeviceKey {
            org: npc.org,
            device: device.clone(),
        };
        let toolset = gateway.mcp.toolsets.of(gateway, &key, naming).await;
        // A device may be bound before it connects for the first time.
        let toolset = toolset.map_err(|error| unavailable(&error))?;
        let toolset = toolset.unwrap_or_default();
        let offered = toolset.offered().iter();
        let offered = offered.filter(|offered| npc::may_use(npc, &offered.service));
        match naming {
            Naming::Alone => tools.extend(offered.map(|offered| offered.tool.clone())),
            Naming::Prefixed => tools.extend(prefixed(device, offered)),
        }
    }
    let next_cursor = last.filter(|_| devices.next().is_some());
    Ok(Page {
        tools,
        next_cursor,
        incomplete: false,
    })
}

fn prefixed<'a>(
    device: &'a DeviceId,
    offered: impl IntoIterator<Item = &'a Offered>,
) -> impl Iterator<Item = Tool> {
    let part = tool_name::device_part(device.as_str());
    offered.into_iter().map(move |offered| {
        let mut tool = offered.tool.clone();
        tool.name = tool_name::join(&part, &tool.name).into();
        tool.title = Some(toolset::title_of(device.as_str(), offered));
        tool
    })
}

fn unknown_cursor(cursor: &str) -> ErrorData {
    let detail = "this cursor did not come from here; leave it out to begin at the first page";
    ErrorData::invalid_params(detail, Some(serde_json::json!({ "cursor": cursor })))
}

fn unknown_device(device: &DeviceId) -> ErrorData {
    let detail = format!("there is no device {device} in this organisation");
    ErrorData::invalid_params(detail, None)
}

/// What a device offers could not be read.
pub(super) fn unavailable(error: &ToolsetError) -> ErrorData {
    tracing::warn!(
        %error,
        cause = std::error::Error::source(error).map(tracing::field::display),
        "what a device offers could not be read"
    );
    ErrorData::internal_error(
        format!("{error} at the moment; nothing was sent, and a retry is safe"),
        None,
    )
}
