//! An NPC as a server of its own: who it is, and which of its devices' tools are its tools.
//! Never: settings kept from one request to the next, or a tool that its policy refuses.

use std::sync::Arc;

use http::StatusCode;
use rmcp::model::ServerConfig;
use switchboard_protocol::id::{NpcId, OrgId};
use switchboard_runtime::problem::Problem;
use switchboard_store::{Npc, StoreError};
use switchboard_tools::Naming;

use crate::{Gateway, store_unavailable};

/// How much of who it is stands in a server's instructions. Protects a model's context: clients put them there unasked.
const INSTRUCTIONS_BYTES: usize = 16 * 1024;

/// The organisation's NPC with this id, as it is now.
pub(super) async fn find(gateway: &Gateway, org: OrgId, id: &str) -> Result<Arc<Npc>, Problem> {
    let unknown = || {
        Problem::new(
            StatusCode::NOT_FOUND,
            "not_found",
            "Not found",
            format!("There is no NPC {id} in this organisation."),
        )
    };
    let id: NpcId = id.parse().map_err(|_| unknown())?;
    let found = gateway.store.npc(org, id).await;
    let npc = found.map_err(|error| unreadable(&error))?;
    npc.map(Arc::new).ok_or_else(unknown)
}

/// With one device, tools are called what that device's endpoint calls them; with several, as where all devices are
/// one server. What holds follows from the NPC's settings alone, and not from who is there.
pub(super) fn naming(npc: &Npc) -> Naming {
    match npc.settings.devices.as_slice() {
        [] | [_] => Naming::Alone,
        _ => Naming::Prefixed,
    }
}

/// Whether its policy lets it use a service.
pub(super) fn may_use(npc: &Npc, service: &str) -> bool {
    let policy = &npc.effective.settings.tools;
    switchboard_tools::permits(policy.allow.as_deref(), &policy.deny, service)
}

/// Says in what a client learns of its server whom it speaks for.
pub(super) fn introduce(npc: &Npc, info: &mut ServerConfig) {
    let settings = &npc.effective.settings;
    let mut who = settings.persona.as_text(&settings.name);
    if who.len() > INSTRUCTIONS_BYTES {
        who.truncate(who.floor_char_boundary(INSTRUCTIONS_BYTES));
        who.push_str("…\n\nThe rest of who you are does not fit here.");
    }
    info.instructions = Some(who);
    info.server_info.title = Some(settings.name.clone());
}

fn unreadable(error: &StoreError) -> Problem {
    store_unavailable(
        error,
        "an NPC could not be looked up",
        "Who the NPC is cannot be read at the moment; nothing was sent, and a retry is safe.",
    )
}
