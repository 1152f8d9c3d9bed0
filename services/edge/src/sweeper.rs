//! Background tasks over all connections, instead of timers in each: silent devices, stalled
//! sockets, incomplete frames, expired calls, expired and revoked tokens.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use switchboard_bus::AccessChange;
use switchboard_protocol::outcome::Outcome;
use switchboard_runtime::clock::unix_time;
use tokio::time::MissedTickBehavior;

use crate::{
    edge::{Edge, millis},
    handle::{ConnectionHandle, Eviction},
};

/// Between two checks of all tokens: many deletions of keys and suspensions cost one check.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// How long a registered connection keeps the directory's entry when its device has a newer
/// connection that does not register.
pub(crate) const JOIN_TIMEOUT: Duration = Duration::from_secs(2);

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

/// Closes the connections whose token is no longer accepted until the edge stops: a revoked one,
/// one of a deleted key, or one of a suspended organisation.
pub(crate) async fn watch_revocations(edge: Arc<Edge>) {
    let mut changes = edge.bus.access_changes();
    let recheck = |handle: &Arc<ConnectionHandle>| {
        if let Err(error) = edge.bus.recheck(&handle.token()) {
            handle.evict(error.into());
        }
    };
    let watch = async {
        while let Some(change) = changes.next().await {
            match change {
                AccessChange::Revoked(token) => {
                    edge.connections.for_each_with_token(token, recheck);
                }
                AccessChange::Any => {
                    edge.connections.for_each(recheck);
                    tokio::time::sleep(CHECK_INTERVAL).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = edge.tasks.stopping() => {}
        () = watch => {}
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
    let sweeps = sweeps_within(JOIN_TIMEOUT, edge.config.sweep_interval());
    edge.connections
        .for_each_joining(|handle| handle.count_sweep(sweeps));
    edge.metrics.in_flight.set(count(in_flight));
    edge.metrics.queued.set(count(queued));
    edge.admission.remove_full_buckets(now);
}

/// The number of sweeps in a time, at least one.
fn sweeps_within(time: Duration, interval: Duration) -> u8 {
    let sweeps = time.as_millis().div_ceil(interval.as_millis().max(1));
    u8::try_from(sweeps).unwrap_or(u8::MAX).max(1)
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
    } else if handle.incomplete_ms(now_ms) > edge.config.device_frame_timeout_ms {
        Some(Eviction::SlowFrame)
    } else if handle.token().expires_at <= unix_s {
        Some(Eviction::Expired)
    } else {
        None
    }
}
