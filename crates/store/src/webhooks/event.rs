//! What webhooks can be told.
//! Never: a name that another version gives to something else.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a webhook can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub enum WebhookEvent {
    /// A device is connected that was not.
    #[serde(rename = "device.online")]
    DeviceOnline,
    /// A device has not been connected for a while.
    #[serde(rename = "device.offline")]
    DeviceOffline,
    /// A device said something unasked.
    #[serde(rename = "device.event")]
    DeviceEvent,
    /// A call with mode `async` or `queued` has ended.
    #[serde(rename = "call.finished")]
    CallFinished,
}

impl WebhookEvent {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::DeviceOnline,
        Self::DeviceOffline,
        Self::DeviceEvent,
        Self::CallFinished,
    ];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DeviceOnline => "device.online",
            Self::DeviceOffline => "device.offline",
            Self::DeviceEvent => "device.event",
            Self::CallFinished => "call.finished",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.as_str() == name)
    }
}
