//! What happens to devices, as the control plane records it.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    schema::Digest,
};
use switchboard_runtime::label;
use uuid::Uuid;

use super::buffer::ByteSize;
use crate::node::Epoch;

/// An event that was read and not acknowledged is delivered again after this time.
pub(crate) const EVENT_ACK_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisconnectReason {
    /// The device closed it.
    Closed,
    /// Nothing was received for two and a half heartbeats.
    IdleTimeout,
    /// A newer connection of the same device exists.
    Takeover,
    /// The device violated the protocol.
    ProtocolError,
    /// The device read too slowly.
    SlowReader,
    /// Its token was revoked.
    Revoked,
    /// Its token expired.
    Expired,
    /// An administrator disconnected the device.
    DisconnectRequested,
    /// The edge is shutting down.
    Drain,
    /// The edge failed to serve the connection.
    Failed,
    /// The edge node was lost.
    NodeLost,
}

label!(DisconnectReason {
    Closed => "closed",
    IdleTimeout => "idle_timeout",
    Takeover => "takeover",
    ProtocolError => "protocol_error",
    SlowReader => "slow_reader",
    Revoked => "revoked",
    Expired => "expired",
    DisconnectRequested => "disconnect_requested",
    Drain => "drain",
    Failed => "failed",
    NodeLost => "node_lost",
});

/// A change of a device's connection or registration, or an EVENT frame that it sent.
///
/// Edges record events at least once and in order per node; the control plane stores them.
/// Invariant: no event is needed to serve a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceEvent {
    /// A device authenticated.
    Connected {
        /// The device.
        device: DeviceKey,
        /// The connection.
        epoch: Epoch,
        /// When, in Unix milliseconds.
        at_ms: u64,
    },
    /// A device registered its services.
    Registered {
        /// The device.
        device: DeviceKey,
        /// The connection.
        epoch: Epoch,
        /// When, in Unix milliseconds.
        at_ms: u64,
        /// The digest of the services object.
        digest: Digest,
        /// The services object as sent; `None` when the same node sent it a moment ago.
        json: Option<Bytes>,
    },
    /// A connection ended.
    Disconnected {
        /// The device.
        device: DeviceKey,
        /// The connection.
        epoch: Epoch,
        /// When, in Unix milliseconds.
        at_ms: u64,
        /// Why.
        reason: DisconnectReason,
    },
    /// A device sent an EVENT frame.
    Custom {
        /// The device.
        device: DeviceKey,
        /// The connection.
        epoch: Epoch,
        /// When, in Unix milliseconds.
        at_ms: u64,
        /// Identifies the event when it is delivered more than once.
        id: Uuid,
        /// The `{"name", "data"}` object as sent.
        json: Bytes,
    },
}

/// The position of an event in the stream, for its acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventId {
    pub(crate) entry: String,
    /// Whose share of the stream the event takes, and the length of its stored form.
    pub(crate) org: OrgId,
    pub(crate) bytes: usize,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.entry)
    }
}

/// The stored form of an event.
#[derive(Serialize, Deserialize)]
struct StoredEvent<'a> {
    kind: Kind,
    device: DeviceKey,
    epoch: u64,
    at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    services: Option<&'a RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<DisconnectReason>,
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
    #[serde(rename = "left")]
    Disconnected,
    #[serde(rename = "event")]
    Custom,
}

impl ByteSize for DeviceEvent {
    fn org(&self) -> OrgId {
        self.device().org
    }

    fn byte_size(&self) -> usize {
        let text = match self {
            Self::Registered { json, .. } => json.as_ref().map_or(0, Bytes::len),
            Self::Custom { json, .. } => json.len(),
            Self::Connected { .. } | Self::Disconnected { .. } => 0,
        };
        size_of::<Self>() + text
    }
}

impl DeviceEvent {
    /// The device that the event is about.
    #[must_use]
    pub const fn device(&self) -> &DeviceKey {
        match self {
            Self::Connected { device, .. }
            | Self::Registered { device, .. }
            | Self::Disconnected { device, .. }
            | Self::Custom { device, .. } => device,
        }
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        let blank = |kind, device: &DeviceKey, epoch: Epoch, at_ms| StoredEvent {
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
        let stored = match self {
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
            } => StoredEvent {
                digest: Some(digest.to_string()),
                services: json
                    .as_ref()
                    .and_then(|json| serde_json::from_slice(json).ok()),
                ..blank(Kind::Registered, device, *epoch, *at_ms)
            },
            Self::Disconnected {
                device,
                epoch,
                at_ms,
                reason,
            } => StoredEvent {
                reason: Some(*reason),
                ..blank(Kind::Disconnected, device, *epoch, *at_ms)
            },
            Self::Custom {
                device,
                epoch,
                at_ms,
                id,
                json,
            } => StoredEvent {
                id: Some(*id),
                event: serde_json::from_slice(json).ok(),
                ..blank(Kind::Custom, device, *epoch, *at_ms)
            },
        };
        serde_json::to_vec(&stored).unwrap_or_default()
    }

    pub(crate) fn from_json(json: &[u8]) -> Option<Self> {
        let StoredEvent {
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
            Kind::Disconnected => Self::Disconnected {
                device,
                epoch,
                at_ms,
                reason: reason?,
            },
            Kind::Custom => Self::Custom {
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
    fn events_round_trip() {
        let device = DeviceKey {
            org: "org_0000000000000000000000000000abcd".parse().unwrap(),
            device: "toy-1".parse().unwrap(),
        };
        let (epoch, at_ms) = (Epoch(1), 2);
        let json = Bytes::from_static("{\"时间\": {}}".as_bytes());
        let events = [
            DeviceEvent::Connected {
                device: device.clone(),
                epoch,
                at_ms,
            },
            DeviceEvent::Registered {
                device: device.clone(),
                epoch,
                at_ms,
                digest: Digest::compute(&json),
                json: Some(json),
            },
            DeviceEvent::Registered {
                device: device.clone(),
                epoch,
                at_ms,
                digest: Digest([7; 32]),
                json: None,
            },
            DeviceEvent::Disconnected {
                device: device.clone(),
                epoch,
                at_ms,
                reason: DisconnectReason::NodeLost,
            },
            DeviceEvent::Custom {
                device,
                epoch,
                at_ms,
                id: Uuid::from_u128(7),
                json: Bytes::from_static("{\"name\":  \"按钮\"}".as_bytes()),
            },
        ];
        for event in events {
            assert_eq!(DeviceEvent::from_json(&event.to_json()), Some(event));
        }
    }
}
