//! Publishes changes of prompts, resources and approvals to the nodes that cache them, or whose MCP
//! clients see them.
//!
//! Invariant: a change is stored before it is published. A failed publication fails no request.

use switchboard_bus::{Bus, CatalogEvent};
use switchboard_protocol::id::OrgId;
use switchboard_store::Owner;

use crate::Control;

impl Control {
    /// Templates or NPCs of this owner have changed, or which NPC is the default one.
    pub(crate) async fn prompts_changed(&self, owner: Owner) {
        let org = owner_org(owner);
        publish(&self.bus, CatalogEvent::Prompts { org }).await;
    }

    /// Whether models of this organisation call only approved services has changed.
    pub(crate) async fn approvals_changed(&self, org: OrgId) {
        publish(&self.bus, CatalogEvent::Approvals { org }).await;
    }

    /// Memories, pictures or skills books of this owner have changed. `uri` is set if
    /// it is only one.
    pub(crate) async fn resources_changed(&self, owner: Owner, uri: Option<String>) {
        resources_changed(&self.bus, owner, uri).await;
    }
}

/// Like the method, for workers.
pub(crate) async fn resources_changed(bus: &Bus, owner: Owner, uri: Option<String>) {
    let (org, uri) = (owner_org(owner), uri.map(String::into_boxed_str));
    publish(bus, CatalogEvent::Resources { org, uri }).await;
}

async fn publish(bus: &Bus, change: CatalogEvent) {
    if let Err(error) = bus.publish_catalog_event(change).await {
        tracing::warn!(%error, "a catalog change cannot be published; nodes and MCP clients see it when they read again");
    }
}

const fn owner_org(owner: Owner) -> Option<OrgId> {
    match owner {
        Owner::Org(org) => Some(org),
        Owner::Installation => None,
    }
}
