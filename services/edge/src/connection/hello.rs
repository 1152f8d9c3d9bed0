//! The first frame: who is there? Verify the token, enter the directory, take the device in.
//! Never: a token in a log line or an answer, a claim for a device the token does not name.

use std::{future::poll_fn, io, sync::Arc};

use switchboard_bus::{BusError, LeftReason, TrustError};
use switchboard_protocol::{
    access::{AccessError, Claims, Scope, Subject},
    frame::{FrameError, Kind, TaskId},
    id::DeviceKey,
    message::{self, AuthAccepted},
    session::{Event, Session, SessionError},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};
use tracing::{debug, warn};

use super::{
    departure::Notice,
    scratch,
    wire::{Received, Wire},
};
use crate::{
    accept::Admitted,
    edge::Edge,
    link::{Eviction, Identity, Link},
    table::Entered,
};

/// Why a connection was not taken in.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the device left before AUTH")]
    Left,
    #[error("the socket failed before AUTH")]
    Broken(#[source] io::Error),
    #[error("no AUTH came in time")]
    TimedOut,
    #[error("the edge is draining")]
    Draining,
    #[error("the device broke the protocol before AUTH")]
    Protocol(#[source] SessionError),
    #[error("the access token was not accepted")]
    Token(#[source] TrustError),
    #[error("the access token is for something else than connecting a device")]
    NotADevice,
    #[error("the device cannot be entered into the directory")]
    Bus(#[source] BusError),
    #[error("a newer connection of the device was faster")]
    Superseded,
}

impl Refusal {
    /// The metric label.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Broken(_) => "broken",
            Self::TimedOut => "auth_timeout",
            Self::Draining => "drain",
            Self::Protocol(error) => error.code(),
            Self::Token(error) => code(error),
            Self::NotADevice => "not_a_device",
            Self::Bus(_) => "bus_unavailable",
            Self::Superseded => "takeover",
        }
    }

    /// What the device is told.
    pub(super) fn notice(&self) -> Notice {
        let code = self.label();
        match self {
            Self::Left | Self::Broken(_) => Notice::None,
            Self::TimedOut => Notice::Error {
                code,
                message: "No AUTH frame came in time.".into(),
            },
            Self::Draining | Self::Superseded => Notice::GoAway { reason: code },
            Self::Protocol(error) => Notice::Error {
                code,
                message: error.to_string().into(),
            },
            Self::Token(error @ TrustError::NoKeys) => Notice::ErrorAndGoAway {
                code,
                message: error.to_string().into(),
            },
            Self::Token(error) => Notice::AuthRefused {
                code,
                message: error.to_string().into(),
            },
            Self::NotADevice => Notice::AuthRefused {
                code,
                message: "Use a token with a subject `device:ID` and the scope `device`.".into(),
            },
            Self::Bus(_) => Notice::ErrorAndGoAway {
                code,
                message: "The directory of devices cannot be reached now. Try again.".into(),
            },
        }
    }
}

/// The labels of all refusals.
pub(crate) fn refusals() -> impl Iterator<Item = &'static str> {
    let own = [
        "left",
        "broken",
        "auth_timeout",
        "drain",
        "no_keys",
        "not_a_device",
        "bus_unavailable",
        "takeover",
        "tls",
    ];
    own.into_iter()
        .chain(FrameError::CODES)
        .chain(SessionError::CODES)
        .chain(AccessError::CODES)
}

fn code(error: &TrustError) -> &'static str {
    match error {
        TrustError::NoKeys => "no_keys",
        TrustError::Access(error) => error.code(),
    }
}

/// Takes a device in, or says why not.
pub(super) async fn take_in<S>(
    wire: &mut Wire<S>,
    session: &mut Session,
    admitted: &Admitted,
    deadline: Instant,
) -> Result<Arc<Link>, Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let edge = admitted.edge();
    let (claims, task) = tokio::select! {
        biased;
        () = edge.connections.draining() => return Err(Refusal::Draining),
        authenticated = tokio::time::timeout_at(deadline, authenticate(wire, session, edge)) => {
            authenticated.map_err(|_| Refusal::TimedOut)??
        }
    };
    let identity = identify(claims)?;
    let link = enter(edge, identity).await?;
    debug!(device.id = %link.key.device, org.id = %link.key.org, device.epoch = link.epoch.0,
        device.address = %admitted.address(), "a device connected");
    session.authenticated();
    wire.set_max_frame_bytes(edge.config.device_max_frame_bytes);
    let accepted = AuthAccepted {
        device_id: link.key.device.clone(),
        session: format!("{}-{}", link.key.device, link.epoch.0),
        heartbeat_s: edge.config.device_heartbeat_s,
        max_frame_bytes: edge.config.device_max_frame_bytes,
    };
    scratch::with_payload(
        |payload| message::write_auth_accepted(payload, &accepted),
        |payload| wire.put(Kind::Auth, task, 0, payload),
    );
    Ok(link)
}

/// Reads up to the AUTH frame and checks its token.
async fn authenticate<S>(
    wire: &mut Wire<S>,
    session: &mut Session,
    edge: &Edge,
) -> Result<(Claims, TaskId), Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let received = poll_fn(|cx| wire.poll_receive(cx))
            .await
            .map_err(Refusal::Broken)?;
        let (received, length) = received.ok_or(Refusal::Left)?;
        edge.metrics.received_bytes.inc_by(length as u64);
        if let Some(authenticated) = find_auth(wire, session, edge, received)? {
            return Ok(authenticated);
        }
    }
}

fn find_auth<S>(
    wire: &mut Wire<S>,
    session: &mut Session,
    edge: &Edge,
    mut received: Received,
) -> Result<Option<(Claims, TaskId)>, Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let frame = wire.next_frame(&mut received);
    let Some(frame) = frame.map_err(|error| Refusal::Protocol(error.into()))? else {
        wire.keep(received, false);
        return Ok(None);
    };
    let task = frame.task;
    let claims = match session.handle(frame).map_err(Refusal::Protocol)? {
        Event::Auth(request) => edge.bus.verify(&request.token).map_err(Refusal::Token)?,
        _ => return Err(Refusal::Protocol(SessionError::NotAuthenticated)),
    };
    // A device may send its register message right behind, without waiting for the answer.
    wire.keep(received, true);
    Ok(Some((claims, task)))
}

fn identify(claims: Claims) -> Result<Identity, Refusal> {
    match claims.subject {
        Subject::Device(device) if claims.scopes.contains(Scope::Device) => Ok(Identity {
            key: DeviceKey {
                org: claims.org,
                device,
            },
            token: claims.id,
            token_expires_at_s: claims.expires_at,
        }),
        _ => Err(Refusal::NotADevice),
    }
}

/// Claims the device for this node and enters it into the table; the newest wins in both.
async fn enter(edge: &Edge, identity: Identity) -> Result<Arc<Link>, Refusal> {
    let epoch = edge.bus.claim(&identity.key).await.map_err(|error| {
        warn!(device.id = %identity.key.device, org.id = %identity.key.org, %error,
            "a device was sent away because the directory cannot be reached");
        Refusal::Bus(error)
    })?;
    let link = Arc::new(Link::new(identity, epoch, edge.now_ms()));
    match edge.table.enter(&link) {
        Entered::Alone => {}
        Entered::Replacing(older) => older.evict(Eviction::Takeover),
        Entered::Superseded => {
            edge.bus
                .release(link.key.clone(), link.epoch, None, LeftReason::Takeover);
            return Err(Refusal::Superseded);
        }
    }
    // Before the entry into the table a takeover or a revocation finds nobody to close.
    if edge.bus.is_superseded(&link.key, link.epoch) {
        link.evict(Eviction::Takeover);
    }
    if edge.bus.is_revoked(link.token) {
        link.evict(Eviction::Revoked);
    }
    Ok(link)
}
