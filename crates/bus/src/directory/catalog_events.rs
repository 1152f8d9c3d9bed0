//! Changes in what devices and the control plane offer to agents.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    schema::Digest,
};
use tokio::sync::broadcast::{self, error::RecvError};

use crate::{bus::Bus, error::BusError, transport::Message};

/// Events of all organisations that wait for a busy subscriber. Protects memory; one takes about 100
/// bytes.
const CHANNEL_CAPACITY: usize = 1024;
/// The same for the events of one organisation, while it has subscribers.
const ORG_CHANNEL_CAPACITY: usize = 256;

/// A change in what is offered to agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogEvent {
    /// A device offers other services than before.
    Services {
        /// The device.
        device: DeviceKey,
        /// The services that it offers now; `None` when it went offline, or reconnected and has
        /// not registered yet.
        digest: Option<Digest>,
    },
    /// The prompts of an organisation changed, or of all organisations: its NPCs and templates, and
    /// which NPC answers for a device.
    Prompts {
        /// The organisation; `None` for all.
        org: Option<OrgId>,
    },
    /// The resources of an organisation changed, or of all organisations.
    Resources {
        /// The organisation; `None` for all.
        org: Option<OrgId>,
        /// The resource, if one changed; it may be new, or deleted.
        uri: Option<Box<str>>,
    },
    /// The approvals of an organisation changed, or whether it requires them.
    Approvals {
        /// The organisation.
        org: OrgId,
    },
    /// Some events were missed, because the subscriber lagged or the bus was not reachable.
    /// Everything that was read from the directory before may have changed.
    Lagged,
}

/// A subscription to the catalog events from now on.
#[derive(Debug)]
pub struct CatalogWatch {
    events: broadcast::Receiver<CatalogEvent>,
    /// The channel of one organisation, which its last subscriber removes.
    of_org: Option<(OrgId, Arc<CatalogChannels>)>,
}

/// The subscribers of a node: those of all events, and those of one organisation, which the events
/// of others do not wake.
///
/// Invariant: an organisation has a channel while it has subscribers.
#[derive(Debug)]
pub(crate) struct CatalogChannels {
    all: broadcast::Sender<CatalogEvent>,
    orgs: Mutex<HashMap<OrgId, broadcast::Sender<CatalogEvent>>>,
}

impl CatalogChannels {
    pub(crate) fn new() -> Self {
        Self {
            all: broadcast::Sender::new(CHANNEL_CAPACITY),
            orgs: Mutex::default(),
        }
    }

    /// Sends an event to those whom it concerns. There may be no subscriber at the moment.
    pub(crate) fn send(&self, event: &CatalogEvent) {
        let send = |events: &broadcast::Sender<_>| drop(events.send(event.clone()));
        let orgs = self.orgs.lock();
        match event.org() {
            Some(org) => orgs.get(&org).into_iter().for_each(send),
            None => orgs.values().for_each(send),
        }
        drop(orgs);
        send(&self.all);
    }

    fn watch(&self) -> CatalogWatch {
        CatalogWatch {
            events: self.all.subscribe(),
            of_org: None,
        }
    }

    fn watch_org(self: &Arc<Self>, org: OrgId) -> CatalogWatch {
        let mut orgs = self.orgs.lock();
        let events = orgs
            .entry(org)
            .or_insert_with(|| broadcast::Sender::new(ORG_CHANNEL_CAPACITY));
        CatalogWatch {
            events: events.subscribe(),
            of_org: Some((org, Arc::clone(self))),
        }
    }
}

impl Drop for CatalogWatch {
    fn drop(&mut self) {
        let Some((org, channels)) = &self.of_org else {
            return;
        };
        // Receivers are added and dropped under this lock, so the count is exact.
        let mut orgs = channels.orgs.lock();
        drop(std::mem::replace(
            &mut self.events,
            channels.all.subscribe(),
        ));
        if let Entry::Occupied(events) = orgs.entry(*org)
            && events.get().receiver_count() == 0
        {
            events.remove();
        }
    }
}

impl CatalogEvent {
    /// Parses what a script publishes: `{org} {digest or -} {device}`, or `missed`.
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let payload = std::str::from_utf8(payload).ok()?;
        if payload == "missed" {
            return Some(Self::Lagged);
        }
        let mut parts = payload.splitn(3, ' ');
        let (org, digest, device) = (parts.next()?, parts.next()?, parts.next()?);
        let device = DeviceKey {
            org: org.parse().ok()?,
            device: device.parse().ok()?,
        };
        let digest = match digest {
            "-" => None,
            digest => Some(digest.parse().ok()?),
        };
        Some(Self::Services { device, digest })
    }

    /// The organisation that the event concerns; `None` for all.
    const fn org(&self) -> Option<OrgId> {
        match self {
            Self::Services { device, .. } => Some(device.org),
            Self::Prompts { org } | Self::Resources { org, .. } => *org,
            Self::Approvals { org } => Some(*org),
            Self::Lagged => None,
        }
    }
}

impl CatalogWatch {
    /// Waits for the next event, for ever when the node has ended. Cancel-safe.
    pub async fn next(&mut self) -> CatalogEvent {
        match self.events.recv().await {
            Ok(event) => event,
            Err(RecvError::Lagged(_)) => CatalogEvent::Lagged,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl Bus {
    /// Notifies the nodes that watch the catalog of a change in the control plane.
    ///
    /// # Errors
    /// When the bus is not reachable. Watches receive [`CatalogEvent::Lagged`] after the
    /// reconnect.
    pub async fn publish_catalog_event(&self, event: CatalogEvent) -> Result<(), BusError> {
        let message = match event {
            CatalogEvent::Prompts { org } => {
                self.0.npcs.advance(org);
                Message::PromptsChanged { org }
            }
            CatalogEvent::Resources { org, uri } => Message::ResourcesChanged {
                org,
                uri: Bytes::copy_from_slice(uri.unwrap_or_default().as_bytes()),
            },
            CatalogEvent::Approvals { org } => {
                self.0.approvals.advance(Some(org));
                Message::ApprovalsChanged { org }
            }
            // The directory publishes changes of services itself.
            CatalogEvent::Services { .. } | CatalogEvent::Lagged => return Ok(()),
        };
        self.0.broadcast(&message).await
    }

    /// Subscribes to catalog events of all nodes; `None` unless this node
    /// [watches the catalog](crate::BusConfig::watching_catalog). A device that connects,
    /// disconnects or registers other services causes an event; the same registration again does
    /// not.
    #[must_use]
    pub fn watch_catalog(&self) -> Option<CatalogWatch> {
        Some(self.0.catalog.as_ref()?.watch())
    }

    /// The same for the events that concern one organisation. Those of others do not wake it.
    #[must_use]
    pub fn watch_catalog_of(&self, org: OrgId) -> Option<CatalogWatch> {
        Some(self.0.catalog.as_ref()?.watch_org(org))
    }
}

#[cfg(test)]
mod tests {
    use switchboard_protocol::id::OrgId;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn channel_of_an_org_is_freed_with_its_last_watch() {
        let channels = Arc::new(CatalogChannels::new());
        let [one, other] = [1, 2].map(|org| OrgId::from_uuid(Uuid::from_u128(org)));
        let watches = [one, one, other].map(|org| channels.watch_org(org));
        let orgs = || channels.orgs.lock().len();
        let left = watches.map(|watch| {
            drop(watch);
            orgs()
        });
        assert_eq!(left, [2, 1, 0]);
    }

    #[test]
    fn malformed_catalog_event_is_refused() {
        let (org, digest) = (OrgId::from_uuid(Uuid::from_u128(7)), Digest::compute(b"{}"));
        let device = DeviceKey {
            org,
            device: "toy-1".parse().unwrap(),
        };
        let parse = |payload: String| CatalogEvent::parse(payload.as_bytes());
        let services = |digest| {
            let device = device.clone();
            Some(CatalogEvent::Services { device, digest })
        };
        assert_eq!(
            parse(format!("{org} {digest} toy-1")),
            services(Some(digest))
        );
        assert_eq!(parse(format!("{org} - toy-1")), services(None));
        assert_eq!(parse("missed".into()), Some(CatalogEvent::Lagged));
        for wrong in [
            String::new(),
            "missed ".into(),
            format!("{org} -"),
            format!("{org} - "),
            format!("{org} x toy-1"),
            "org - toy-1".into(),
        ] {
            assert_eq!(parse(wrong.clone()), None, "{wrong}");
        }
        assert_eq!(CatalogEvent::parse(&[0xff]), None);
    }
}
