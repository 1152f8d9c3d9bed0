//! A device as callers see it.
//! Never: what only nodes need to know, such as epochs and digests.

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::value::RawValue;
use switchboard_protocol::id::DeviceId;
use utoipa::ToSchema;

use super::merge::Entry;

/// A device, live or remembered.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Device {
    /// Its name in the organisation.
    id: DeviceId,
    /// Whether it is connected.
    #[schema(example = true)]
    online: bool,
    /// When the connection that lasts began.
    #[schema(example = "2026-01-02T03:04:05Z")]
    since: Option<DateTime<Utc>>,
    /// Which node holds it.
    #[schema(max_length = 255, example = "edge-1")]
    node: Option<String>,
    /// When it was heard of last.
    #[schema(example = "2026-01-02T03:04:05Z")]
    last_seen: Option<DateTime<Utc>>,
    /// Why the last connection ended; none while one lasts.
    #[schema(max_length = 64, example = "idle_timeout")]
    left_reason: Option<String>,
    /// As the device registered them, byte by byte.
    #[schema(value_type = Object)]
    #[serde(serialize_with = "object")]
    services: Option<Box<RawValue>>,
}

impl Device {
    /// What is live wins; the record fills what a live connection does not say.
    pub(super) fn new(entry: Entry, registered: Option<Box<RawValue>>) -> Self {
        let Entry { id, live, stored } = entry;
        let since = live
            .as_ref()
            .and_then(|presence| timestamp(presence.epoch.since_ms()));
        let (seen, left_reason, remembered) = match stored {
            Some(stored) => (Some(stored.last_seen), stored.left_reason, stored.services),
            None => (None, None, None),
        };
        Self {
            id,
            online: live.is_some(),
            since,
            left_reason: if live.is_some() { None } else { left_reason },
            node: live.map(|presence| presence.node.as_str().to_owned()),
            // The record lags behind a connection that has just begun.
            last_seen: seen.max(since),
            services: registered.or(remembered),
        }
    }
}

fn timestamp(unix_ms: u64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_millis(i64::try_from(unix_ms).ok()?)
}

fn object<S: Serializer>(services: &Option<Box<RawValue>>, target: S) -> Result<S::Ok, S::Error> {
    match services {
        Some(raw) => raw.serialize(target),
        None => target.serialize_map(Some(0))?.end(),
    }
}
