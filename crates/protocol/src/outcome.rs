//! How a call ended, in the one vocabulary that every transport translates from.
//! Never: an outcome that does not say whether the device may have acted.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Every accepted call ends in exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[schema(example = "succeeded")]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Outcome {
    /// The device answered `success: true`.
    Succeeded = 0,
    /// The device answered `success: false`.
    Failed = 1,
    /// The params do not match the registered schema, or the device has had a call with this id; it
    /// never saw this one.
    Invalid = 2,
    /// The organisation has no such device.
    UnknownDevice = 3,
    /// The device has not registered such a service.
    UnknownService = 4,
    /// The device has no live connection anywhere.
    Offline = 5,
    /// Shed by a limit: queue, rate or size.
    Overloaded = 6,
    /// The caller left or cancelled.
    Cancelled = 7,
    /// The device stayed silent until the deadline.
    TimedOut = 8,
    /// Connection, node or bus failed after the hand-over.
    Lost = 9,
    /// A call that waited for its device until it was to wait no longer.
    Expired = 10,
}

/// Whether the device may have acted, so whether a retry is safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[schema(example = "yes")]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Delivered {
    /// The device never saw the call and never will: a retry is safe.
    No = 0,
    /// It may have seen it, or may still act on it.
    Unknown = 1,
    /// It answered.
    Yes = 2,
}

impl Outcome {
    /// All outcomes, in the order of their codes.
    pub const ALL: [Self; 11] = [
        Self::Succeeded,
        Self::Failed,
        Self::Invalid,
        Self::UnknownDevice,
        Self::UnknownService,
        Self::Offline,
        Self::Overloaded,
        Self::Cancelled,
        Self::TimedOut,
        Self::Lost,
        Self::Expired,
    ];

    /// The name used in answers and as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Invalid => "invalid",
            Self::UnknownDevice => "unknown_device",
            Self::UnknownService => "unknown_service",
            Self::Offline => "offline",
            Self::Overloaded => "overloaded",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
            Self::Lost => "lost",
            Self::Expired => "expired",
        }
    }

    /// The byte that stands for this outcome between nodes.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The outcome behind a byte, if there is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// What this outcome says about the device having acted. `cancelled` and `timed_out` can be
    /// better known than this: a call that never left the queue was never delivered.
    #[must_use]
    pub const fn delivered(self) -> Delivered {
        match self {
            Self::Succeeded | Self::Failed => Delivered::Yes,
            Self::Cancelled | Self::TimedOut | Self::Lost => Delivered::Unknown,
            Self::Invalid
            | Self::UnknownDevice
            | Self::UnknownService
            | Self::Offline
            | Self::Overloaded
            | Self::Expired => Delivered::No,
        }
    }
}

impl Delivered {
    /// The name used in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Unknown => "unknown",
            Self::Yes => "yes",
        }
    }
}

/// Why a call did not end with a device's result, for whoever made the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// One sentence: what was wrong and what would be right.
    pub detail: String,
    /// Where the params break the schema; bounded, empty unless the outcome is `invalid`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Violation>,
}

/// One place where a value breaks its schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Violation {
    /// JSON pointer into the params; empty for the whole.
    #[schema(max_length = 65_535, example = "/speed")]
    pub pointer: String,
    /// What is wrong there.
    #[schema(max_length = 65_535, example = "11 is greater than the maximum of 10")]
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_round_trip() {
        for delivered in [Delivered::No, Delivered::Unknown, Delivered::Yes] {
            let json = serde_json::to_string(&delivered).unwrap();
            assert_eq!(json, format!("\"{}\"", delivered.as_str()));
        }
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::from_code(outcome.code()), Some(outcome));
            let json = serde_json::to_string(&outcome).unwrap();
            assert_eq!(json, format!("\"{}\"", outcome.as_str()));
        }
        assert_eq!(Outcome::from_code(11), None);
    }
}
