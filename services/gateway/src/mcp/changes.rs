//! What changes in what one endpoint offers, for clients that listen.
//! Never: a change told twice, or one told that the client would not see.

use std::{collections::VecDeque, sync::Arc};

use switchboard_bus::{OfferChange, OfferChanges};
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    schema::Digest,
};

use super::access::{Reach, Visit};
use crate::Gateway;

/// The changes of one endpoint, from the moment on in which this was made.
pub(super) struct Changes {
    gateway: Arc<Gateway>,
    events: Option<OfferChanges>,
    org: OrgId,
    reach: Reach,
    /// What the one device offered when the client was told last.
    known: Option<Digest>,
    /// Whether the client sees prompts and resources.
    reads: bool,
    untold: VecDeque<Change>,
}

/// What a client should read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Tools,
    Prompts,
    /// The list of resources, and the one with this URI if it is known which.
    Resources(Option<Box<str>>),
}

impl Changes {
    pub(super) async fn follow(gateway: &Arc<Gateway>, visit: &Visit) -> Self {
        // First the subscription, then the look at what is there: nothing falls in between.
        let events = gateway.bus.offer_changes();
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
            reads: visit.reads().is_some(),
            untold: VecDeque::new(),
        }
    }

    /// The next change; waits for ever where this node hears of none. Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.untold.pop_front() {
                return change;
            }
            let event = match &mut self.events {
                Some(events) => events.next().await,
                None => std::future::pending().await,
            };
            self.note(event).await;
        }
    }

    /// Notes what this endpoint's client would see of a change.
    async fn note(&mut self, event: OfferChange) {
        let mine = |org: Option<OrgId>| self.reads && org.is_none_or(|org| org == self.org);
        match event {
            OfferChange::Services { device, digest } => {
                if self.concerns(&device, digest) {
                    self.untold.push_back(Change::Tools);
                }
            }
            OfferChange::Prompts { org } if mine(org) => self.untold.push_back(Change::Prompts),
            OfferChange::Resources { org, uri } if mine(org) => {
                self.untold.push_back(Change::Resources(uri));
            }
            OfferChange::Prompts { .. } | OfferChange::Resources { .. } => {}
            OfferChange::Missed => self.note_everything().await,
        }
    }

    /// Some changes were missed: whatever may have changed is told.
    async fn note_everything(&mut self) {
        let tools = match self.reach.clone() {
            Reach::All => true,
            Reach::Device(device) => {
                let now = offered(&self.gateway, &device).await;
                self.differs(now)
            }
        };
        if tools {
            self.untold.push_back(Change::Tools);
        }
        if self.reads {
            self.untold
                .extend([Change::Prompts, Change::Resources(None)]);
        }
    }

    fn concerns(&mut self, device: &DeviceKey, digest: Option<Digest>) -> bool {
        match &self.reach {
            // What a device offered stays listed while it sleeps.
            Reach::All => device.org == self.org && digest.is_some(),
            Reach::Device(mine) => device == mine && self.differs(digest),
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
