//! The doors: accept, admit or turn away, hand over to a task of its own.
//! Never: an accept error that ends the listener, work for a connection on the accept loop.

mod admission;
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

pub(crate) use self::admission::{Admission, Admitted};
use crate::{connection, edge::Edge};

/// How long to wait after an accept failed for want of resources.
const BACKOFF: Duration = Duration::from_millis(50);

/// Takes plain TCP connections until the edge drains.
pub(crate) async fn plain(listener: TcpListener, edge: Arc<Edge>) {
    each(listener, &edge, |stream, admitted| {
        let deadline = auth_deadline(&edge);
        edge.connections
            .spawn(connection::serve(stream, admitted, deadline));
    })
    .await;
}

/// Takes TLS connections until the edge drains. A handshake is part of the time for AUTH.
pub(crate) async fn tls(listener: TcpListener, config: Arc<rustls::ServerConfig>, edge: Arc<Edge>) {
    let acceptor = TlsAcceptor::from(config);
    each(listener, &edge, |stream, admitted| {
        let deadline = auth_deadline(&edge);
        let handshake = acceptor.accept(stream);
        let handshake = Box::pin(shake_hands(Arc::clone(&edge), handshake, deadline));
        edge.connections.spawn(async move {
            if let Some(stream) = handshake.await {
                connection::serve(stream, admitted, deadline).await;
            }
        });
    })
    .await;
}

async fn each(listener: TcpListener, edge: &Arc<Edge>, mut serve: impl FnMut(TcpStream, Admitted)) {
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
        match Admitted::take(edge, peer.ip()) {
            Ok(admitted) => {
                // Without it a call would wait for the acknowledgement of the one before.
                if let Err(error) = stream.set_nodelay(true) {
                    debug!(%error, "a socket was gone before it was served");
                }
                serve(stream, admitted);
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
    let kind = if peer_left { "peer" } else { "resources" };
    edge.metrics.accept_errors.with_label_values(&[kind]).inc();
    if !peer_left {
        warn!(%error, "a connection could not be accepted; trying again shortly");
        sleep(BACKOFF).await;
    }
}

/// Says when to come back, if that fits into the socket at once, and closes.
fn turn_away(edge: &Edge, stream: &TcpStream, limit: &'static str) {
    edge.metrics.shed.with_label_values(&[limit]).inc();
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
    edge: Arc<Edge>,
    handshake: Accept<TcpStream>,
    deadline: Instant,
) -> Option<TlsStream<TcpStream>> {
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
            debug!(%error, "a TLS handshake failed");
        })
        .ok()
}
