//! The doors: accept, admit or turn away, hand over to a task of its own.
//! Never: an accept error that ends the listener, work for a connection on the accept loop.

mod admission;
mod introduction;
mod proxy_header;
mod rate;

use std::{io, sync::Arc, time::Duration};

use switchboard_protocol::{
    frame::{self, Kind, Spelling, TaskId},
    message::Goaway,
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, sleep, timeout_at},
};
use tokio_rustls::{Accept, TlsAcceptor, server::TlsStream};
use tracing::{debug, warn};

use self::introduction::introduce;
pub(crate) use self::{
    admission::{Admission, Admitted},
    proxy_header::LABELS as HEADERS,
};
use crate::{
    connection,
    edge::Edge,
    metrics::{AcceptError, Limit},
};

/// How long to wait after an accept failed for want of resources.
const BACKOFF: Duration = Duration::from_millis(50);

/// How a device comes to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comes {
    /// Its own socket is at the other end.
    Itself,
    /// A balancer's is, which says whose it is in a PROXY header.
    Relayed,
}

/// Takes plain TCP connections until the edge drains.
pub(crate) async fn plain(listener: TcpListener, edge: Arc<Edge>) {
    each(listener, &edge, |stream, admitted, comes| {
        let deadline = auth_deadline(&edge);
        if comes == Comes::Itself {
            edge.connections
                .spawn(connection::serve(stream, admitted, deadline));
            return;
        }
        // Boxed, so that a connection at rest does not carry its room.
        let introduced = Box::pin(async move {
            let (stream, admitted) = introduce(stream, admitted, deadline).await?;
            Some(connection::serve(stream, admitted, deadline))
        });
        edge.connections.spawn(async move {
            if let Some(serving) = introduced.await {
                serving.await;
            }
        });
    })
    .await;
}

/// Takes TLS connections until the edge drains. A PROXY header and a handshake are part of the time for AUTH.
pub(crate) async fn tls(listener: TcpListener, config: Arc<rustls::ServerConfig>, edge: Arc<Edge>) {
    let acceptor = TlsAcceptor::from(config);
    each(listener, &edge, |stream, admitted, comes| {
        let deadline = auth_deadline(&edge);
        let acceptor = acceptor.clone();
        let shaken = Box::pin(async move {
            let (stream, admitted) = match comes {
                Comes::Itself => (stream, admitted),
                Comes::Relayed => Box::pin(introduce(stream, admitted, deadline)).await?,
            };
            let stream = shake_hands(&admitted, acceptor.accept(stream), deadline).await?;
            Some(connection::serve(stream, admitted, deadline))
        });
        edge.connections.spawn(async move {
            if let Some(serving) = shaken.await {
                serving.await;
            }
        });
    })
    .await;
}

async fn each(
    listener: TcpListener,
    edge: &Arc<Edge>,
    mut serve: impl FnMut(TcpStream, Admitted, Comes),
) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = edge.connections.draining() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                survive(edge, &error).await;
                continue;
            }
        };
        let (comes, admitted) = if edge.config.is_balancer(peer.ip()) {
            (Comes::Relayed, Admitted::take_relayed(edge, peer.ip()))
        } else {
            (Comes::Itself, Admitted::take(edge, peer.ip()))
        };
        match admitted {
            Ok(admitted) => {
                // Without it a call would wait for the acknowledgement of the one before.
                if let Err(error) = stream.set_nodelay(true) {
                    debug!(%error, "a socket was gone before it was served");
                }
                serve(stream, admitted, comes);
            }
            Err(limit) => turn_away(edge, &stream, limit),
        }
    }
}

fn auth_deadline(edge: &Edge) -> Instant {
    Instant::now() + Duration::from_millis(edge.config.device_auth_timeout_ms)
}

/// Counts a failed accept. One that a single peer caused costs nothing; out of descriptors or
/// memory, accepting again at once would only spin.
async fn survive(edge: &Edge, error: &io::Error) {
    let peer_left = matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    );
    let kind = if peer_left {
        AcceptError::Peer
    } else {
        AcceptError::Resources
    };
    edge.metrics.accept_errors.inc(kind);
    if !peer_left {
        warn!(%error, "a connection could not be accepted; trying again shortly");
        sleep(BACKOFF).await;
    }
}

/// Says when to come back, if that fits into the socket at once, and closes.
fn turn_away(edge: &Edge, stream: &TcpStream, limit: Limit) {
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
            Spelling::Plain,
            &payload,
        );
        // Best effort: a peer that misses it finds the connection closed all the same.
        let _ = stream.try_write(&frame);
    }
}

/// The stream behind the handshake, none when it fails, is late, or the edge drains first.
async fn shake_hands(
    admitted: &Admitted,
    handshake: Accept<TcpStream>,
    deadline: Instant,
) -> Option<TlsStream<TcpStream>> {
    let edge = admitted.edge();
    let shaken = tokio::select! {
        biased;
        () = edge.connections.draining() => Err(io::ErrorKind::ConnectionAborted.into()),
        shaken = timeout_at(deadline, handshake) => {
            shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        }
    };
    shaken
        .inspect_err(|error| {
            edge.metrics.refused.with_label_values(&["tls"]).inc();
            debug!(device.address = %admitted.address(), %error, "a TLS handshake failed");
        })
        .ok()
}
