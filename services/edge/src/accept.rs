//! The accept loops: admit or reject a connection, then serve it on a task of its own.

mod admission;
mod proxy_protocol;
mod rate;

use std::{io, sync::Arc, time::Duration};

use switchboard_protocol::{
    frame::{self, Kind, SeqFormat, TaskId},
    message::Goaway,
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, sleep, timeout_at},
};
use tokio_rustls::{Accept, TlsAcceptor, server::TlsStream};
use tracing::{debug, warn};

use self::proxy_protocol::read_proxy_header;
pub(crate) use self::{
    admission::{Admission, ConnectionPermit},
    proxy_protocol::LABELS as PROXY_HEADER_LABELS,
};
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
        let deadline = auth_deadline(&edge);
        if peer == Peer::Direct {
            edge.tasks
                .spawn(connection::serve(stream, permit, deadline));
            return;
        }
        // Boxed, so that an idle connection does not carry the memory of this phase.
        let prepared = Box::pin(async move {
            let (stream, permit) = read_proxy_header(stream, permit, deadline).await?;
            Some(connection::serve(stream, permit, deadline))
        });
        edge.tasks.spawn(async move {
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
    let acceptor = TlsAcceptor::from(config);
    accept_each(listener, &edge, |stream, permit, peer| {
        let deadline = auth_deadline(&edge);
        let acceptor = acceptor.clone();
        let prepared = Box::pin(async move {
            let (stream, permit) = match peer {
                Peer::Direct => (stream, permit),
                Peer::Proxied => Box::pin(read_proxy_header(stream, permit, deadline)).await?,
            };
            let stream = tls_handshake(&permit, acceptor.accept(stream), deadline).await?;
            Some(connection::serve(stream, permit, deadline))
        });
        edge.tasks.spawn(async move {
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

fn auth_deadline(edge: &Edge) -> Instant {
    Instant::now() + Duration::from_millis(edge.config.device_auth_timeout_ms)
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

/// Sends GOAWAY with a reconnect delay, if it fits into the socket's buffer, and closes.
fn reject(edge: &Edge, stream: &TcpStream, limit: Limit) {
    edge.metrics.shed.inc(limit);
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

/// Completes the TLS handshake. Returns `None` when it fails, times out, or the edge drains.
async fn tls_handshake(
    permit: &ConnectionPermit,
    handshake: Accept<TcpStream>,
    deadline: Instant,
) -> Option<TlsStream<TcpStream>> {
    let edge = permit.edge();
    let stream = tokio::select! {
        biased;
        () = edge.tasks.draining() => Err(io::ErrorKind::ConnectionAborted.into()),
        stream = timeout_at(deadline, handshake) => {
            stream.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        }
    };
    stream
        .inspect_err(|error| {
            edge.metrics.refused.with_label_values(&["tls"]).inc();
            debug!(device.address = %permit.address(), %error, "TLS handshake failed");
        })
        .ok()
}
