//! Changes in what devices and the control plane offer to agents.

use bytes::Bytes;
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    schema::Digest,
};
use tokio::sync::broadcast::{self, error::RecvError};

use crate::{bus::Bus, error::BusError, transport::Message};

/// Events that wait for a busy subscriber. Protects memory; one takes about 100 bytes.
const CHANNEL_CAPACITY: usize = 1024;

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
    /// The prompts of an organisation changed, or of all organisations.
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
    /// Some events were missed, because the subscriber lagged or the bus was not reachable.
    /// Everything that was read from the directory before may have changed.
    Lagged,
}

/// A subscription to the catalog events from now on.
#[derive(Debug)]
pub struct CatalogWatch(broadcast::Receiver<CatalogEvent>);

pub(crate) type CatalogSender = broadcast::Sender<CatalogEvent>;

pub(crate) fn catalog_channel() -> CatalogSender {
    broadcast::Sender::new(CHANNEL_CAPACITY)
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
}

impl CatalogWatch {
    /// Waits for the next event, for ever when the node has ended. Cancel-safe.
    pub async fn next(&mut self) -> CatalogEvent {
        match self.0.recv().await {
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
            CatalogEvent::Prompts { org } => Message::PromptsChanged { org },
            CatalogEvent::Resources { org, uri } => Message::ResourcesChanged {
                org,
                uri: Bytes::copy_from_slice(uri.unwrap_or_default().as_bytes()),
            },
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
        let catalog = self.0.catalog.as_ref()?;
        Some(CatalogWatch(catalog.subscribe()))
    }
}

#[cfg(test)]
mod tests {
    use switchboard_protocol::id::OrgId;
    use uuid::Uuid;

    use super::*;

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
