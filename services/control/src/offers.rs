//! What agents can read has changed: told to the nodes that show it to them.
//! Never: a change that is not stored yet, or a request that fails because nobody could be told.

use switchboard_bus::OfferChange;
use switchboard_protocol::id::OrgId;
use switchboard_store::Owner;

use crate::Control;

impl Control {
    /// Templates of this owner are others than before.
    pub(crate) async fn prompts_changed(&self, owner: Owner) {
        self.tell(OfferChange::Prompts { org: org_of(owner) }).await;
    }

    /// Memories or pictures of this owner are others than before; it is known which one, if it is one.
    pub(crate) async fn resources_changed(&self, owner: Owner, uri: Option<String>) {
        let uri = uri.map(String::into_boxed_str);
        self.tell(OfferChange::Resources {
            org: org_of(owner),
            uri,
        })
        .await;
    }

    async fn tell(&self, change: OfferChange) {
        if let Err(error) = self.bus.offer(change).await {
            tracing::warn!(%error, "agents hear of a change only when they read again");
        }
    }
}

const fn org_of(owner: Owner) -> Option<OrgId> {
    match owner {
        Owner::Org(org) => Some(org),
        Owner::Installation => None,
    }
}
