//! Letting all devices go, so that they reconnect elsewhere without a storm and no call is lost.
//! Never: a wait without an end.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout_at};
use tracing::{info, warn};

use crate::{edge::Edge, link::Link};

/// Devices are told in ten batches per second.
const BATCHES_PER_S: u32 = 10;
/// What closing may take after the last connection was told to.
const CLOSING: Duration = Duration::from_secs(3);

/// Tells every device to go, at a bounded rate; waits for those with calls under way; closes the
/// rest when the time is over, or at once when the process is to stop.
pub(crate) async fn drain(edge: &Edge) {
    info!(connections.held = edge.table.len(), "the edge drains");
    tokio::select! {
        biased;
        () = edge.connections.stopping() => {}
        () = part(edge) => {}
    }
    let left = links(edge);
    if !left.is_empty() {
        warn!(
            connections.held = left.len(),
            "the edge closes devices that still have calls"
        );
    }
    left.iter().for_each(|link| link.stop());
    if !edge.connections.finished(CLOSING).await {
        warn!(
            connections.tasks = edge.connections.tasks(),
            "connections were left unfinished"
        );
    }
}

async fn part(edge: &Edge) {
    let batch = edge.config.device_drain_per_s.div_ceil(BATCHES_PER_S) as usize;
    for links in links(edge).chunks(batch) {
        links.iter().for_each(|link| link.drain());
        sleep(Duration::from_secs(1) / BATCHES_PER_S).await;
    }
    // A device that is never without a call takes no new ones for the last third of the time.
    let timeout = Duration::from_millis(edge.config.device_drain_timeout_ms);
    let told = Instant::now();
    if timeout_at(told + timeout * 2 / 3, emptied(edge))
        .await
        .is_err()
    {
        links(edge).iter().for_each(|link| link.finish());
        // The caller of this closes whatever is left by then.
        let _ = timeout_at(told + timeout, emptied(edge)).await;
    }
}

async fn emptied(edge: &Edge) {
    while edge.connections.tasks() > 0 {
        // A device that was being taken in when draining began may come late.
        links(edge).iter().for_each(|link| link.drain());
        sleep(Duration::from_millis(20)).await;
    }
}

fn links(edge: &Edge) -> Vec<Arc<Link>> {
    let mut links = Vec::with_capacity(edge.table.len());
    edge.table.each(|link| links.push(Arc::clone(link)));
    links
}
