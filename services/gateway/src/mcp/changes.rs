//! What changes in what one endpoint offers, for clients that listen.
//! Never: a change told twice, or one told that the client would not see.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use switchboard_bus::{OfferChange, OfferChanges};
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    schema::Digest,
};
use tokio::{sync::watch, time::Instant};

use super::{
    access::{Reach, Visit},
    catalogues::Catalogues,
    npc_changes::Followed,
};
use crate::Gateway;

/// Tools that change again within this time are told once more at its end: a thousand devices that come back after an
/// outage are two notifications and not a thousand.
const PAUSE: Duration = Duration::from_millis(500);

/// The changes of one endpoint, from the moment on in which this was made.
pub(super) struct Changes {
    gateway: Arc<Gateway>,
    events: Option<OfferChanges>,
    org: OrgId,
    tools: Tools,
    /// Whether the client sees prompts and resources.
    reads: bool,
    untold: VecDeque<Change>,
    /// When the client is to be told of other tools.
    tools_due: Option<Instant>,
    tools_told: Option<Instant>,
}

/// What a client should read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Tools,
    Prompts,
    /// The list of resources, and the one with this URI if it is known which.
    Resources(Option<Box<str>>),
}

/// Whose tools are followed.
enum Tools {
    /// One device's, and what it offered when the client was told last.
    Of(DeviceKey, Option<Digest>),
    /// Those of all devices; `None` where this node hears of no changes.
    OfAll(Option<watch::Receiver<u64>>),
    /// Those of an NPC's devices, and with them whatever else it has.
    OfNpc(Box<Followed>),
}

impl Changes {
    pub(super) async fn follow(gateway: &Arc<Gateway>, visit: &Visit) -> Self {
        // First the subscription, then the look at what is there: nothing falls in between.
        let events = gateway.bus.offer_changes();
        let org = visit.caller.org;
        let reads = visit.reads().is_some();
        let tools = match &visit.reach {
            Reach::Device(device) => {
                let offered = offered_or_remembered(gateway, device).await;
                Tools::Of(device.clone(), offered)
            }
            Reach::All => Tools::OfAll(Catalogues::follow(gateway, org).await),
            Reach::Npc(npc) => {
                let followed = Followed::begin(gateway, npc.org, npc.id, reads).await;
                Tools::OfNpc(Box::new(followed))
            }
        };
        Self {
            gateway: Arc::clone(gateway),
            events,
            org,
            tools,
            reads,
            untold: VecDeque::new(),
            tools_due: None,
            tools_told: None,
        }
    }

    /// The next change, `None` when the endpoint is no more; waits for ever where this node hears of none.
    pub(super) async fn next(&mut self) -> Option<Change> {
        loop {
            if let Some(change) = self.untold.pop_front() {
                return Some(change);
            }
            tokio::select! {
                () = at(self.tools_due) => {
                    self.tools_due = None;
                    self.tools_told = Some(Instant::now());
                    return Some(Change::Tools);
                }
                () = at(self.tools.look_due()) => {
                    if !self.look().await {
                        return None;
                    }
                }
                event = heard(&mut self.events) => self.note(event).await,
                () = self.tools.new_edition() => self.note_tools(),
            }
        }
    }

    /// Notes what this endpoint's client would see of a change.
    async fn note(&mut self, event: OfferChange) {
        let mine = |org: Option<OrgId>| org.is_none_or(|org| org == self.org);
        if let (
            Tools::OfNpc(followed),
            OfferChange::Prompts { org } | OfferChange::Resources { org, .. },
        ) = (&mut self.tools, &event)
        {
            // What it has to do with the NPC, a look at it says.
            if mine(*org) {
                followed.note();
            }
            return;
        }
        let mine = |org| self.reads && mine(org);
        match event {
            OfferChange::Services { device, digest } => {
                if self.tools.changed(Some(&device), digest) {
                    self.note_tools();
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
        match &mut self.tools {
            Tools::Of(device, _) => {
                let now = offered(&self.gateway, device).await;
                if self.tools.changed(None, now) {
                    self.note_tools();
                }
            }
            Tools::OfAll(_) => {}
            Tools::OfNpc(followed) => {
                if followed.missed().await {
                    self.note_tools();
                }
                return;
            }
        }
        if self.reads {
            self.untold
                .extend([Change::Prompts, Change::Resources(None)]);
        }
    }

    /// Notes what has become of the NPC; whether it is still there.
    async fn look(&mut self) -> bool {
        let Tools::OfNpc(followed) = &mut self.tools else {
            return true;
        };
        let news = followed.look().await;
        if news.tools {
            self.note_tools();
        }
        if news.prompts {
            self.untold.push_back(Change::Prompts);
        }
        if news.resources {
            self.untold.push_back(Change::Resources(None));
        }
        !news.gone
    }

    fn note_tools(&mut self) {
        let now = Instant::now();
        let due = self.tools_told.map_or(now, |told| now.max(told + PAUSE));
        self.tools_due.get_or_insert(due);
    }
}

impl Tools {
    /// Whether the one device, if it is this one, offers something else than before, or one of the NPC's does.
    fn changed(&mut self, whose: Option<&DeviceKey>, now: Option<Digest>) -> bool {
        let (device, known) = match self {
            Self::Of(device, known) => (device, known),
            Self::OfNpc(followed) => {
                return whose.is_some_and(|whose| followed.offers_anew(whose, now));
            }
            Self::OfAll(_) => return false,
        };
        let mine = whose.is_none_or(|whose| whose == device);
        let changed = mine && now.is_some() && now != *known;
        if changed {
            *known = now;
        }
        changed
    }

    /// When the NPC has to be looked at.
    fn look_due(&self) -> Option<Instant> {
        match self {
            Self::OfNpc(followed) => followed.due(),
            Self::Of(..) | Self::OfAll(_) => None,
        }
    }

    async fn new_edition(&mut self) {
        if let Self::OfAll(Some(editions)) = self
            && editions.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

async fn heard(events: &mut Option<OfferChanges>) -> OfferChange {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}

/// What a device is listed with, live or not.
pub(super) async fn offered_or_remembered(gateway: &Gateway, device: &DeviceKey) -> Option<Digest> {
    match offered(gateway, device).await {
        Some(live) => Some(live),
        None => remembered(gateway, device).await,
    }
}

/// What a live device offers; `None` as well when the directory is away, and then a later event tells.
pub(super) async fn offered(gateway: &Gateway, device: &DeviceKey) -> Option<Digest> {
    let presence = gateway.bus.find(device).await.ok()??;
    presence.digest
}

/// What a sleeping device is listed with; a device of which nothing can be read is told when it comes.
async fn remembered(gateway: &Gateway, device: &DeviceKey) -> Option<Digest> {
    let stored = gateway.store.device(device.org, &device.device).await;
    let services = stored.ok()??.services?;
    Some(Digest::of(services.get().as_bytes()))
}
