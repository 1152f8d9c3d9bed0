//! What changes in what devices and the control plane offer to agents, told to the nodes that follow it.
//! Never: a follower that keeps the bus waiting; one that is too slow is told that it missed some.

use bytes::Bytes;
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    schema::Digest,
};
use tokio::sync::broadcast::{self, error::RecvError};

use crate::{bus::Bus, envelope::Envelope, error::BusError};

/// Events that wait for a follower that is busy. Protects memory; one takes about 100 bytes.
const REMEMBERED: usize = 1024;

/// Something changed in what is offered to agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OfferChange {
    /// A device offers something else than before.
    Services {
        /// Whose services they are.
        device: DeviceKey,
        /// The services that it offers now; `None` when it went offline, or came back and has
        /// registered nothing so far.
        digest: Option<Digest>,
    },
    /// The prompts of an organisation are others than before; of all of them when it is none.
    Prompts {
        /// Whose prompts they are.
        org: Option<OrgId>,
    },
    /// The resources of an organisation are others than before; of all of them when it is none.
    Resources {
        /// Whose resources they are.
        org: Option<OrgId>,
        /// The one that changed, if it is one; it may be new, or gone.
        uri: Option<Box<str>>,
    },
    /// Some changes were missed, because the follower was slow or the bus was away: whatever was
    /// read from the directory before may have changed.
    Missed,
}

/// The changes in what is offered to agents, from the moment on in which this was made.
#[derive(Debug)]
pub struct OfferChanges(broadcast::Receiver<OfferChange>);

/// The node's end that is fed by its backend; cheap to clone.
pub(crate) type Followers = broadcast::Sender<OfferChange>;

pub(crate) fn followers() -> Followers {
    broadcast::Sender::new(REMEMBERED)
}

impl OfferChange {
    /// Reads what a script published: `{org} {digest or -} {device}`, or `missed`.
    pub(crate) fn parse(told: &[u8]) -> Option<Self> {
        let told = std::str::from_utf8(told).ok()?;
        if told == "missed" {
            return Some(Self::Missed);
        }
        let mut parts = told.splitn(3, ' ');
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

impl OfferChanges {
    /// The next change. Waits until there is one, for ever when the node has ended. Nothing is
    /// lost when the future is dropped.
    pub async fn next(&mut self) -> OfferChange {
        match self.0.recv().await {
            Ok(event) => event,
            Err(RecvError::Lagged(_)) => OfferChange::Missed,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl Bus {
    /// Tells every node that follows it what has changed in the control plane.
    ///
    /// # Errors
    /// When the bus does not answer; whoever follows is told that it missed some when it is back.
    pub async fn offer(&self, change: OfferChange) -> Result<(), BusError> {
        let envelope = match change {
            OfferChange::Prompts { org } => Envelope::Prompts { org },
            OfferChange::Resources { org, uri } => Envelope::Resources {
                org,
                uri: Bytes::copy_from_slice(uri.unwrap_or_default().as_bytes()),
            },
            // What devices offer is told by the step that changes it.
            OfferChange::Services { .. } | OfferChange::Missed => return Ok(()),
        };
        self.0.backend.broadcast(self.0.pack(&envelope)).await
    }

    /// What changes from now on in what the devices of all nodes offer; `None` unless this node
    /// [follows](crate::BusConfig::following_offers) it. A device that comes, goes or
    /// registers something else is told; one that registers again what it offers already is not.
    #[must_use]
    pub fn offer_changes(&self) -> Option<OfferChanges> {
        let followers = self.0.followers.as_ref()?;
        Some(OfferChanges(followers.subscribe()))
    }
}

#[cfg(test)]
mod tests {
    use switchboard_protocol::id::OrgId;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_scripts_publish_is_read_and_nothing_else() {
        let (org, digest) = (OrgId::from_uuid(Uuid::from_u128(7)), Digest::of(b"{}"));
        let device = DeviceKey {
            org,
            device: "toy-1".parse().unwrap(),
        };
        let parse = |told: String| OfferChange::parse(told.as_bytes());
        let services = |digest| {
            let device = device.clone();
            Some(OfferChange::Services { device, digest })
        };
        assert_eq!(
            parse(format!("{org} {digest} toy-1")),
            services(Some(digest))
        );
        assert_eq!(parse(format!("{org} - toy-1")), services(None));
        assert_eq!(parse("missed".into()), Some(OfferChange::Missed));
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
        assert_eq!(OfferChange::parse(&[0xff]), None);
    }
}
