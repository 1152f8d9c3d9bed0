//! Queued calls on their way to a device: its queue is emptied, first in, first out, while the device is there.
//! Never: two calls of one queue under way at once, or a call sent that does not stand as sent on record.

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
    span_from,
    trace::{self, Incoming},
};
use switchboard_store::{Claim, ClaimedCall};
use tracing::{Instrument as _, Span};

use super::{Attempt, CallRequest, ending};
use crate::Gateway;

/// How long a queue is put aside after a call that was not delivered, unless its device comes anew; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The queues that this gateway is at. Bounded by the permits for calls under way.
#[derive(Debug, Default)]
pub(crate) struct Dispatch(Mutex<HashMap<DeviceKey, Option<Look>>>);

/// How a queue is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    /// Unless it is put aside.
    IfDue,
    /// Although it may be: its device has just come.
    Anyway,
}

/// Sees to it that a device's queue is looked at from now on, here or where it is being emptied already. Does not wait.
pub(super) fn wake(gateway: &Arc<Gateway>, device: DeviceKey, how: Look) {
    let kept = &gateway.kept;
    if kept.shutdown.is_draining() {
        return;
    }
    let mut queues = kept.dispatch.0.lock();
    match queues.entry(device) {
        // It is looked at once more when it seems to be done.
        Entry::Occupied(mut busy) => {
            let again = busy.get_mut();
            *again = Some(how).max(*again);
        }
        Entry::Vacant(idle) => {
            // Without a permit the next sweep comes by again.
            let Ok(permit) = Arc::clone(&kept.permits).try_acquire_owned() else {
                return;
            };
            let device = idle.key().clone();
            idle.insert(None);
            let gateway = Arc::clone(gateway);
            // It is no part of the request that woke it: others' calls wait there too.
            kept.shutdown.spawn_in(Span::none(), async move {
                work_off(&gateway, &device, how).await;
                drop(permit);
            });
        }
    }
}

async fn work_off(gateway: &Arc<Gateway>, device: &DeviceKey, mut how: Look) {
    loop {
        empty(gateway, device, how).await;
        let mut queues = gateway.kept.dispatch.0.lock();
        match queues.get_mut(device).and_then(Option::take) {
            Some(again) => how = again,
            None => {
                queues.remove(device);
                return;
            }
        }
    }
}

/// Makes one call after the other until none waits, or the device cannot take them.
async fn empty(gateway: &Arc<Gateway>, device: &DeviceKey, how: Look) {
    let mut anyway = how == Look::Anyway;
    while !gateway.kept.shutdown.is_draining() && is_there(gateway, device).await {
        // The device's time runs on record from here on, so it does here.
        let started = Instant::now();
        match gateway.store.claim_call(device, anyway).await {
            Ok(Claim::Call(call)) => {
                if !deliver(gateway, call, started).await {
                    return;
                }
                anyway = true;
            }
            // Whoever is at it goes on with the next one.
            Ok(Claim::Busy | Claim::Empty) => return,
            Err(error) => {
                tracing::warn!(
                    device.key = %device,
                    error = error.report(),
                    "a queue of calls cannot be read; it is looked at again in a moment"
                );
                return;
            }
        }
    }
}

/// Whether the device is connected and has said what it can do.
async fn is_there(gateway: &Gateway, device: &DeviceKey) -> bool {
    let found = gateway.bus.find(device).await;
    matches!(found, Ok(Some(presence)) if presence.digest.is_some())
}

/// Sends a call that stands as sent, and puts on record what became of it; false when it is back in its queue.
async fn deliver(gateway: &Gateway, call: ClaimedCall, started: Instant) -> bool {
    let beginning = trace::begin(Incoming::Nothing);
    let span = span_from!(beginning, "call.queued", switchboard.call.id = %call.id);
    make(gateway, call, started).instrument(span).await
}

async fn make(gateway: &Gateway, call: ClaimedCall, started: Instant) -> bool {
    let shutdown = &gateway.kept.shutdown;
    let (id, number) = (call.id, call.attempt);
    let attempt = attempt(call, started);
    let in_flight = gateway.metrics.begin(attempt.device.org);
    let answer = tokio::select! {
        answer = attempt.send(gateway, None) => answer,
        () = shutdown.stopping() => {
            in_flight.settle(Outcome::Lost);
            ending::record(gateway, shutdown, (id, number), &ending::cut_short()).await;
            return false;
        }
    };
    match answer {
        Ok(answer) if !waits_on(&answer) => {
            in_flight.settle(answer.outcome);
            ending::record(gateway, shutdown, (id, number), &ending::of(answer)).await;
            true
        }
        answer => {
            in_flight.put_back();
            if let Err(error) = answer {
                tracing::warn!(%error, call.id = %id, "a queued call waits on because the bus is away");
            }
            ending::put_back(gateway, shutdown, (id, number), pause(number)).await;
            false
        }
    }
}

/// Whether a call that ended so was certainly not delivered, and may be another time.
fn waits_on(answer: &Answer) -> bool {
    answer.delivered == Delivered::No
        && !matches!(answer.outcome, Outcome::Invalid | Outcome::UnknownService)
}

fn pause(attempt: i32) -> Duration {
    let doublings = attempt.saturating_sub(1).clamp(0, 16).unsigned_abs();
    FIRST_PAUSE
        .saturating_mul(1 << doublings)
        .min(LONGEST_PAUSE)
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
        handle: None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn only_what_was_not_delivered_waits_on() {
        fn check(outcome: Outcome, delivered: Delivered, expected: bool) {
            let answer = Answer {
                outcome,
                delivered,
                body: Bytes::new(),
            };
            assert_eq!(waits_on(&answer), expected, "{outcome:?} {delivered:?}");
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
    fn pauses_grow_to_a_bound() {
        let seconds: Vec<u64> = [0, 1, 2, 3, 7, 100, i32::MAX]
            .map(|attempt| pause(attempt).as_secs())
            .into();
        assert_eq!(seconds, [1, 1, 2, 4, 60, 60, 60]);
    }
}
