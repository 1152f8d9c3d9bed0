//! `tools/list`: the tools of an endpoint, including those of devices that are not connected.
//!
//! Invariant: the order is the same on all nodes, and an incomplete list is marked.

use std::sync::Arc;

use rmcp::{ErrorData, model::Tool};
use switchboard_identity::{ApprovedServices, Caller};
use switchboard_protocol::id::{DeviceId, DeviceKey, OrgId};
use switchboard_runtime::{
    budget::{Owner, Permit},
    paging::{Limit, PageBytes},
    response_budget::PageCharge,
};
use switchboard_store::Npc;
use switchboard_tools::tool_name::{self, Naming};

use super::{
    approvals,
    catalog::CatalogError,
    toolset::{self, ServiceTool, Toolset},
};
use crate::{
    Gateway, devices,
    mcp::{
        npc,
        transport::{
            auth::{ClientContext, Endpoint},
            reservation::exhausted,
        },
    },
};

/// Devices whose tools form one page, at most. A page also ends at 4 MiB, with at least one device.
const PAGE_LIMIT: Limit = Limit::fixed(25);

/// The memory of the parsed registrations of one page, unless it is one device. With its JSON, a page
/// fits into the share of an organisation.
const MAX_PARSED_BYTES: usize = 10 * 1024 * 1024;

/// A page of tools.
pub(in crate::mcp) struct ToolPage {
    pub(in crate::mcp) tools: Vec<Tool>,
    /// The charge of a large page.
    pub(in crate::mcp) permit: Option<Permit>,
    pub(in crate::mcp) next_cursor: Option<String>,
    /// The database was unavailable: tools of devices that are not connected are missing.
    pub(in crate::mcp) incomplete: bool,
}

/// A page that is assembled. It is charged as registrations are read.
struct PageBuilder<'a> {
    tools: Vec<Tool>,
    listed: PageBytes,
    /// Each registration of the page once, and their size in memory.
    toolsets: Vec<Arc<Toolset>>,
    parsed_bytes: usize,
    charge: PageCharge<'a>,
}

impl<'a> PageBuilder<'a> {
    fn new(gateway: &'a Gateway, org: OrgId) -> Self {
        Self {
            tools: Vec::new(),
            listed: PageBytes::default(),
            toolsets: Vec::new(),
            parsed_bytes: 0,
            charge: PageCharge::new(&gateway.responses, Owner::Org(org.uuid())),
        }
    }

    /// Makes room for the tools of a device. False if they belong to the next page.
    fn admit(&mut self, toolset: &Arc<Toolset>) -> Result<bool, ErrorData> {
        let mut parsed_bytes = self.parsed_bytes;
        if !self.toolsets.iter().any(|one| Arc::ptr_eq(one, toolset)) {
            let bytes = usize::try_from(toolset.bytes()).unwrap_or(usize::MAX);
            parsed_bytes = parsed_bytes.saturating_add(bytes);
        }
        let is_first = self.toolsets.is_empty();
        if (!is_first && parsed_bytes > MAX_PARSED_BYTES)
            || !self.listed.add(toolset.listed_bytes())
        {
            return Ok(false);
        }
        self.parsed_bytes = parsed_bytes;
        self.toolsets.push(Arc::clone(toolset));
        let bytes = parsed_bytes.saturating_add(self.listed.total());
        self.charge.hold(bytes).map_err(exhausted)?;
        Ok(true)
    }

    fn build(self, next_cursor: Option<String>, incomplete: bool) -> ToolPage {
        ToolPage {
            tools: self.tools,
            permit: self.charge.into_permit(usize::MAX),
            next_cursor,
            incomplete,
        }
    }
}

pub(in crate::mcp) async fn list(
    gateway: &Gateway,
    client: &ClientContext,
    cursor: Option<&str>,
) -> Result<ToolPage, ErrorData> {
    match &client.endpoint {
        Endpoint::Device(device) => list_device(gateway, &client.caller, device, cursor).await,
        Endpoint::All => list_org(gateway, &client.caller, cursor).await,
        Endpoint::Npc(npc) => list_npc(gateway, &client.caller, npc, cursor).await,
    }
}

async fn list_device(
    gateway: &Gateway,
    caller: &Caller,
    device: &DeviceKey,
    cursor: Option<&str>,
) -> Result<ToolPage, ErrorData> {
    if let Some(cursor) = cursor {
        return Err(unknown_cursor(cursor));
    }
    let toolset = gateway
        .mcp
        .catalog
        .get(gateway, device, Naming::Alone)
        .await;
    let toolset = toolset
        .map_err(|error| unavailable(&error))?
        .ok_or_else(|| unknown_device(&device.device))?;
    let approved = approvals::of(gateway, device.org).await?;
    let mut page = PageBuilder::new(gateway, device.org);
    page.admit(&toolset)?;
    let tools = reachable((caller, approved.as_deref()), device, toolset.tools());
    page.tools.extend(tools.map(|tool| tool.tool.clone()));
    Ok(page.build(None, false))
}

/// The tools of the next devices in byte order of their IDs. The cursor is the last device.
async fn list_org(
    gateway: &Gateway,
    caller: &Caller,
    cursor: Option<&str>,
) -> Result<ToolPage, ErrorData> {
    let org = caller.org;
    if let Some(cursor) = cursor
        && cursor.parse::<DeviceId>().is_err()
    {
        return Err(unknown_cursor(cursor));
    }
    let devices = devices::reached(gateway, caller, cursor, PAGE_LIMIT).await;
    let devices = devices.map_err(|error| unavailable(&error.into()))?;
    let approved = approvals::of(gateway, org).await?;
    let mut page = PageBuilder::new(gateway, org);
    let (mut last, mut more) = (None, devices.more);
    for entry in &devices.entries {
        let toolset = gateway.mcp.catalog.for_entry(gateway, org, entry).await;
        let toolset = toolset.map_err(|error| unavailable(&error))?;
        if !page.admit(&toolset)? {
            more = true;
            break;
        }
        last = Some(entry.id.to_string());
        let device = DeviceKey {
            org,
            device: entry.id.clone(),
        };
        let tools = reachable((caller, approved.as_deref()), &device, toolset.tools());
        page.tools.extend(prefixed(&entry.id, tools));
    }
    Ok(page.build(last.filter(|_| more), devices.incomplete))
}

/// The tools that an NPC may use of its next devices in byte order of their IDs. The cursor is
/// the last device.
async fn list_npc(
    gateway: &Gateway,
    caller: &Caller,
    npc: &Npc,
    cursor: Option<&str>,
) -> Result<ToolPage, ErrorData> {
    if let Some(cursor) = cursor
        && cursor.parse::<DeviceId>().is_err()
    {
        return Err(unknown_cursor(cursor));
    }
    let naming = npc::naming(npc);
    let devices = npc.settings.devices.iter();
    let devices = devices.filter(|device| cursor.is_none_or(|after| device.as_str() > after));
    let devices = devices.filter(|device| caller.check_device(device).is_ok());
    let devices: Vec<&DeviceId> = devices.collect();
    let limit = usize::from(PAGE_LIMIT.count());
    let mut more = devices.len() > limit;
    let approved = approvals::of(gateway, npc.org).await?;
    let mut page = PageBuilder::new(gateway, npc.org);
    let mut last = None;
    for device in devices.into_iter().take(limit) {
        let key = DeviceKey {
            org: npc.org,
            device: device.clone(),
        };
        let toolset = gateway.mcp.catalog.get(gateway, &key, naming).await;
        // A device may be assigned to an NPC before it connects for the first time.
        let toolset = toolset.map_err(|error| unavailable(&error))?;
        let toolset = toolset.unwrap_or_default();
        if !page.admit(&toolset)? {
            more = true;
            break;
        }
        let permitted = reachable((caller, approved.as_deref()), &key, toolset.tools());
        let permitted = permitted.filter(|tool| npc::may_use(npc, &tool.service));
        match naming {
            Naming::Alone => page.tools.extend(permitted.map(|tool| tool.tool.clone())),
            Naming::Prefixed => page.tools.extend(prefixed(device, permitted)),
        }
        last = Some(device.to_string());
    }
    Ok(page.build(last.filter(|_| more), false))
}

/// The tools of a device that the credential reaches and the organisation has approved.
fn reachable<'a>(
    (caller, approved): (&'a Caller, Option<&'a ApprovedServices>),
    device: &'a DeviceKey,
    tools: &'a [Arc<ServiceTool>],
) -> impl Iterator<Item = &'a Arc<ServiceTool>> {
    let tools = tools.iter();
    tools
        .filter(|tool| caller.check_service(&tool.service).is_ok())
        .filter(move |tool| approvals::permits(approved, device, tool))
}

fn prefixed<'a>(
    device: &'a DeviceId,
    tools: impl IntoIterator<Item = &'a Arc<ServiceTool>>,
) -> impl Iterator<Item = Tool> {
    let part = tool_name::device_part(device.as_str());
    tools.into_iter().map(move |service| {
        let mut tool = service.tool.clone();
        tool.name = tool_name::join(&part, &tool.name).into();
        tool.title = Some(toolset::prefixed_title(device.as_str(), service));
        tool
    })
}

fn unknown_cursor(cursor: &str) -> ErrorData {
    let detail = "this is not a cursor of this list; omit it for the first page";
    ErrorData::invalid_params(detail, Some(serde_json::json!({ "cursor": cursor })))
}

fn unknown_device(device: &DeviceId) -> ErrorData {
    let detail = format!("there is no device {device} in this organisation");
    ErrorData::invalid_params(detail, None)
}

/// The error of a request that failed because tools could not be read.
pub(super) fn unavailable(error: &CatalogError) -> ErrorData {
    tracing::warn!(
        %error,
        cause = std::error::Error::source(error).map(tracing::field::display),
        "the tools of a device could not be read"
    );
    ErrorData::internal_error(
        format!("{error} at the moment; nothing was sent, and a retry is safe"),
        None,
    )
}
