//! The handshake: verifies the ticket or the token of the first frame, claims the device in the
//! directory, and inserts its connection.
//!
//! Invariant: a token appears in no log line and no answer, a ticket in the answer to AUTH only (I16).

use std::{future::poll_fn, io, sync::Arc};

use switchboard_bus::{
    Bus, BusError, DisconnectReason, TicketError, TicketHolder, TokenDigest, TokenError,
};
use switchboard_protocol::{
    frame::{FrameError, Kind, TaskId},
    id::DeviceKey,
    locale::Locale,
    message::{self, AudioTerms, AuthAccepted, AuthRequest},
    session::{Event, Session, SessionError},
    token::{AccessError, Scope, Subject},
};
use switchboard_runtime::{
    budget::{Exhausted, Owner, Permit},
    quota::QuotaExceeded,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout_at,
};
use tracing::{debug, warn};

use super::{
    buffers,
    close::FinalFrame,
    guard::ConnectionGuard,
    io::{FrameIo, ReadChunk},
};
use crate::{
    accept::ConnectionPermit,
    connections::Inserted,
    edge::Edge,
    handle::{ConnectionHandle, Eviction, Identity},
};

/// The audio that a device offers, or what is wrong with it.
type AudioOffer = Result<AudioTerms, String>;

/// The optional members of AUTH, each with what is wrong with it.
struct Terms {
    audio: Option<AudioOffer>,
    locale: Option<Result<Locale, String>>,
}

/// The device and its token, the task of the frame, and the other members of AUTH.
type Authenticated = (TicketHolder, TaskId, Terms);

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("the device disconnected before AUTH")]
    Disconnected,
    #[error("the socket failed before AUTH")]
    Io(#[source] io::Error),
    #[error("no AUTH frame arrived in time")]
    Timeout,
    #[error("the edge is draining")]
    Draining,
    #[error("a newer connection needed the slot")]
    Evicted,
    #[error("an incomplete frame exceeds the share of its owner")]
    Overload(#[source] Exhausted),
    #[error("the organisation of the device has its share of the connections")]
    Connections(#[source] Exhausted),
    #[error("the device violated the protocol before AUTH")]
    Protocol(#[source] SessionError),
    #[error("the access token was not accepted")]
    Token(#[source] TokenError),
    #[error("the ticket was not accepted, and there was no token")]
    Ticket,
    #[error("the access token does not permit connecting as a device")]
    NotADevice,
    #[error("the device could not be claimed in the directory")]
    Bus(#[source] BusError),
    #[error(transparent)]
    Quota(QuotaExceeded),
    #[error("a newer connection of the device is present")]
    Superseded,
}

impl HandshakeError {
    /// The metric label. It is also the code that the device receives, unless that is `overload`.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Disconnected => "left",
            Self::Io(_) => "broken",
            Self::Timeout => "auth_timeout",
            Self::Draining => "drain",
            Self::Evicted | Self::Overload(_) => "overload",
            Self::Connections(_) => "device_connections",
            Self::Protocol(error) => error.code(),
            Self::Token(error) => token_code(error),
            Self::Ticket => "ticket_refused",
            Self::NotADevice => "not_a_device",
            Self::Bus(_) => "bus_unavailable",
            Self::Quota(_) => "quota_exceeded",
            Self::Superseded => "takeover",
        }
    }

    pub(super) fn final_frame(&self) -> FinalFrame {
        let code = self.label();
        match self {
            Self::Disconnected | Self::Io(_) => FinalFrame::None,
            Self::Timeout => FinalFrame::Error {
                code,
                message: "No AUTH frame arrived in time.".into(),
            },
            Self::Draining | Self::Evicted | Self::Overload(_) | Self::Superseded => {
                FinalFrame::Goaway { reason: code }
            }
            Self::Protocol(error) => FinalFrame::Error {
                code,
                message: error.to_string().into(),
            },
            Self::Token(error @ TokenError::NoKeys) => FinalFrame::ErrorAndGoaway {
                code,
                message: error.to_string().into(),
            },
            Self::Token(error) => FinalFrame::AuthRefused {
                code,
                message: error.to_string().into(),
            },
            Self::Ticket => FinalFrame::AuthRefused {
                code,
                message: TicketError::Unusable.to_string().into(),
            },
            Self::NotADevice => FinalFrame::AuthRefused {
                code,
                message: "Use a token with a subject `device:ID` and the scope `device`.".into(),
            },
            Self::Connections(_) => FinalFrame::ErrorAndGoaway {
                code: "overload",
                message: "The organisation has its share of the connections of this node. \
                    Try again: another node may have room."
                    .into(),
            },
            Self::Quota(exceeded) => FinalFrame::ErrorAndGoaway {
                code,
                message: exceeded.to_string().into(),
            },
            Self::Bus(_) => FinalFrame::ErrorAndGoaway {
                code,
                message: "The directory of devices cannot be reached now. Try again.".into(),
            },
        }
    }
}

/// All metric labels of refused connections, including a failed TLS handshake.
pub(crate) fn refusal_labels() -> impl Iterator<Item = &'static str> {
    let own = [
        "left",
        "broken",
        "auth_timeout",
        "drain",
        "overload",
        "device_connections",
        "no_keys",
        "ticket_refused",
        "not_a_device",
        "bus_unavailable",
        "quota_exceeded",
        "takeover",
        "tls",
    ];
    own.into_iter()
        .chain(FrameError::CODES)
        .chain(SessionError::CODES)
        .chain(AccessError::CODES)
}

fn token_code(error: &TokenError) -> &'static str {
    match error {
        TokenError::NoKeys => "no_keys",
        TokenError::Access(error) => error.code(),
    }
}

/// Authenticates the device and establishes its connection.
///
/// # Errors
/// Why the device is refused.
pub(super) async fn handshake<S>(
    io: &mut FrameIo<S>,
    session: &mut Session,
    permit: &ConnectionPermit,
) -> Result<Arc<ConnectionHandle>, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let edge = permit.edge();
    let (holder, task, terms) = tokio::select! {
        biased;
        () = edge.tasks.draining() => return Err(HandshakeError::Draining),
        authenticated = timeout_at(permit.deadline(), authenticate(io, session, permit)) => {
            authenticated.map_err(|_| HandshakeError::Timeout)??
        }
        // Last, so that a valid AUTH that has arrived counts.
        () = permit.evicted() => return Err(HandshakeError::Evicted),
    };
    let ticket = edge.bus.issue_ticket(&holder);
    let identity = Identity {
        key: holder.device,
        token: holder.token,
    };
    let handle = claim(edge, identity).await?;
    debug!(device.id = %handle.key.device, org.id = %handle.key.org,
        device.epoch = handle.epoch.0, device.address = %permit.address(), "device connected");
    session.set_authenticated();
    io.set_max_frame_bytes(edge.config.device_max_frame_bytes);
    let locale_notice = terms
        .locale
        .and_then(|locale| locale.map(|locale| handle.set_locale(locale)).err());
    let (audio, audio_notice) = agree_on_audio(edge, &handle, terms.audio);
    let (ticket, ticket_ttl_s) = ticket.unzip();
    let accepted = AuthAccepted {
        device_id: handle.key.device.clone(),
        session: format!("{}-{}", handle.key.device, handle.epoch.0),
        heartbeat_s: edge.config.device_heartbeat_s,
        max_frame_bytes: edge.config.device_max_frame_bytes,
        audio,
        audio_notice,
        locale_notice,
        ticket,
        ticket_ttl_s,
    };
    buffers::with_payload(
        |payload| message::write_auth_accepted(payload, &accepted),
        |payload| io.put(Kind::Auth, task, 0, payload),
    );
    Ok(handle)
}

/// Gives the connection a spoken side if the device offered audio. Returns the terms, and what is missing
/// or wrong.
fn agree_on_audio(
    edge: &Edge,
    handle: &ConnectionHandle,
    offer: Option<AudioOffer>,
) -> (Option<AudioTerms>, Option<String>) {
    match offer {
        None => (None, None),
        Some(Err(detail)) => (None, Some(detail)),
        Some(Ok(terms)) => {
            handle.set_voice(terms);
            let notice = edge.voice.notice(&terms);
            let notice = notice.map(|notice| notice.text(handle.language(edge)).into_owned());
            (Some(terms), notice)
        }
    }
}

/// Reads up to the AUTH frame and verifies its ticket or its token.
async fn authenticate<S>(
    io: &mut FrameIo<S>,
    session: &mut Session,
    permit: &ConnectionPermit,
) -> Result<Authenticated, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let read = poll_fn(|cx| io.poll_read(cx))
            .await
            .map_err(HandshakeError::Io)?;
        let (chunk, length) = read.ok_or(HandshakeError::Disconnected)?;
        permit.edge().metrics.received_bytes.inc_by(length as u64);
        if let Some(authenticated) = read_auth(io, session, permit, chunk)? {
            return Ok(authenticated);
        }
    }
}

fn read_auth<S>(
    io: &mut FrameIo<S>,
    session: &mut Session,
    permit: &ConnectionPermit,
    mut chunk: ReadChunk,
) -> Result<Option<Authenticated>, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let edge = permit.edge();
    let frame = io.next_frame(&mut chunk);
    let Some(frame) = frame.map_err(|error| HandshakeError::Protocol(error.into()))? else {
        io.put_back(chunk, false, &edge.frames, permit.network())
            .map_err(HandshakeError::Overload)?;
        return Ok(None);
    };
    let task = frame.task;
    let (holder, terms) = match session.handle(frame).map_err(HandshakeError::Protocol)? {
        Event::Auth(request) => {
            let holder = identify(&edge.bus, &request)?;
            let locale = request.locale();
            let audio = request.client.and_then(|client| client.audio);
            let audio = audio.map(AudioTerms::parse);
            let terms = Terms { audio, locale };
            (holder, terms)
        }
        _ => return Err(HandshakeError::Protocol(SessionError::NotAuthenticated)),
    };
    // A device may send its register message right behind, without waiting for the answer.
    let owner = Owner::Org(holder.device.org.uuid());
    io.put_back(chunk, true, &edge.frames, owner)
        .map_err(HandshakeError::Overload)?;
    Ok(Some((holder, task, terms)))
}

/// Verifies the ticket, which spares the check of the token's signature, or else the token. A ticket
/// counts only if it was issued for the token that is shown beside it.
fn identify(bus: &Bus, request: &AuthRequest<'_>) -> Result<TicketHolder, HandshakeError> {
    let (token, ticket) = (&*request.token, &*request.ticket);
    let digest = TokenDigest::compute(token);
    if !ticket.is_empty() {
        match bus.verify_ticket(ticket) {
            Ok(holder) if token.is_empty() || holder.digest == digest => return Ok(holder),
            Err(TicketError::Token(error)) if token.is_empty() => {
                return Err(HandshakeError::Token(error));
            }
            Err(TicketError::Unusable) if token.is_empty() => return Err(HandshakeError::Ticket),
            Ok(_) | Err(_) => {}
        }
    }
    let verified = bus.verify_for_connection(token);
    let (claims, token) = verified.map_err(HandshakeError::Token)?;
    match claims.subject {
        Subject::Device(device) if claims.scopes.contains(Scope::Device) => Ok(TicketHolder {
            device: DeviceKey {
                org: claims.org,
                device,
            },
            token,
            digest,
        }),
        _ => Err(HandshakeError::NotADevice),
    }
}

/// Claims the device for this node and adds its connection. The newest connection wins in the
/// directory and here. If the device has a registered connection, the new one joins, and replaces it
/// when it has registered.
async fn claim(
    edge: &Arc<Edge>,
    identity: Identity,
) -> Result<Arc<ConnectionHandle>, HandshakeError> {
    let slot = acquire_slot(edge, &identity.key)?;
    let claimed = edge.bus.claim(&identity.key).await;
    let claimed = claimed.map_err(|error| match error {
        BusError::Quota(exceeded) => HandshakeError::Quota(exceeded),
        error => {
            warn!(device.id = %identity.key.device, org.id = %identity.key.org, %error,
                "device refused: the directory is unreachable");
            HandshakeError::Bus(error)
        }
    })?;
    let handle = Arc::new(ConnectionHandle::new(
        identity,
        claimed.epoch,
        edge.now_ms(),
    ));
    let inserted = if claimed.is_entered {
        handle.set_entered();
        edge.connections.enter(&handle)
    } else {
        edge.connections.join(&handle)
    };
    let older = match inserted {
        Inserted::New => None,
        Inserted::Replaced(older) => Some(older),
        Inserted::Superseded => {
            if claimed.is_entered {
                let reason = DisconnectReason::Takeover;
                edge.bus
                    .release(handle.key.clone(), handle.epoch, None, reason);
            }
            return Err(HandshakeError::Superseded);
        }
    };
    // Before the older connection is evicted, so that it closes without its slot.
    let slot = slot.or_else(|| take_slot(edge, &handle, older.as_ref()));
    if let Some(older) = older {
        edge.take_over(&older);
    }
    let slot = slot.map_or_else(|| edge.devices.try_acquire(handle.owner(), 1), Ok);
    match slot {
        Ok(slot) => handle.set_slot(slot),
        Err(exhausted) => {
            // The older connection has closed in the meantime, and another device has its slot.
            ConnectionGuard::new(edge, handle).release(DisconnectReason::Closed);
            return Err(HandshakeError::Connections(exhausted));
        }
    }
    // A takeover or a revocation before the insertion found no connection to close.
    if edge.bus.is_superseded(&handle.key, handle.epoch) {
        handle.evict(Eviction::Takeover);
    }
    if let Err(error) = edge.bus.recheck(&handle.token()) {
        handle.evict(error.into());
    }
    Ok(handle)
}

/// Acquires a slot among the connections of the organisation. Returns `None` if there is none, and
/// the device is connected here: the older connection leaves its slot to the newer one.
fn acquire_slot(edge: &Edge, key: &DeviceKey) -> Result<Option<Permit>, HandshakeError> {
    let owner = Owner::Org(key.org.uuid());
    match edge.devices.acquire_if_free(owner, 1) {
        Ok(slot) => Ok(Some(slot)),
        Err(_) if edge.connections.has(key) => Ok(None),
        Err(_) => {
            let slot = edge.devices.try_acquire(owner, 1);
            slot.map(Some).map_err(HandshakeError::Connections)
        }
    }
}

/// Takes the slot of an older connection of the device, which closes: no connection stays without one.
fn take_slot(
    edge: &Edge,
    newer: &ConnectionHandle,
    replaced: Option<&Arc<ConnectionHandle>>,
) -> Option<Permit> {
    let mut slot = None;
    let mut close = |older: &Arc<ConnectionHandle>| {
        slot = slot.take().or_else(|| older.take_slot());
        older.evict(Eviction::Takeover);
        slot.is_some()
    };
    if !replaced.is_some_and(&mut close) {
        let (org, device) = (newer.key.org, newer.key.device.as_str());
        edge.connections.for_each_of(org, device, |older| {
            if older.epoch < newer.epoch {
                close(older);
            }
        });
    }
    slot
}
