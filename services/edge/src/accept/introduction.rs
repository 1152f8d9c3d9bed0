//! A connection that a balancer passes on: whose it is, and whether that device may come in.
//! Never: a header asked of a device, or taken from one.

use std::sync::Arc;

use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};
use tracing::debug;

use super::{
    Admitted,
    proxy_header::{self, Origin},
    turn_away,
};

/// The connection behind its PROXY header, from here on the device's; none when there is nothing to serve.
pub(super) async fn introduce(
    mut stream: TcpStream,
    mut admitted: Admitted,
    deadline: Instant,
) -> Option<(TcpStream, Admitted)> {
    let edge = Arc::clone(admitted.edge());
    let header = tokio::select! {
        biased;
        () = edge.connections.draining() => return None,
        header = proxy_header::take(&mut stream, deadline) => {
            header.map(|origin| origin.said_by(admitted.address()))
        }
    };
    let label = header
        .as_ref()
        .map_or_else(|error| error.label(), |origin| origin.label());
    edge.metrics.proxy_headers.with_label_values(&[label]).inc();
    match header {
        Ok(Origin::Text(device) | Origin::Binary(device)) => match admitted.introduce(device) {
            Ok(()) => Some((stream, admitted)),
            Err(limit) => {
                turn_away(&edge, &stream, limit);
                None
            }
        },
        Ok(Origin::Balancer) => speaks(&stream, &admitted, deadline)
            .await
            .then_some((stream, admitted)),
        Err(error) => {
            let cause = &error as &dyn std::error::Error;
            debug!(balancer.address = %admitted.address(), reason = label, cause,
                "a connection from a balancer was closed");
            None
        }
    }
}

/// Whether anything comes. A balancer that only looks whether the edge is there says nothing, and leaves no trace.
async fn speaks(stream: &TcpStream, admitted: &Admitted, deadline: Instant) -> bool {
    let mut first = [0];
    tokio::select! {
        biased;
        () = admitted.edge().connections.draining() => false,
        seen = timeout_at(deadline, stream.peek(&mut first)) => matches!(seen, Ok(Ok(1))),
    }
}
