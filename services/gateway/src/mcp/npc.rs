//! An NPC as an MCP server: its instructions, and the tools that it may use.

use std::sync::Arc;

use rmcp::model::ServerConfig;
use switchboard_protocol::id::{NpcId, OrgId};
use switchboard_runtime::problem::{Problem, ProblemKind};
use switchboard_store::{Npc, StoreError};
use switchboard_tools::Naming;

use crate::{Gateway, store_unavailable};

/// Longer instructions are truncated. Protects the context of a model, into which clients put
/// them.
const MAX_INSTRUCTIONS_BYTES: usize = 16 * 1024;

pub(super) async fn find(gateway: &Gateway, org: OrgId, id: &str) -> Result<Arc<Npc>, Problem> {
    let unknown = || {
        Problem::new(
            ProblemKind::NotFound,
            format!("There is no NPC {id} in this organisation."),
        )
    };
    let id: NpcId = id.parse().map_err(|_| unknown())?;
    let found = gateway.store.npc_without_card(org, id).await;
    let npc = found.map_err(|error| npc_unavailable(&error))?;
    npc.map(Arc::new).ok_or_else(unknown)
}

/// How tools are named: with one device as on the device's endpoint, with several as on `/mcp`.
/// Depends on the settings of the NPC, not on which devices are connected.
pub(super) fn naming(npc: &Npc) -> Naming {
    match npc.settings.devices.as_slice() {
        [] | [_] => Naming::Alone,
        _ => Naming::Prefixed,
    }
}

/// Whether the policy of an NPC permits a service.
pub(super) fn may_use(npc: &Npc, service: &str) -> bool {
    let policy = &npc.effective.settings.tools;
    switchboard_tools::permits(policy.allow.as_deref(), &policy.deny, service)
}

/// Adds the persona of an NPC to the information about its server.
pub(super) fn describe(npc: &Npc, info: &mut ServerConfig) {
    let settings = &npc.effective.settings;
    let mut instructions = settings.persona.as_text(&settings.name);
    if instructions.len() > MAX_INSTRUCTIONS_BYTES {
        instructions.truncate(instructions.floor_char_boundary(MAX_INSTRUCTIONS_BYTES));
        instructions.push_str("…\n\nThe rest of who you are does not fit here.");
    }
    info.instructions = Some(instructions);
    info.server_info.title = Some(settings.name.clone());
}

fn npc_unavailable(error: &StoreError) -> Problem {
    store_unavailable(
        error,
        "an NPC could not be read",
        "The NPC cannot be read at the moment; nothing was sent, and a retry is safe.",
    )
}
