//! The last words to a device: one frame that says why, then an orderly close.
//! Never: a wait without an end for a device that does not read.

use std::time::Duration;

use switchboard_protocol::{
    frame::{Kind, TaskId},
    message::{self, ErrorNotice, Goaway},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::debug;

use super::{departure::Notice, scratch, wire::Wire};

/// How long the device may take to read the last frame and close its side.
const LINGER: Duration = Duration::from_secs(1);

/// Says it and closes.
pub(super) async fn say<S>(wire: &mut Wire<S>, notice: Notice, retry_after_ms: u32)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match notice {
        Notice::None => {}
        Notice::Error { code, message } => put_error(wire, code, &message),
        Notice::GoAway { reason } => put_go_away(wire, reason, retry_after_ms),
        Notice::ErrorAndGoAway { code, message } => {
            put_error(wire, code, &message);
            put_go_away(wire, code, retry_after_ms);
        }
        Notice::AuthRefused { code, message } => scratch::with_payload(
            |payload| message::write_auth_refused(payload, code, &message),
            |payload| wire.put(Kind::Auth, TaskId::MCP, 0, payload),
        ),
    }
    match tokio::time::timeout(LINGER, wire.finish()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "the device was gone before the connection was closed"),
        Err(_) => debug!("the device did not close its side in time"),
    }
}

/// Tells the device to connect elsewhere.
pub(super) fn put_go_away<S>(wire: &mut Wire<S>, reason: &str, retry_after_ms: u32)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    put_json(
        wire,
        Kind::Goaway,
        &Goaway {
            reason: reason.to_owned(),
            retry_after_ms,
        },
    );
}

fn put_error<S>(wire: &mut Wire<S>, code: &str, message: &str)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let notice = ErrorNotice {
        code: code.to_owned(),
        message: message.to_owned(),
    };
    put_json(wire, Kind::Error, &notice);
}

fn put_json<S, T>(wire: &mut Wire<S>, kind: Kind, value: &T)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: serde::Serialize,
{
    match serde_json::to_vec(value) {
        Ok(payload) => wire.put(kind, TaskId::MCP, 0, &payload),
        Err(error) => debug!(%error, "the last frame could not be written"),
    }
}
