//! What edges tell the control plane for the record, at least once and in order per node.
//! Never: a fact that is needed to serve a call.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use switchboard_protocol::{id::DeviceKey, schema::Digest};
use switchboard_runtime::label;
use uuid::Uuid;

use crate::{backlog::Weighed, node::Epoch};

/// A fact that was taken and not acknowledged comes again after this.
pub(crate) const FACT_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftReason {
    /// The device closed it.
    Closed,
    /// Nothing came for two and a half heartbeats.
    IdleTimeout,
    /// A newer connection of the same device came.
    Takeover,
    /// The device broke the protocol.
    ProtocolError,
    /// The device did not read what was sent.
    SlowReader,
    /// Its token was revoked.
    Revoked,
    /// Its token expired.
    Expired,
    /// The edge was drained.
    Drain,
    /// The edge failed to serve this connection.
    Failed,
    /// The edge died.
    NodeLost,
}

label!(LeftReason {
    Closed => "closed",
    IdleTimeout => "idle_timeout",
    Takeover => "takeover",
    ProtocolError => "protocol_error",
    SlowReader => "slow_reader",
    Revoked => "revoked",
    Expired => "expired",
    Drain => "drain",
    Failed => "failed",
    NodeLost => "node_lost",
});

/// Something that happened to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// A device authenticated.
    Connected {
        /// Which device.
        device: DeviceKey,
        /// Which connection.
        epoch: Epoch,
        /// When, in Unix milliseconds.
        at_ms: u64,
    },
    /// A device said what it can do.
    Registered {
        /// Which device.
        device: DeviceKey,
        /// Which connection.
        epoch: Epoch,
        /// When, in Unix milliseconds.
        at_ms: u64,
        /// The digest of the services object.
        digest: Digest,
        /// The services object as sent; `None` when the same node told it a moment ago.
        json: Option<Bytes>,
    },
    /// A connection ended.
    Left {
        /// Which device.
        device: DeviceKey,
        /// Which connection.
        epoch: Epoch,
        /// When, in Unix milliseconds.
        at_ms: u64,
        /// Why.
        reason: LeftReason,
    },
    /// A device said something unasked.
    Event {
        /// Which device.
        device: DeviceKey,
        /// Which connection.
        epoch: Epoch,
        /// When, in Unix milliseconds.
        at_ms: u64,
        /// What it is known by, however often it is told.
        id: Uuid,
        /// The `{"name", "data"}` object as sent.
        json: Bytes,
    },
}

/// A fact's place in the record, for its acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactId(pub(crate) String);

impl fmt::Display for FactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a fact is written down.
#[derive(Serialize, Deserialize)]
struct Written<'a> {
    kind: Kind,
    device: DeviceKey,
    epoch: u64,
    at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    services: Option<&'a RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<LeftReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<Uuid>,
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    event: Option<&'a RawValue>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Connected,
    Registered,
    Left,
    Event,
}

impl Weighed for Fact {
    fn bytes(&self) -> usize {
        let text = match self {
            Self::Registered { json, .. } => json.as_ref().map_or(0, Bytes::len),
            Self::Event { json, .. } => json.len(),
            Self::Connected { .. } | Self::Left { .. } => 0,
        };
        size_of::<Self>() + text
    }
}

impl Fact {
    /// Whose fact it is.
    #[must_use]
    pub const fn device(&self) -> &DeviceKey {
        match self {
            Self::Connected { device, .. }
            | Self::Registered { device, .. }
            | Self::Left { device, .. }
            | Self::Event { device, .. } => device,
        }
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        let blank = |kind, device: &DeviceKey, epoch: Epoch, at_ms| Written {
            kind,
            device: device.clone(),
            epoch: epoch.0,
            at_ms,
            digest: None,
            services: None,
            reason: None,
            id: None,
            event: None,
        };
        let written = match self {
            Self::Connected {
                device,
                epoch,
                at_ms,
            } => blank(Kind::Connected, device, *epoch, *at_ms),
            Self::Registered {
                device,
                epoch,
                at_ms,
                digest,
                json,
            } => Written {
                digest: Some(digest.to_string()),
                services: json
                    .as_ref()
                    .and_then(|json| serde_json::from_slice(json).ok()),
                ..blank(Kind::Registered, device, *epoch, *at_ms)
            },
            Self::Left {
                device,
                epoch,
                at_ms,
                reason,
            } => Written {
                reason: Some(*reason),
                ..blank(Kind::Left, device, *epoch, *at_ms)
            },
            Self::Event {
                device,
                epoch,
                at_ms,
                id,
                json,
            } => Written {
                id: Some(*id),
                event: serde_json::from_slice(json).ok(),
                ..blank(Kind::Event, device, *epoch, *at_ms)
            },
        };
        serde_json::to_vec(&written).unwrap_or_default()
    }

    pub(crate) fn from_json(json: &[u8]) -> Option<Self> {
        let Written {
            kind,
            device,
            epoch,
            at_ms,
            digest,
            services,
            reason,
            id,
            event,
        } = serde_json::from_slice(json).ok()?;
        let epoch = Epoch(epoch);
        Some(match kind {
            Kind::Connected => Self::Connected {
                device,
                epoch,
                at_ms,
            },
            Kind::Registered => Self::Registered {
                device,
                epoch,
                at_ms,
                digest: digest?.parse().ok()?,
                json: services.map(|services| Bytes::copy_from_slice(services.get().as_bytes())),
            },
            Kind::Left => Self::Left {
                device,
                epoch,
                at_ms,
                reason: reason?,
            },
            Kind::Event => Self::Event {
                device,
                epoch,
                at_ms,
                id: id?,
                json: Bytes::copy_from_slice(event?.get().as_bytes()),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_round_trip() {
        let device = DeviceKey {
            org: "org_0000000000000000000000000000abcd".parse().unwrap(),
            device: "toy-1".parse().unwrap(),
        };
        let (epoch, at_ms) = (Epoch(1), 2);
        let json = Bytes::from_static("{\"时间\": {}}".as_bytes());
        let facts = [
            Fact::Connected {
                device: device.clone(),
                epoch,
                at_ms,
            },
            Fact::Registered {
                device: device.clone(),
                epoch,
                at_ms,
                digest: Digest::of(&json),
                json: Some(json),
            },
            Fact::Registered {
                device: device.clone(),
                epoch,
                at_ms,
                digest: Digest([7; 32]),
                json: None,
            },
            Fact::Left {
                device: device.clone(),
                epoch,
                at_ms,
                reason: LeftReason::NodeLost,
            },
            Fact::Event {
                device,
                epoch,
                at_ms,
                id: Uuid::from_u128(7),
                json: Bytes::from_static("{\"name\":  \"按钮\"}".as_bytes()),
            },
        ];
        for fact in facts {
            assert_eq!(Fact::from_json(&fact.to_json()), Some(fact));
        }
    }
}
