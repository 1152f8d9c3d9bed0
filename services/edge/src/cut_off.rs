//! Sends devices to other edges while this one is cut off from the bus.

use std::{convert::Infallible, future::pending, sync::Arc, time::Duration};

use switchboard_runtime::outbound::Probe;
use tokio::time::sleep;
use tracing::{error, info, warn};

use crate::{drain, edge::Edge};

const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Successive checks that find this edge cut off and another one ready, before devices are sent there.
/// They take longer than nodes differ in noticing that Redis is down, and in reconnecting when it is
/// back.
const MIN_CHECKS: u32 = 5;
/// How long the readiness URL may take to answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// How soon an edge that is connected again sends no further GOAWAY.
const RECONNECT_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long a device may take to dial and to register, after the time that GOAWAY asks it to wait.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Watches whether this edge is cut off until it drains.
///
/// Without the bus no call reaches the devices of this edge. After 5 s it is not ready, and no
/// balancer sends it devices, but those that it has would stay. They receive GOAWAY at the rate of a
/// drain if another edge is ready: if `edge_readiness_url`, an address of all ready edges, answers.
/// Those that have not followed it a few seconds later are closed, for they may wait for that.
/// While Redis itself is down, no edge is ready, and every device stays.
///
/// When the edge is connected again, no device is sent away any more. A device that has received GOAWAY
/// may still follow it, without losing a call.
pub(crate) async fn watch(edge: Arc<Edge>) {
    let Some(url) = &edge.config.edge_readiness_url else {
        return;
    };
    let other_edges = match Probe::new(url.clone()) {
        Ok(probe) => probe,
        Err(error) => {
            error!(%error, "no probe of other edges: devices stay while this edge is cut off");
            return;
        }
    };
    tokio::select! {
        biased;
        () = edge.tasks.draining() => {}
        () = keep_callable(&edge, &other_edges) => {}
    }
}

async fn keep_callable(edge: &Edge, other_edges: &Probe) {
    loop {
        other_edge_needed(edge, other_edges).await;
        warn!(
            connections.open = edge.connections.len(),
            "cut off from the bus, and another edge is ready: sending devices there"
        );
        tokio::select! {
            biased;
            () = reconnected(edge) => {}
            never = send_away(edge) => match never {}
        }
        info!(
            connections.open = edge.connections.len(),
            "connected to the bus again"
        );
        edge.connections.for_each(|handle| handle.recall());
        sleep(follow_timeout(edge)).await;
        edge.connections.for_each(|handle| handle.stay());
    }
}

fn is_cut_off(edge: &Edge) -> bool {
    !edge.bus.health().ready
}

/// Waits until this edge is cut off, and another one has been ready for a while.
async fn other_edge_needed(edge: &Edge, other_edges: &Probe) {
    let mut checks = 0;
    while checks < MIN_CHECKS {
        sleep(CHECK_INTERVAL).await;
        let is_needed = is_cut_off(edge)
            && edge.connections.len() > 0
            && other_edges.is_ok(PROBE_TIMEOUT).await;
        checks = if is_needed { checks + 1 } else { 0 };
    }
}

async fn reconnected(edge: &Edge) {
    while is_cut_off(edge) {
        sleep(RECONNECT_POLL_INTERVAL).await;
    }
}

async fn send_away(edge: &Edge) -> Infallible {
    drain::ask_to_move(edge, true).await;
    sleep(follow_timeout(edge)).await;
    edge.connections.for_each(|handle| handle.drain(false));
    pending().await
}

/// How long devices that were sent GOAWAY may take to register elsewhere.
fn follow_timeout(edge: &Edge) -> Duration {
    let wait = Duration::from_millis(edge.config.device_retry_within_ms.into());
    wait + DIAL_TIMEOUT
}
