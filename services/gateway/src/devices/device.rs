//! A device as callers see it, without internal state such as epochs and digests.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::value::RawValue;
use switchboard_protocol::{id::DeviceId, label::DeviceLabel};
use switchboard_store::DeviceNotes;
use utoipa::ToSchema;

use super::{approvals::ApprovalState, merge::DeviceEntry};

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
    /// The labels of the device in byte order; of a connected device without those that cannot be read.
    #[schema(max_items = 16, value_type = Vec<DeviceLabel>)]
    labels: Vec<String>,
    /// A text for people; null if there is none. Omitted in lists.
    #[schema(value_type = Option<String>, required = false, example = "Left shelf, needs a new battery")]
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<Option<String>>,
    /// The services that the device registered, byte for byte. Omitted by `services=names` and
    /// `services=none`.
    #[schema(value_type = Object, required = false)]
    #[serde(serialize_with = "object", skip_serializing_if = "Option::is_none")]
    services: Option<Option<Arc<RawValue>>>,
    /// The names of these services in byte order; only with `services=names`.
    #[schema(value_type = Vec<String>, required = false, max_items = 128, example = json!(["wave"]))]
    #[serde(serialize_with = "names", skip_serializing_if = "Option::is_none")]
    service_names: Option<Arc<Vec<String>>>,
    /// Whether models may call each of these services; only of one device, and only where the organisation requires approvals.
    #[schema(value_type = Object, required = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    approvals: Option<BTreeMap<String, ApprovalState>>,
}

/// What a view shows of the services that the device registered.
#[derive(Debug)]
pub(super) enum Registered {
    /// The services object; `None` if the device has not registered any.
    Services(Option<Arc<RawValue>>),
    /// The names.
    Names(Arc<Vec<String>>),
    Nothing,
}

impl DeviceView {
    pub(super) fn new(entry: DeviceEntry, labels: Vec<String>, registered: Registered) -> Self {
        let (services, service_names) = match registered {
            Registered::Services(services) => (Some(services), None),
            Registered::Names(names) => (None, Some(names)),
            Registered::Nothing => (None, None),
        };
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
            labels,
            note: None,
            services,
            service_names,
            approvals: None,
        }
    }

    /// The view of a single device.
    pub(super) fn of_one(entry: DeviceEntry, notes: DeviceNotes, registered: Registered) -> Self {
        let note = Some(notes.note).filter(|note| !note.is_empty());
        Self {
            note: Some(note),
            ..Self::new(entry, notes.labels, registered)
        }
    }

    pub(super) fn with_approvals(self, approvals: Option<BTreeMap<String, ApprovalState>>) -> Self {
        Self { approvals, ..self }
    }
}

fn timestamp(unix_ms: u64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_millis(i64::try_from(unix_ms).ok()?)
}

fn object<S: Serializer>(
    services: &Option<Option<Arc<RawValue>>>,
    target: S,
) -> Result<S::Ok, S::Error> {
    match services {
        Some(Some(raw)) => raw.serialize(target),
        _ => target.serialize_map(Some(0))?.end(),
    }
}

fn names<S: Serializer>(names: &Option<Arc<Vec<String>>>, target: S) -> Result<S::Ok, S::Error> {
    names.as_deref().serialize(target)
}
