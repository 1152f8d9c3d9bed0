//! A device as callers see it, without internal state such as epochs and digests.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::value::RawValue;
use switchboard_protocol::id::DeviceId;
use utoipa::ToSchema;

use super::merge::DeviceEntry;

/// A device, connected or not.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Device)]
pub(crate) struct DeviceView {
    /// ID of the device in the organisation.
    id: DeviceId,
    /// Whether the device is connected.
    #[schema(example = true)]
    online: bool,
    /// Start of the current connection (RFC 3339); null if the device is not connected.
    #[schema(example = "2026-01-02T03:04:05Z")]
    since: Option<DateTime<Utc>>,
    /// Node that owns the current connection.
    #[schema(max_length = 255, example = "edge-1")]
    node: Option<String>,
    /// Time of the last activity of the device (RFC 3339).
    #[schema(example = "2026-01-02T03:04:05Z")]
    last_seen: Option<DateTime<Utc>>,
    /// Why the last connection ended; null while the device is connected.
    #[schema(max_length = 64, example = "idle_timeout")]
    left_reason: Option<String>,
    /// The services that the device registered, byte for byte.
    #[schema(value_type = Object)]
    #[serde(serialize_with = "object")]
    services: Option<Arc<RawValue>>,
}

impl DeviceView {
    pub(super) fn new(entry: DeviceEntry, services: Option<Arc<RawValue>>) -> Self {
        let DeviceEntry { id, live, stored } = entry;
        let since = live
            .as_ref()
            .and_then(|presence| timestamp(presence.epoch.since_ms()));
        let (last_seen, left_reason) = match stored {
            Some(stored) => (Some(stored.last_seen), stored.left_reason),
            None => (None, None),
        };
        Self {
            id,
            online: live.is_some(),
            since,
            left_reason: if live.is_some() { None } else { left_reason },
            node: live.map(|presence| presence.node.as_str().to_owned()),
            // The database lags behind a connection that has just begun.
            last_seen: last_seen.max(since),
            services,
        }
    }
}

fn timestamp(unix_ms: u64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_millis(i64::try_from(unix_ms).ok()?)
}

fn object<S: Serializer>(services: &Option<Arc<RawValue>>, target: S) -> Result<S::Ok, S::Error> {
    match services {
        Some(raw) => raw.serialize(target),
        None => target.serialize_map(Some(0))?.end(),
    }
}
