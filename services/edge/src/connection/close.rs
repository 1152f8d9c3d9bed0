//! How a connection closes: the reason, the last frame, and an orderly shutdown of the socket.

use std::{borrow::Cow, future::poll_fn, io, task::Poll, time::Duration};

use switchboard_bus::DisconnectReason;
use switchboard_protocol::{
    frame::{Kind, TaskId},
    message::{self, ErrorNotice, Goaway},
    session::SessionError,
};
use switchboard_runtime::budget::Exhausted;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::{debug, info};

use super::{buffers, guard::ConnectionGuard, handshake::HandshakeError, io::FrameIo};
use crate::{accept::ConnectionPermit, handle::Eviction};

/// How long the device may take to read the last frame and close its side.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why an authenticated connection closes.
#[derive(Debug, thiserror::Error)]
pub(super) enum CloseReason {
    #[error("the device closed the connection")]
    Closed,
    #[error("the socket failed")]
    IoError(#[source] io::Error),
    #[error("the device violated the protocol")]
    Protocol(#[source] SessionError),
    #[error("an incomplete frame of the device exceeds the share of its organisation")]
    Overload(#[source] Exhausted),
    #[error("the device does not read what it is sent")]
    SlowReader,
    #[error("the edge closed the connection")]
    Evicted(Eviction),
}

/// The last frame that the device receives.
#[derive(Debug)]
pub(super) enum FinalFrame {
    None,
    Error {
        code: &'static str,
        message: Cow<'static, str>,
    },
    AuthRefused {
        code: &'static str,
        message: Cow<'static, str>,
    },
    /// The device may reconnect after a delay.
    Goaway {
        reason: &'static str,
    },
    /// An ERROR frame, then GOAWAY with the same code as its reason.
    ErrorAndGoaway {
        code: &'static str,
        message: Cow<'static, str>,
    },
}

impl CloseReason {
    /// The reason in the device's presence and in the metric.
    fn left_reason(&self) -> DisconnectReason {
        match self {
            Self::Closed | Self::IoError(_) => DisconnectReason::Closed,
            // Like a frame that exceeds its own limit.
            Self::Protocol(_) | Self::Overload(_) => DisconnectReason::ProtocolError,
            Self::SlowReader => DisconnectReason::SlowReader,
            Self::Evicted(eviction) => eviction.reason(),
        }
    }

    /// Expected in normal operation, so logged at debug level only.
    const fn is_expected(&self) -> bool {
        match self {
            Self::Closed | Self::IoError(_) => true,
            Self::Protocol(_) | Self::Overload(_) | Self::SlowReader => false,
            Self::Evicted(eviction) => match eviction {
                Eviction::Takeover | Eviction::Drained | Eviction::Stopped => true,
                Eviction::Idle
                | Eviction::SlowReader
                | Eviction::SlowFrame
                | Eviction::Revoked
                | Eviction::Expired
                | Eviction::DisconnectRequested
                | Eviction::Refused(_) => false,
            },
        }
    }

    fn final_frame(&self) -> FinalFrame {
        match self {
            Self::Closed | Self::IoError(_) | Self::SlowReader => FinalFrame::None,
            Self::Protocol(error) => FinalFrame::Error {
                code: error.code(),
                message: error.to_string().into(),
            },
            Self::Overload(_) => FinalFrame::Goaway { reason: "overload" },
            Self::Evicted(eviction) => match eviction {
                // GOAWAY was sent when the drain began; a slow reader would not read a frame.
                Eviction::Drained | Eviction::SlowReader => FinalFrame::None,
                Eviction::Stopped => FinalFrame::Goaway { reason: "drain" },
                Eviction::Takeover => FinalFrame::Goaway { reason: "takeover" },
                Eviction::Idle => FinalFrame::Goaway { reason: "idle" },
                Eviction::DisconnectRequested => FinalFrame::Goaway {
                    reason: "disconnect_requested",
                },
                Eviction::SlowFrame => FinalFrame::Error {
                    code: "frame_timeout",
                    message: "A frame was begun and not completed in time.".into(),
                },
                Eviction::Revoked => FinalFrame::Error {
                    code: "token_revoked",
                    message: "The access token was revoked. Get a new one.".into(),
                },
                Eviction::Expired => FinalFrame::Error {
                    code: "token_expired",
                    message: "The access token has expired. Get a new one and reconnect.".into(),
                },
                Eviction::Refused(error) => FinalFrame::Error {
                    code: error.code(),
                    message: error.to_string().into(),
                },
            },
        }
    }
}

/// Refuses a connection whose handshake failed.
pub(super) async fn reject<S>(
    io: &mut FrameIo<S>,
    permit: &ConnectionPermit,
    refusal: HandshakeError,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (edge, label) = (permit.edge(), refusal.label());
    log_refusal(&refusal, permit);
    put_last(io, refusal.final_frame(), edge.retry_after_ms());
    // An eviction was counted when the newer connection arrived.
    if !matches!(refusal, HandshakeError::Evicted) {
        edge.metrics.refused.with_label_values(&[label]).inc();
        tokio::select! {
            biased;
            () = permit.evicted() => {}
            () = shut_down(io) => return,
        }
    }
    send_last(io).await;
}

/// Releases the device, then closes its connection.
pub(super) async fn close<S>(
    io: &mut FrameIo<S>,
    permit: &ConnectionPermit,
    guard: ConnectionGuard<'_>,
    reason: CloseReason,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    log_close(&guard, permit, &reason);
    // Until the socket is closed, it counts as a connection of the organisation.
    let slot = guard.handle().take_slot();
    let left = match reason.left_reason() {
        DisconnectReason::Closed if guard.handle().is_leaving() => DisconnectReason::Drain,
        left => left,
    };
    guard.release(left);
    put_last(io, reason.final_frame(), permit.edge().retry_after_ms());
    match slot {
        Some(_) => shut_down(io).await,
        None => send_last(io).await,
    }
}

fn log_refusal(refusal: &HandshakeError, permit: &ConnectionPermit) {
    let (address, reason) = (permit.address(), refusal.label());
    let cause = refusal as &dyn std::error::Error;
    debug!(device.address = %address, reason, cause, "connection refused");
}

fn log_close(guard: &ConnectionGuard<'_>, permit: &ConnectionPermit, close: &CloseReason) {
    let handle = guard.handle();
    let open_calls = handle.open_calls();
    let (device, org) = (&handle.key.device, handle.key.org);
    let reason = close.left_reason().as_str();
    let address = permit.address();
    let cause = close as &dyn std::error::Error;
    if close.is_expected() {
        debug!(device.id = %device, org.id = %org, device.epoch = handle.epoch.0,
            device.address = %address, reason, calls.open = open_calls, cause,
            "device disconnected");
    } else {
        info!(device.id = %device, org.id = %org, device.epoch = handle.epoch.0,
            device.address = %address, reason, calls.open = open_calls, cause,
            "device connection closed by the edge");
    }
}

/// Appends the last frame.
fn put_last<S>(io: &mut FrameIo<S>, last: FinalFrame, retry_after_ms: u32)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match last {
        FinalFrame::None => {}
        FinalFrame::Error { code, message } => put_error(io, code, &message),
        FinalFrame::Goaway { reason } => put_goaway(io, reason, retry_after_ms),
        FinalFrame::ErrorAndGoaway { code, message } => {
            put_error(io, code, &message);
            put_goaway(io, code, retry_after_ms);
        }
        FinalFrame::AuthRefused { code, message } => buffers::with_payload(
            |payload| message::write_auth_refused(payload, code, &message),
            |payload| io.put(Kind::Auth, TaskId::MCP, 0, payload),
        ),
    }
}

/// Sends what the socket accepts. A newer connection has the slot of this one, so there is no time
/// for an orderly shutdown.
async fn send_last<S>(io: &mut FrameIo<S>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let _ = poll_fn(|cx| Poll::Ready(io.poll_flush(cx))).await;
}

/// Sends what is buffered and shuts the socket down.
async fn shut_down<S>(io: &mut FrameIo<S>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match tokio::time::timeout(CLOSE_TIMEOUT, io.shut_down()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "device disconnected before the connection was shut down"),
        Err(_) => debug!("device did not close its side in time"),
    }
}

/// Appends a GOAWAY frame.
pub(super) fn put_goaway<S>(io: &mut FrameIo<S>, reason: &str, retry_after_ms: u32)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let goaway = Goaway {
        reason: reason.to_owned(),
        retry_after_ms,
    };
    put_json(io, Kind::Goaway, &goaway);
}

fn put_error<S>(io: &mut FrameIo<S>, code: &str, message: &str)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let notice = ErrorNotice {
        code: code.to_owned(),
        message: message.to_owned(),
    };
    put_json(io, Kind::Error, &notice);
}

fn put_json<S, T>(io: &mut FrameIo<S>, kind: Kind, value: &T)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: serde::Serialize,
{
    match serde_json::to_vec(value) {
        Ok(payload) => io.put(kind, TaskId::MCP, 0, &payload),
        Err(error) => debug!(%error, "last frame could not be serialised"),
    }
}
