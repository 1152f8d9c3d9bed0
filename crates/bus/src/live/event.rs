//! The live events that nodes record.

use std::{borrow::Cow, collections::HashMap};

use serde::{Serialize, Serializer, de::IgnoredAny};
use switchboard_protocol::{
    id::{CallId, DeviceId, DeviceKey, JournalEntryId},
    outcome::Delivered,
};

use super::log::StoredEvent;
use crate::{events::DisconnectReason, node::Epoch};

/// The bytes of the longest name under which a device registers a service.
const MAX_NAME_BYTES: usize = 128;

/// What happened in an organisation. Its members are those of the event that a client receives.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum LiveEvent {
    /// A device has a connection, or a newer one than before.
    DeviceOnline {
        /// The device.
        device_id: DeviceId,
        /// Grows with each connection of the device.
        connection: u64,
    },
    /// A device has no connection any more.
    DeviceOffline {
        /// The device.
        device_id: DeviceId,
        /// The connection that ended.
        connection: u64,
        /// Why.
        reason: DisconnectReason,
    },
    /// A device registered its services.
    DeviceRegistered {
        /// The device.
        device_id: DeviceId,
        /// How many there are.
        services: usize,
    },
    /// What is stored of a device changed, or it was forgotten.
    DeviceChanged {
        /// The device.
        device_id: DeviceId,
    },
    /// A call has its outcome.
    CallEnded {
        /// The device that was called.
        device_id: DeviceId,
        /// The service, as the caller wrote it.
        #[serde(serialize_with = "serialize_name")]
        service: String,
        /// How the call ended.
        outcome: &'static str,
        /// Whether the device may have executed it.
        delivered: Delivered,
        /// From the request to the outcome.
        elapsed_ms: f64,
        /// The call.
        #[serde(skip_serializing_if = "Option::is_none")]
        call_id: Option<CallId>,
        /// Its entry in the journal of calls.
        #[serde(skip_serializing_if = "Option::is_none")]
        journal_id: Option<JournalEntryId>,
        /// How it was made: `rest`, `mcp` or `chat`.
        via: &'static str,
    },
    /// A skills book was created, deleted, or changed its state.
    BookChanged {
        /// The book.
        id: String,
        /// Its state; none if it is deleted.
        #[serde(skip_serializing_if = "Option::is_none")]
        state: Option<&'static str>,
    },
    /// A voice was created, deleted, or changed its state.
    VoiceChanged {
        /// The voice.
        id: String,
        /// Its state; none if it is deleted.
        #[serde(skip_serializing_if = "Option::is_none")]
        state: Option<&'static str>,
    },
    /// A webhook was created, changed or deleted.
    WebhookChanged {
        /// The webhook.
        id: String,
    },
    /// Another setting was created, changed or deleted.
    SettingChanged {
        /// Which kind of setting: `npc`, `template`, `picture`, `key`, `org` and others.
        kind: &'static str,
        /// The setting.
        id: String,
    },
}

impl LiveEvent {
    /// The type of the event.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::DeviceOnline { .. } => "device.online",
            Self::DeviceOffline { .. } => "device.offline",
            Self::DeviceRegistered { .. } => "device.registered",
            Self::DeviceChanged { .. } => "device.changed",
            Self::CallEnded { .. } => "call.ended",
            Self::BookChanged { .. } => "book.changed",
            Self::VoiceChanged { .. } => "voice.changed",
            Self::WebhookChanged { .. } => "webhook.changed",
            Self::SettingChanged { .. } => "setting.changed",
        }
    }

    /// The types that a client may ask for.
    pub const NAMES: [&'static str; 9] = [
        "device.online",
        "device.offline",
        "device.registered",
        "device.changed",
        "call.ended",
        "book.changed",
        "voice.changed",
        "webhook.changed",
        "setting.changed",
    ];

    pub(crate) fn online(device_id: DeviceId, epoch: Epoch) -> Self {
        Self::DeviceOnline {
            device_id,
            connection: epoch.0,
        }
    }

    pub(crate) fn offline(device_id: DeviceId, epoch: Epoch, reason: DisconnectReason) -> Self {
        Self::DeviceOffline {
            device_id,
            connection: epoch.0,
            reason,
        }
    }

    /// A device registered this services object.
    pub(crate) fn registered(device: &DeviceKey, json: &[u8]) -> Self {
        let services = serde_json::from_slice::<HashMap<Cow<'_, str>, IgnoredAny>>(json);
        Self::DeviceRegistered {
            device_id: device.device.clone(),
            services: services.map_or(0, |services| services.len()),
        }
    }

    pub(super) fn stored(&self, at_ms: u64) -> Option<StoredEvent> {
        Some(StoredEvent {
            name: self.name().into(),
            at_ms,
            data: serde_json::to_string(self).ok()?.into(),
        })
    }
}

/// The name of a service in at most as many bytes as a registered one has in JSON: of a longer one, which
/// no device registers, the beginning, and without control characters.
fn serialize_name<S: Serializer>(name: &str, serializer: S) -> Result<S::Ok, S::Error> {
    const CUT: &str = "…";
    let name = name.replace(char::is_control, "?");
    if name.len() <= MAX_NAME_BYTES {
        return serializer.serialize_str(&name);
    }
    let end = name.floor_char_boundary(MAX_NAME_BYTES - CUT.len());
    let beginning = name.get(..end).unwrap_or_default();
    serializer.collect_str(&format_args!("{beginning}{CUT}"))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::live::log::{LiveEntry, LivePosition, MAX_ENTRY_BYTES};

    fn ended(service: &str) -> LiveEvent {
        LiveEvent::CallEnded {
            device_id: "x".repeat(64).parse().unwrap(),
            service: service.to_owned(),
            outcome: "unknown_service",
            delivered: Delivered::Unknown,
            elapsed_ms: 123_456.789_012_345_6,
            call_id: Some(CallId::from_uuid(Uuid::max())),
            journal_id: Some(JournalEntryId::from_uuid(Uuid::max())),
            via: "rest",
        }
    }

    #[test]
    fn names_of_services_are_limited_and_entries_with_them() {
        fn check(service: &str, expected: &str) {
            let stored = ended(service).stored(u64::MAX).unwrap();
            let position = LivePosition::UNKNOWN;
            let entry = LiveEntry::from((position, stored));
            assert_eq!(entry.service.as_deref(), Some(expected));
            let texts = entry.name.len() + entry.data.len() + expected.len();
            assert!(size_of::<LiveEntry>() + texts < MAX_ENTRY_BYTES);
        }
        check("wave", "wave");
        check("wa\0ve\n", "wa?ve?");
        check(&"\"".repeat(128), &"\"".repeat(128));
        check(&"x".repeat(129), &format!("{}…", "x".repeat(125)));
        check(&"好".repeat(43), &format!("{}…", "好".repeat(41)));
    }
}
