//! Dispatch of queued calls: sends the calls of one device's queue, in order, while the device is
//! connected.
//!
//! Invariant: at most one call of a queue is in flight, and a call is stored as sent before it is
//! sent.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use switchboard_bus::Answer;
use switchboard_protocol::{
    id::DeviceKey,
    outcome::{Delivered, Outcome},
};
use switchboard_runtime::{
    budget::{Exhausted, Owner},
    span_from,
    trace::{self, Incoming},
};
use switchboard_store::{CallClaim, ClaimedCall};
use tracing::{Instrument as _, Span};

use super::completion;
use crate::{
    Gateway,
    calls::{Attempt, CallRequest},
};

/// How long a queue is postponed after a call that was not delivered, unless its device connects
/// again. Doubled with each attempt.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// The queues that this gateway is dispatching, each with a pending wake-up. Bounded by the
/// slots for queues.
#[derive(Debug, Default)]
pub(crate) struct ActiveQueues(Mutex<HashMap<DeviceKey, Option<WakeMode>>>);

/// Whether a wake-up respects the backoff of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WakeMode {
    /// Dispatch unless the queue is postponed.
    IfDue,
    /// Dispatch even if the queue is postponed: its device has just connected.
    Immediate,
}

/// Dispatches a device's queue in the background, or lets the task that is dispatching it look
/// again. Without a slot the queue is woken when one is free.
pub(super) fn wake(gateway: &Arc<Gateway>, device: DeviceKey, mode: WakeMode) {
    let org = device.org;
    if try_wake(gateway, device, mode).is_err() {
        gateway.async_calls.refused_queues.add(org, mode);
    }
}

/// Like [`wake`], for a queue that its caller wakes again.
///
/// # Errors
/// When no slot is free.
pub(super) fn try_wake(
    gateway: &Arc<Gateway>,
    device: DeviceKey,
    mode: WakeMode,
) -> Result<(), Exhausted> {
    let async_calls = &gateway.async_calls;
    if async_calls.shutdown.is_draining() {
        return Ok(());
    }
    let mut queues = async_calls.active_queues.0.lock();
    match queues.entry(device) {
        Entry::Occupied(mut active) => {
            let pending = active.get_mut();
            *pending = Some(mode).max(*pending);
        }
        Entry::Vacant(idle) => {
            let owner = Owner::Org(idle.key().org.uuid());
            let slot = async_calls.queue_slots.try_acquire(owner, 1)?;
            let device = idle.key().clone();
            idle.insert(None);
            let gateway = Arc::clone(gateway);
            // Not a child of the current span: the queue also holds calls of other requests.
            async_calls.shutdown.spawn_in(Span::none(), async move {
                dispatch(&gateway, &device, mode).await;
                drop(slot);
                gateway.async_calls.refused_queues.slot_freed();
            });
        }
    }
    Ok(())
}

async fn dispatch(gateway: &Arc<Gateway>, device: &DeviceKey, mut mode: WakeMode) {
    loop {
        drain_queue(gateway, device, mode).await;
        let mut queues = gateway.async_calls.active_queues.0.lock();
        match queues.get_mut(device).and_then(Option::take) {
            Some(pending) => mode = pending,
            None => {
                queues.remove(device);
                return;
            }
        }
    }
}

/// Sends one call after the other until the queue is empty or the device cannot take them.
async fn drain_queue(gateway: &Arc<Gateway>, device: &DeviceKey, mode: WakeMode) {
    let mut ignore_backoff = mode == WakeMode::Immediate;
    while !gateway.async_calls.shutdown.is_draining() && is_callable(gateway, device).await {
        // The database counts the timeout of the call from the claim on.
        let started = Instant::now();
        match gateway.store.claim_call(device, ignore_backoff).await {
            Ok(CallClaim::Call(call)) => {
                if !deliver(gateway, call, started).await {
                    return;
                }
                ignore_backoff = true;
            }
            // Another gateway that has claimed a call continues with the next one.
            Ok(CallClaim::Busy | CallClaim::Empty) => return,
            Err(error) => {
                tracing::warn!(
                    device.key = %device,
                    error = error.report(),
                    "a queue of calls could not be read; the next sweep retries"
                );
                return;
            }
        }
    }
}

/// Whether the device is connected and has registered its services, and its organisation is not
/// suspended.
async fn is_callable(gateway: &Gateway, device: &DeviceKey) -> bool {
    if gateway.bus.is_suspended(device.org) {
        return false;
    }
    let found = gateway.bus.find(device).await;
    matches!(found, Ok(Some(presence)) if presence.digest.is_some())
}

/// Sends a claimed call and stores its end. Returns false if the call is back in its queue.
async fn deliver(gateway: &Gateway, call: ClaimedCall, started: Instant) -> bool {
    let parent = trace::start(Incoming::Nothing);
    let span = span_from!(parent, "call.queued", switchboard.call.id = %call.id);
    send(gateway, call, started).instrument(span).await
}

async fn send(gateway: &Gateway, call: ClaimedCall, started: Instant) -> bool {
    let shutdown = &gateway.async_calls.shutdown;
    let (stored, number) = (call.attempt(), call.attempt);
    let attempt = attempt(call, started);
    let Ok(_params) = gateway.async_calls.reserve_params(&attempt) else {
        completion::requeue(gateway, shutdown, stored, backoff(number)).await;
        return false;
    };
    let in_flight = gateway
        .metrics
        .begin_call(&attempt.device, &attempt.request.service);
    let answer = tokio::select! {
        answer = attempt.send(gateway, None) => answer,
        () = shutdown.stopping() => {
            in_flight.complete(Outcome::Lost);
            let end = completion::aborted();
            attempt.record_end(gateway, (end.outcome.as_str(), end.delivered), None);
            completion::store(gateway, shutdown, stored, &end).await;
            return false;
        }
    };
    match answer {
        Ok(answer) if !should_requeue(&answer) => {
            in_flight.complete(answer.outcome);
            attempt.record_end(gateway, (answer.outcome.as_str(), answer.delivered), None);
            let end = completion::from_answer(answer);
            gateway
                .result_stored(attempt.device.org, end.answer.len())
                .await;
            completion::store(gateway, shutdown, stored, &end).await;
            true
        }
        answer => {
            in_flight.requeued();
            if let Err(error) = answer {
                tracing::warn!(
                    %error,
                    call.id = %stored.call,
                    "a queued call was not sent and stays queued: the bus is unavailable"
                );
            }
            completion::requeue(gateway, shutdown, stored, backoff(number)).await;
            false
        }
    }
}

/// Whether a call was certainly not delivered and may be delivered by another attempt.
fn should_requeue(answer: &Answer) -> bool {
    answer.delivered == Delivered::No
        && !matches!(answer.outcome, Outcome::Invalid | Outcome::UnknownService)
}

fn backoff(attempt: i32) -> Duration {
    let doublings = attempt.saturating_sub(1).clamp(0, 16).unsigned_abs();
    let backoff = MIN_BACKOFF.saturating_mul(1 << doublings);
    backoff.min(MAX_BACKOFF)
}

fn attempt(call: ClaimedCall, started: Instant) -> Attempt {
    Attempt {
        id: call.id,
        device: call.device,
        request: CallRequest {
            service: call.service.into(),
            params: call.params.into(),
            input: call.input.into(),
            timeout: call.timeout,
        },
        started,
        cancel_key: None,
        origin: None,
        registration: None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn only_undelivered_call_is_requeued() {
        fn check(outcome: Outcome, delivered: Delivered, expected: bool) {
            let answer = Answer {
                outcome,
                delivered,
                body: Bytes::new(),
                result_valid: true,
            };
            assert_eq!(
                should_requeue(&answer),
                expected,
                "{outcome:?} {delivered:?}"
            );
        }
        for outcome in Outcome::ALL {
            check(outcome, Delivered::Unknown, false);
            check(outcome, Delivered::Yes, false);
        }
        check(Outcome::Offline, Delivered::No, true);
        check(Outcome::Overloaded, Delivered::No, true);
        check(Outcome::TimedOut, Delivered::No, true);
        check(Outcome::Invalid, Delivered::No, false);
        check(Outcome::UnknownService, Delivered::No, false);
    }

    #[test]
    fn backoff_doubles_up_to_its_maximum() {
        let seconds: Vec<u64> = [0, 1, 2, 3, 7, 100, i32::MAX]
            .map(|attempt| backoff(attempt).as_secs())
            .into();
        assert_eq!(seconds, [1, 1, 2, 4, 60, 60, 60]);
    }
}
