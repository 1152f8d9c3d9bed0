//! What changes in what one endpoint offers, for clients that listen.
//! Never: a change told twice, or one told that the client would not see.

use std::sync::Arc;

use switchboard_bus::{Registered, RegistrationEvents};
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    schema::Digest,
};

use super::access::{Reach, Visit};
use crate::Gateway;

/// The changes of one endpoint, from the moment on in which this was made.
pub(super) struct Changes {
    gateway: Arc<Gateway>,
    events: Option<RegistrationEvents>,
    org: OrgId,
    reach: Reach,
    /// What the one device offered when the client was told last.
    known: Option<Digest>,
}

/// What a client should read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Tools,
}

impl Changes {
    pub(super) async fn follow(gateway: &Arc<Gateway>, visit: &Visit) -> Self {
        // First the subscription, then the look at what is there: nothing falls in between.
        let events = gateway.bus.registrations();
        let known = match &visit.reach {
            Reach::Device(device) => offered(gateway, device).await,
            Reach::All => None,
        };
        Self {
            gateway: Arc::clone(gateway),
            events,
            org: visit.caller.org,
            reach: visit.reach.clone(),
            known,
        }
    }

    /// The next change; waits for ever where this node hears of none. Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> Change {
        loop {
            let event = match &mut self.events {
                Some(events) => events.next().await,
                None => std::future::pending().await,
            };
            if self.concerns(event).await {
                return Change::Tools;
            }
        }
    }

    async fn concerns(&mut self, event: Registered) -> bool {
        match (event, &self.reach) {
            (Registered::Missed, Reach::All) => true,
            (Registered::Missed, Reach::Device(device)) => {
                let now = offered(&self.gateway, device).await;
                self.differs(now)
            }
            // What a device offered stays listed while it sleeps.
            (Registered::Services { device, digest }, Reach::All) => {
                device.org == self.org && digest.is_some()
            }
            (Registered::Services { device, digest }, Reach::Device(mine)) => {
                device == *mine && self.differs(digest)
            }
        }
    }

    fn differs(&mut self, now: Option<Digest>) -> bool {
        let differs = now.is_some() && now != self.known;
        if differs {
            self.known = now;
        }
        differs
    }
}

/// What a live device offers; `None` as well when the directory is away, and then a later event tells.
async fn offered(gateway: &Gateway, device: &DeviceKey) -> Option<Digest> {
    let presence = gateway.bus.find(device).await.ok()??;
    presence.digest
}
