//! Looks after all connections at once, instead of a timer in each: silence, sockets that take
//! nothing, calls out of time, tokens that are no longer good.
//! Never: I/O on a connection; its own task closes it.

use std::{sync::Arc, time::Instant};

use switchboard_protocol::outcome::Outcome;
use switchboard_runtime::clock::unix_time;
use tokio::{sync::broadcast::error::RecvError, time::MissedTickBehavior};

use crate::{
    edge::{Edge, millis},
    link::{Eviction, Link},
};

/// Sweeps until the edge stops.
pub(crate) async fn sweep(edge: Arc<Edge>) {
    let mut ticks = tokio::time::interval(edge.config.sweep_interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = edge.connections.stopping() => return,
            _ = ticks.tick() => look_over(&edge),
        }
    }
}

/// Closes the connections of every token as it is revoked, until the edge stops.
pub(crate) async fn revocations(edge: Arc<Edge>) {
    let mut revoked = edge.bus.revocations();
    loop {
        let next = tokio::select! {
            biased;
            () = edge.connections.stopping() => return,
            next = revoked.recv() => next,
        };
        match next {
            // Having missed some makes no difference: every token is asked for.
            Ok(_) | Err(RecvError::Lagged(_)) => edge.table.each(|link| {
                if edge.bus.is_revoked(link.token) {
                    link.evict(Eviction::Revoked);
                }
            }),
            Err(RecvError::Closed) => return,
        }
    }
}

fn look_over(edge: &Edge) {
    let (now, now_ms, unix_s) = (Instant::now(), edge.now_ms(), unix_time().as_secs());
    let heartbeat_ms = millis(edge.config.heartbeat());
    let (mut in_flight, mut queued) = (0, 0);
    edge.table.each(|link| {
        if let Some(eviction) = overdue(edge, link, now_ms, unix_s) {
            link.evict(eviction);
        } else if link.silent_ms(now_ms) > heartbeat_ms {
            link.ask();
        }
        let expired = link.expire(now);
        in_flight += expired.in_flight;
        queued += expired.waiting;
        for call in expired.calls {
            edge.give_up(
                &call,
                Outcome::TimedOut,
                "The device did not answer in time.",
            );
        }
    });
    let count = |calls: usize| i64::try_from(calls).unwrap_or(i64::MAX);
    edge.metrics.in_flight.set(count(in_flight));
    edge.metrics.queued.set(count(queued));
    edge.admission.forget(now);
}

fn overdue(edge: &Edge, link: &Link, now_ms: u64, unix_s: u64) -> Option<Eviction> {
    if link.silent_ms(now_ms) > millis(edge.config.idle_limit()) {
        Some(Eviction::Idle)
    } else if link.stalled_ms(now_ms) > edge.config.device_write_stall_ms {
        Some(Eviction::SlowReader)
    } else if link.token_expires_at_s <= unix_s {
        Some(Eviction::Expired)
    } else {
        None
    }
}
