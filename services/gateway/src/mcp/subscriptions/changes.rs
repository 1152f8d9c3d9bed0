//! The changes of one endpoint, for clients that are notified of them.
//!
//! Invariant: a change that the client cannot see is not reported.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use switchboard_bus::{CatalogEvent, CatalogWatch};
use switchboard_protocol::{id::DeviceKey, schema::Digest};
use tokio::{sync::watch, time::Instant};

use super::{editions::CatalogEditions, npc_changes::NpcWatch};
use crate::{
    Gateway,
    mcp::transport::auth::{ClientContext, Endpoint},
};

/// Changes of tools within this time are reported together at its end. When a thousand devices
/// reconnect after an outage, a client receives two notifications.
const DEBOUNCE_INTERVAL: Duration = Duration::from_millis(500);

/// The changes of one endpoint, from the subscription on.
pub(in crate::mcp) struct Changes {
    gateway: Arc<Gateway>,
    events: Option<CatalogWatch>,
    tools: ToolSource,
    /// Whether the client can see prompts and resources.
    can_read: bool,
    pending: VecDeque<Change>,
    /// When a change of tools is reported.
    tools_due: Option<Instant>,
    tools_reported: Option<Instant>,
}

/// What the client should read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mcp) enum Change {
    Tools,
    Prompts,
    /// The list of resources, and the resource with this URI. `None` if any may have changed.
    Resources(Option<Box<str>>),
}

/// Whose tools are watched.
enum ToolSource {
    /// A device, with the registration that the client knows.
    Device(DeviceKey, Option<Digest>),
    /// All devices of the organisation. `None` on a node without catalog events.
    Org(Option<watch::Receiver<u64>>),
    /// An NPC, with its tools, prompt and resources.
    Npc(Box<NpcWatch>),
}

impl Changes {
    pub(in crate::mcp) async fn subscribe(gateway: &Arc<Gateway>, client: &ClientContext) -> Self {
        // Subscribe before reading, so that no change in between is missed.
        let org = client.caller.org;
        let events = gateway.bus.watch_catalog_of(org);
        let can_read = client.readable().is_some();
        let tools = match &client.endpoint {
            Endpoint::Device(device) => {
                let registration = registration(gateway, device).await;
                ToolSource::Device(device.clone(), registration)
            }
            Endpoint::All => ToolSource::Org(CatalogEditions::subscribe(gateway, org).await),
            Endpoint::Npc(npc) => {
                let watch = NpcWatch::new(gateway, npc.org, npc.id, can_read).await;
                ToolSource::Npc(Box::new(watch))
            }
        };
        Self {
            gateway: Arc::clone(gateway),
            events,
            tools,
            can_read,
            pending: VecDeque::new(),
            tools_due: None,
            tools_reported: None,
        }
    }

    /// The next change. `None` if the endpoint was deleted. Never completes on a node without
    /// catalog events.
    pub(in crate::mcp) async fn next(&mut self) -> Option<Change> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Some(change);
            }
            tokio::select! {
                () = sleep_until(self.tools_due) => {
                    self.tools_due = None;
                    self.tools_reported = Some(Instant::now());
                    return Some(Change::Tools);
                }
                () = sleep_until(self.tools.refresh_due()) => {
                    if !self.refresh_npc().await {
                        return None;
                    }
                }
                event = next_event(&mut self.events) => self.apply(event).await,
                () = self.tools.next_edition() => self.schedule_tools(),
            }
        }
    }

    /// Adds what the client can see of an event.
    async fn apply(&mut self, event: CatalogEvent) {
        if let (
            ToolSource::Npc(npc),
            CatalogEvent::Prompts { .. } | CatalogEvent::Resources { .. },
        ) = (&mut self.tools, &event)
        {
            // Reading the NPC again shows whether the event concerns it.
            npc.schedule_refresh();
            return;
        }
        match event {
            CatalogEvent::Services { device, digest } => {
                if self.tools.update(Some(&device), digest) {
                    self.schedule_tools();
                }
            }
            CatalogEvent::Prompts { .. } if self.can_read => {
                self.pending.push_back(Change::Prompts);
            }
            CatalogEvent::Resources { uri, .. } if self.can_read => {
                self.pending.push_back(Change::Resources(uri));
            }
            CatalogEvent::Prompts { .. } | CatalogEvent::Resources { .. } => {}
            CatalogEvent::Approvals { .. } => self.schedule_tools(),
            CatalogEvent::Lagged => self.resync().await,
        }
    }

    /// Reports everything that may have changed while events were missed.
    async fn resync(&mut self) {
        match &mut self.tools {
            ToolSource::Device(device, _) => {
                let current = live_registration(&self.gateway, device).await;
                if self.tools.update(None, current) {
                    self.schedule_tools();
                }
            }
            ToolSource::Org(_) => {}
            ToolSource::Npc(npc) => {
                if npc.resync().await {
                    self.schedule_tools();
                }
                return;
            }
        }
        if self.can_read {
            let changes = [Change::Prompts, Change::Resources(None)];
            self.pending.extend(changes);
        }
    }

    /// Reads the NPC again and adds its changes. Returns whether it still exists.
    async fn refresh_npc(&mut self) -> bool {
        let ToolSource::Npc(npc) = &mut self.tools else {
            return true;
        };
        let changes = npc.refresh().await;
        if changes.tools {
            self.schedule_tools();
        }
        if changes.prompts {
            self.pending.push_back(Change::Prompts);
        }
        if changes.resources {
            self.pending.push_back(Change::Resources(None));
        }
        !changes.deleted
    }

    fn schedule_tools(&mut self) {
        let now = Instant::now();
        let due = self
            .tools_reported
            .map_or(now, |reported| now.max(reported + DEBOUNCE_INTERVAL));
        self.tools_due.get_or_insert(due);
    }
}

impl ToolSource {
    /// Updates a registration. Returns whether it has changed and belongs to this source; without
    /// a device it does.
    fn update(&mut self, device: Option<&DeviceKey>, current: Option<Digest>) -> bool {
        let (own, known) = match self {
            Self::Device(own, known) => (own, known),
            Self::Npc(npc) => return device.is_some_and(|device| npc.update(device, current)),
            Self::Org(_) => return false,
        };
        let is_own = device.is_none_or(|device| device == own);
        let changed = is_own && current.is_some() && current != *known;
        if changed {
            *known = current;
        }
        changed
    }

    /// When the NPC is read again.
    fn refresh_due(&self) -> Option<Instant> {
        match self {
            Self::Npc(npc) => npc.refresh_due(),
            Self::Device(..) | Self::Org(_) => None,
        }
    }

    async fn next_edition(&mut self) {
        if let Self::Org(Some(editions)) = self
            && editions.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

async fn next_event(events: &mut Option<CatalogWatch>) -> CatalogEvent {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}

/// The registration with which a device is listed, connected or not.
pub(super) async fn registration(gateway: &Gateway, device: &DeviceKey) -> Option<Digest> {
    match live_registration(gateway, device).await {
        Some(live) => Some(live),
        None => stored_registration(gateway, device).await,
    }
}

/// The registration of a connected device. Also `None` if the directory is unavailable; a later
/// event reports the change.
pub(super) async fn live_registration(gateway: &Gateway, device: &DeviceKey) -> Option<Digest> {
    let presence = gateway.bus.find(device).await.ok()??;
    presence.digest
}

/// The stored registration of a device. If it cannot be read, the change is reported when the
/// device connects.
async fn stored_registration(gateway: &Gateway, device: &DeviceKey) -> Option<Digest> {
    let stored = gateway.store.device(device.org, &device.device).await;
    stored.ok()??.digest
}
