//! The accept loops: admit or reject a connection, then serve it on a task of its own.

mod admission;
mod proxy_protocol;
mod rate;
mod tls_sessions;
mod tls_stream;
mod unauthenticated;

use std::{io, sync::Arc, time::Duration};

use switchboard_protocol::{
    frame::{self, Kind, SeqFormat, TaskId},
    message::Goaway,
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout_at},
};
use tracing::{debug, warn};

pub(crate) use self::{
    admission::{Admission, ConnectionPermit},
    proxy_protocol::LABELS as PROXY_HEADER_LABELS,
};
use self::{proxy_protocol::read_proxy_header, tls_stream::TlsStream};
use crate::{
    connection,
    edge::Edge,
    metrics::{AcceptError, Limit},
};

/// Pause after an accept that failed for lack of resources.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// What is at the other end of an accepted socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// The device.
    Direct,
    /// A balancer, which names the device in a PROXY header.
    Proxied,
}

/// Accepts plain TCP connections until the edge drains.
pub(crate) async fn accept_plain(listener: TcpListener, edge: Arc<Edge>) {
    accept_each(listener, &edge, |stream, permit, peer| {
        if peer == Peer::Direct {
            edge.tasks.spawn_bare(connection::serve(stream, permit));
            return;
        }
        // Boxed, so that an idle connection does not carry the memory of this phase.
        let prepared = Box::pin(async move {
            let (stream, permit) = read_proxy_header(stream, permit).await?;
            Some(connection::serve(stream, permit))
        });
        edge.tasks.spawn_bare(async move {
            if let Some(serving) = prepared.await {
                serving.await;
            }
        });
    })
    .await;
}

/// Accepts TLS connections until the edge drains. A PROXY header and the handshake count towards
/// the AUTH timeout.
pub(crate) async fn accept_tls(
    listener: TcpListener,
    config: Arc<rustls::ServerConfig>,
    edge: Arc<Edge>,
) {
    accept_each(listener, &edge, |stream, permit, peer| {
        let config = Arc::clone(&config);
        let prepared = Box::pin(async move {
            let (stream, mut permit) = match peer {
                Peer::Direct => (stream, permit),
                Peer::Proxied => Box::pin(read_proxy_header(stream, permit)).await?,
            };
            let stream = tls_handshake(stream, &mut permit, config).await?;
            Some(connection::serve(stream, permit))
        });
        edge.tasks.spawn_bare(async move {
            if let Some(serving) = prepared.await {
                serving.await;
            }
        });
    })
    .await;
}

/// Invariant: an accept error never ends the loop, and no connection's work runs on it.
async fn accept_each(
    listener: TcpListener,
    edge: &Arc<Edge>,
    mut serve: impl FnMut(TcpStream, ConnectionPermit, Peer),
) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = edge.tasks.draining() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                handle_accept_error(edge, &error).await;
                continue;
            }
        };
        let (peer, permit) = if edge.config.is_balancer(address.ip()) {
            let permit = ConnectionPermit::acquire_proxied(edge, address.ip());
            (Peer::Proxied, permit)
        } else {
            let permit = ConnectionPermit::acquire(edge, address.ip());
            (Peer::Direct, permit)
        };
        match permit {
            Ok(permit) => {
                // With Nagle's algorithm a call would wait for the ACK of the previous one.
                if let Err(error) = stream.set_nodelay(true) {
                    debug!(%error, "socket closed before it was served");
                }
                serve(stream, permit, peer);
            }
            Err(limit) => reject(edge, &stream, limit),
        }
    }
}

/// Counts a failed accept. Backs off when descriptors or memory are exhausted, as an immediate
/// retry would only spin; an error that one peer caused needs no pause.
async fn handle_accept_error(edge: &Edge, error: &io::Error) {
    let is_peer_error = matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    );
    let kind = if is_peer_error {
        AcceptError::Peer
    } else {
        AcceptError::Resources
    };
    edge.metrics.accept_errors.inc(kind);
    if !is_peer_error {
        warn!(%error, "accept failed; retrying shortly");
        sleep(ACCEPT_BACKOFF).await;
    }
}

/// Closes a connection that a limit refuses.
fn reject(edge: &Edge, stream: &TcpStream, limit: Limit) {
    edge.metrics.shed.inc(limit);
    send_goaway(edge, stream);
}

/// Sends GOAWAY with a reconnect delay, if it fits into the socket's buffer.
fn send_goaway(edge: &Edge, stream: &TcpStream) {
    let retry_after_ms = edge.retry_after_ms();
    let goaway = Goaway {
        reason: "overload".to_owned(),
        retry_after_ms,
    };
    if let Ok(payload) = serde_json::to_vec(&goaway) {
        let mut frame = Vec::new();
        frame::encode(
            &mut frame,
            Kind::Goaway,
            TaskId::MCP,
            0,
            SeqFormat::Plain,
            &payload,
        );
        // Best effort: a peer that does not receive it sees the connection close.
        let _ = stream.try_write(&frame);
    }
}

/// Completes the TLS handshake. Returns `None` when it fails, times out, the connection is evicted,
/// or the edge drains.
async fn tls_handshake(
    stream: TcpStream,
    permit: &mut ConnectionPermit,
    config: Arc<rustls::ServerConfig>,
) -> Option<TlsStream> {
    let handshake = async {
        let session = permit.acquire_tls().await.map_err(io::Error::other)?;
        let stream = TlsStream::accept(config, stream).await?;
        Ok::<_, io::Error>((stream, session))
    };
    let result = tokio::select! {
        biased;
        () = permit.edge().tasks.draining() => Err(io::ErrorKind::ConnectionAborted.into()),
        () = permit.evicted() => return None,
        result = timeout_at(permit.deadline(), handshake) => {
            result.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        }
    };
    match result {
        Ok((stream, session)) => {
            permit.hold_tls(session);
            Some(stream)
        }
        Err(error) => {
            let edge = permit.edge();
            edge.metrics.refused.with_label_values(&["tls"]).inc();
            debug!(device.address = %permit.address(), %error, "TLS handshake failed");
            None
        }
    }
}
