//! Background tasks over all connections, instead of timers in each: silent devices, stalled
//! sockets, expired calls, expired and revoked tokens.

use std::{sync::Arc, time::Instant};

use switchboard_protocol::outcome::Outcome;
use switchboard_runtime::clock::unix_time;
use tokio::{sync::broadcast::error::RecvError, time::MissedTickBehavior};

use crate::{
    edge::{Edge, millis},
    handle::{ConnectionHandle, Eviction},
};

/// Sweeps all connections at [`crate::Config::sweep_interval`] until the edge stops.
pub(crate) async fn run_sweeps(edge: Arc<Edge>) {
    let mut ticks = tokio::time::interval(edge.config.sweep_interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = edge.tasks.stopping() => return,
            _ = ticks.tick() => sweep(&edge),
        }
    }
}

/// Closes the connections of revoked tokens until the edge stops.
pub(crate) async fn watch_revocations(edge: Arc<Edge>) {
    let mut revoked = edge.bus.revocations();
    loop {
        let next = tokio::select! {
            biased;
            () = edge.tasks.stopping() => return,
            next = revoked.recv() => next,
        };
        match next {
            // Every token is checked, so a missed notification makes no difference.
            Ok(_) | Err(RecvError::Lagged(_)) => edge.connections.for_each(|handle| {
                if edge.bus.is_revoked(handle.token) {
                    handle.evict(Eviction::Revoked);
                }
            }),
            Err(RecvError::Closed) => return,
        }
    }
}

fn sweep(edge: &Edge) {
    let (now, now_ms, unix_s) = (Instant::now(), edge.now_ms(), unix_time().as_secs());
    let heartbeat_ms = millis(edge.config.heartbeat());
    let (mut in_flight, mut queued) = (0, 0);
    edge.connections.for_each(|handle| {
        if let Some(eviction) = eviction_due(edge, handle, now_ms, unix_s) {
            handle.evict(eviction);
        } else if handle.silent_ms(now_ms) > heartbeat_ms {
            handle.ping();
        }
        let expired = handle.expire_calls(now);
        in_flight += expired.in_flight;
        queued += expired.queued;
        for call in expired.calls {
            let detail = "The device did not answer in time.";
            edge.fail_call(&call, Outcome::TimedOut, detail);
        }
    });
    let count = |calls: usize| i64::try_from(calls).unwrap_or(i64::MAX);
    edge.metrics.in_flight.set(count(in_flight));
    edge.metrics.queued.set(count(queued));
    edge.admission.remove_full_buckets(now);
}

fn eviction_due(
    edge: &Edge,
    handle: &ConnectionHandle,
    now_ms: u64,
    unix_s: u64,
) -> Option<Eviction> {
    if handle.silent_ms(now_ms) > millis(edge.config.idle_timeout()) {
        Some(Eviction::Idle)
    } else if handle.stalled_ms(now_ms) > edge.config.device_write_stall_ms {
        Some(Eviction::SlowReader)
    } else if handle.token_expires_at_s <= unix_s {
        Some(Eviction::Expired)
    } else {
        None
    }
}
