//! The events that webhooks can receive.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An event that webhooks can receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub enum WebhookEvent {
    /// A device connected that was not connected before.
    #[serde(rename = "device.online")]
    DeviceOnline,
    /// A device has been disconnected for a while.
    #[serde(rename = "device.offline")]
    DeviceOffline,
    /// A device sent an event.
    #[serde(rename = "device.event")]
    DeviceEvent,
    /// A call with mode `async` or `queued` has ended.
    #[serde(rename = "call.finished")]
    CallFinished,
    /// The organisation uses 80 % of a quota.
    #[serde(rename = "quota.warning")]
    QuotaWarning,
}

impl WebhookEvent {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::DeviceOnline,
        Self::DeviceOffline,
        Self::DeviceEvent,
        Self::CallFinished,
        Self::QuotaWarning,
    ];

    /// The name of the event.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DeviceOnline => "device.online",
            Self::DeviceOffline => "device.offline",
            Self::DeviceEvent => "device.event",
            Self::CallFinished => "call.finished",
            Self::QuotaWarning => "quota.warning",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.as_str() == name)
    }
}
