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
    let timeout = Duration::from_millis(edge.config.device_drain_timeout_ms);
    let all = links(edge);
    for links in all.chunks(batch_size(
        all.len(),
        edge.config.device_drain_per_s,
        timeout,
    )) {
        links.iter().for_each(|link| link.drain());
        sleep(Duration::from_secs(1) / BATCHES_PER_S).await;
    }
    drop(all);
    // A device that is never without a call takes no new ones for the last third of the time.
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

/// How many devices are told at once: by the configured rate, or as many as it takes to tell
/// all of them in half of the time.
fn batch_size(devices: usize, per_s: u32, timeout: Duration) -> usize {
    let batches = (timeout / 2).as_millis() * u128::from(BATCHES_PER_S) / 1000;
    let needed = devices.div_ceil(usize::try_from(batches).unwrap_or(usize::MAX).max(1));
    needed.max(per_s.div_ceil(BATCHES_PER_S) as usize).max(1)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_devices_are_told_in_half_of_the_time() {
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
