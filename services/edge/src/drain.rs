//! Drains the edge: moves all devices elsewhere at a bounded rate, without losing a call.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout_at};
use tracing::{info, warn};

use crate::{edge::Edge, handle::ConnectionHandle};

const BATCH_INTERVAL: Duration = Duration::from_millis(100);
/// How often the edge checks whether all connections have closed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long connections may take to close after they were all asked to.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Sends GOAWAY to all devices at a bounded rate. Waits until they have registered at another edge, or
/// for those with calls in flight if there is none. Closes the rest when the time is over, or at once
/// when the process stops.
pub(crate) async fn drain(edge: &Edge) {
    info!(
        connections.open = edge.connections.len(),
        "draining device connections"
    );
    tokio::select! {
        biased;
        () = edge.tasks.stopping() => {}
        () = drain_gradually(edge) => {}
    }
    let left = handles(edge);
    if !left.is_empty() {
        warn!(
            connections.open = left.len(),
            "drain timeout: closing devices that still have calls"
        );
    }
    left.iter().for_each(|handle| handle.stop());
    if !edge.tasks.finished(CLOSE_TIMEOUT).await {
        warn!(
            connections.tasks = edge.tasks.tasks(),
            "connection tasks did not end in time"
        );
    }
}

async fn drain_gradually(edge: &Edge) {
    let timeout = Duration::from_millis(edge.config.device_drain_timeout_ms);
    let other_edge_accepts = edge.bus.other_edges() > 0;
    edge.bus.set_accepting(false);
    ask_to_move(edge, other_edge_accepts).await;
    let notified = Instant::now();
    let closed = timeout_at(
        notified + timeout * 2 / 3,
        all_closed(edge, other_edge_accepts),
    )
    .await;
    if closed.is_err() {
        finish_calls(edge, timeout).await;
        // After the timeout, the caller closes what is left.
        let _ = timeout_at(notified + timeout, all_closed(edge, other_edge_accepts)).await;
    }
}

/// A device under constant load would never be idle: it accepts no calls in the last third. Callers
/// wait for its next connection from then on.
async fn finish_calls(edge: &Edge, timeout: Duration) {
    let all = handles(edge);
    for handle in all.iter().filter(|handle| handle.withdraw()) {
        let (device, epoch) = (handle.key.clone(), handle.epoch);
        edge.bus.withdraw(device, epoch, timeout / 3);
    }
    // Until the directory has no entry of them, calls arrive.
    sleep(BATCH_INTERVAL).await;
    for handle in all {
        edge.return_calls(&handle.finish());
    }
}

/// Sends GOAWAY to all devices, at a bounded rate.
pub(crate) async fn ask_to_move(edge: &Edge, other_edge_accepts: bool) {
    let timeout = Duration::from_millis(edge.config.device_drain_timeout_ms);
    let all = handles(edge);
    let batch = batch_size(all.len(), edge.config.device_drain_per_s, timeout);
    for handles in all.chunks(batch) {
        for handle in handles {
            handle.drain(other_edge_accepts);
        }
        sleep(BATCH_INTERVAL).await;
    }
}

/// Devices per batch: at the configured rate, or as many as it takes to reach all of them in half
/// of the time.
fn batch_size(devices: usize, per_s: u32, timeout: Duration) -> usize {
    let batches_per_s = 1_000 / BATCH_INTERVAL.as_millis();
    let batches = (timeout / 2).as_millis() * batches_per_s / 1_000;
    let needed = devices.div_ceil(usize::try_from(batches).unwrap_or(usize::MAX).max(1));
    let batches_per_s = u32::try_from(batches_per_s).unwrap_or(u32::MAX);
    needed.max(per_s.div_ceil(batches_per_s) as usize).max(1)
}

async fn all_closed(edge: &Edge, other_edge_accepts: bool) {
    while edge.tasks.tasks() > 0 {
        // A handshake that was in progress when the drain began may add a connection late.
        for handle in handles(edge) {
            handle.drain(other_edge_accepts);
        }
        sleep(POLL_INTERVAL).await;
    }
}

fn handles(edge: &Edge) -> Vec<Arc<ConnectionHandle>> {
    let mut handles = Vec::with_capacity(edge.connections.len());
    edge.connections
        .for_each(|handle| handles.push(Arc::clone(handle)));
    handles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_size_reaches_all_devices_in_half_the_time() {
        fn check(devices: usize, per_s: u32, timeout_s: u64, expect: usize) {
            let timeout = Duration::from_secs(timeout_s);
            assert_eq!(
                batch_size(devices, per_s, timeout),
                expect,
                "{devices} {per_s} {timeout_s}"
            );
        }
        check(100, 500, 20, 50);
        check(20_000, 500, 20, 200);
        check(5, 1, 0, 5);
        check(0, 1, 20, 1);
    }
}
