//! Why a connection ends: for the record, for the device, and for whoever reads the log.
//! Never: an end without a reason.

use std::{borrow::Cow, io};

use switchboard_bus::LeftReason;
use switchboard_protocol::session::SessionError;

use crate::link::Eviction;

/// Why an authenticated connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum Departure {
    #[error("the device closed the connection")]
    Closed,
    #[error("the socket failed")]
    Broken(#[source] io::Error),
    #[error("the device broke the protocol")]
    Protocol(#[source] SessionError),
    #[error("the device does not read what it is sent")]
    Unread,
    #[error("the edge closed the connection")]
    Evicted(Eviction),
}

/// The last frame a device gets.
#[derive(Debug)]
pub(super) enum Notice {
    None,
    Error {
        code: &'static str,
        message: Cow<'static, str>,
    },
    AuthRefused {
        code: &'static str,
        message: Cow<'static, str>,
    },
    /// A device that may well come back, after a moment.
    GoAway {
        reason: &'static str,
    },
    /// The same, with what went wrong.
    ErrorAndGoAway {
        code: &'static str,
        message: Cow<'static, str>,
    },
}

impl Departure {
    /// The reason for the record.
    pub(super) fn reason(&self) -> LeftReason {
        match self {
            Self::Closed | Self::Broken(_) => LeftReason::Closed,
            Self::Protocol(_) => LeftReason::ProtocolError,
            Self::Unread => LeftReason::SlowReader,
            Self::Evicted(eviction) => eviction.reason(),
        }
    }

    /// Whether this is what connections do every day, so that no operator needs to know.
    pub(super) const fn is_ordinary(&self) -> bool {
        match self {
            Self::Closed | Self::Broken(_) => true,
            Self::Protocol(_) | Self::Unread => false,
            Self::Evicted(eviction) => match eviction {
                Eviction::Takeover | Eviction::Drained | Eviction::Stopped => true,
                Eviction::Idle | Eviction::SlowReader | Eviction::Revoked | Eviction::Expired => {
                    false
                }
            },
        }
    }

    /// What the device is told.
    pub(super) fn notice(&self) -> Notice {
        match self {
            Self::Closed | Self::Broken(_) | Self::Unread => Notice::None,
            Self::Protocol(error) => Notice::Error {
                code: error.code(),
                message: error.to_string().into(),
            },
            Self::Evicted(eviction) => match eviction {
                // A drained device was told when draining began; a slow reader reads nothing.
                Eviction::Drained | Eviction::SlowReader => Notice::None,
                Eviction::Stopped => Notice::GoAway { reason: "drain" },
                Eviction::Takeover => Notice::GoAway { reason: "takeover" },
                Eviction::Idle => Notice::GoAway { reason: "idle" },
                Eviction::Revoked => Notice::Error {
                    code: "token_revoked",
                    message: "The access token was revoked. Get a new one.".into(),
                },
                Eviction::Expired => Notice::Error {
                    code: "token_expired",
                    message: "The access token has expired. Get a new one and reconnect.".into(),
                },
            },
        }
    }
}
