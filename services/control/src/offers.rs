//! What agents can read has changed: told to the nodes that show it to them.
//! Never: a change that is not stored yet, or a request that fails because nobody could be told.

use switchboard_bus::{Bus, OfferChange};
use switchboard_protocol::id::OrgId;
use switchboard_store::Owner;

use crate::Control;

impl Control {
    /// Templates or NPCs of this owner are others than before.
    pub(crate) async fn prompts_changed(&self, owner: Owner) {
        let org = org_of(owner);
        tell(&self.bus, OfferChange::Prompts { org }).await;
    }

    /// Memories, pictures or skills books of this owner are others than before; it is known which one, if it is one.
    pub(crate) async fn resources_changed(&self, owner: Owner, uri: Option<String>) {
        resources_changed(&self.bus, owner, uri).await;
    }
}

/// The same where no request is answered.
pub(crate) async fn resources_changed(bus: &Bus, owner: Owner, uri: Option<String>) {
    let (org, uri) = (org_of(owner), uri.map(String::into_boxed_str));
    tell(bus, OfferChange::Resources { org, uri }).await;
}

async fn tell(bus: &Bus, change: OfferChange) {
    if let Err(error) = bus.offer(change).await {
        tracing::warn!(%error, "agents hear of a change only when they read again");
    }
}

const fn org_of(owner: Owner) -> Option<OrgId> {
    match owner {
        Owner::Org(org) => Some(org),
        Owner::Installation => None,
    }
}
