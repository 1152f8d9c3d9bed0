//! How a call ended. Every transport translates this vocabulary.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The outcome of a call. Every accepted call ends in exactly one. (I1)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[schema(example = "succeeded")]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Outcome {
    /// The device answered with `success: true`.
    Succeeded = 0,
    /// The device answered with `success: false`.
    Failed = 1,
    /// The params do not match the registered schema, or the device already received a call with
    /// this id. The device did not receive this one.
    Invalid = 2,
    /// The organisation has no such device.
    UnknownDevice = 3,
    /// The device has not registered this service.
    UnknownService = 4,
    /// The device has no live connection.
    Offline = 5,
    /// Refused by a limit: queue, rate or size.
    Overloaded = 6,
    /// The caller disconnected or cancelled.
    Cancelled = 7,
    /// The device did not answer before the deadline.
    TimedOut = 8,
    /// The connection, the node or the bus failed after the call was sent.
    Lost = 9,
    /// The call waited for its device longer than it was allowed to.
    Expired = 10,
}

/// Whether the device may have acted on the call, so whether a retry is safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[schema(example = "yes")]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Delivered {
    /// The device did not receive the call and never will. A retry is safe.
    No = 0,
    /// The device may have received the call, or may still act on it.
    Unknown = 1,
    /// The device answered.
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

    /// Returns the name in answers and metric labels.
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

    /// Returns the byte for this outcome between nodes.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the outcome of a byte, if there is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Returns what the outcome alone implies. For `cancelled` and `timed_out` more may be known: a
    /// call that never left the queue was not delivered.
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
    /// Returns the name in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Unknown => "unknown",
            Self::Yes => "yes",
        }
    }
}

/// Why a call ended without a result of the device; written for the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// One sentence: what is wrong and what would be right.
    pub detail: String,
    /// Where the params violate the schema. Bounded; empty unless the outcome is `invalid`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Violation>,
}

/// One place where a value violates its schema.
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
    fn code_and_name_round_trip() {
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
