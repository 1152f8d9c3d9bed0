//! How asynchronous and queued calls end, and how their ends are written to the database.
//!
//! Invariant: a known end is retried until it is written or the process stops.

use std::time::Duration;

use bytes::Bytes;
use switchboard_bus::{Answer, BusError, LiveEvent};
use switchboard_protocol::{
    id::CallId,
    outcome::{Delivered, Outcome, Refusal},
};
use switchboard_runtime::{backoff::Backoff, shutdown::Shutdown};
use switchboard_store::{CallAttempt, CallEnd, CallVia, ClosedCall, OverdueCalls, StoreError};

use crate::{
    Gateway,
    calls::{idempotency::with_timeout, milliseconds, response::default_refusal},
};

/// Limits one attempt to write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The end of a call that was queued for too long.
pub(in crate::calls) fn expired() -> CallEnd {
    let outcome = Outcome::Expired;
    refused(outcome, Delivered::No, &default_refusal(outcome).detail)
}

/// The end of a call that was cancelled while it was queued.
pub(in crate::calls) fn cancelled() -> CallEnd {
    let detail = "The call was cancelled while it was queued; the device did not receive it.";
    refused(Outcome::Cancelled, Delivered::No, detail)
}

/// The end of a call that was sent and has no outcome long after its deadline.
pub(in crate::calls) fn lost() -> CallEnd {
    let detail = "No outcome arrived after the call was sent; it is not sent again.";
    refused(Outcome::Lost, Delivered::Unknown, detail)
}

/// The end of a call in flight in a gateway that was stopped.
pub(super) fn aborted() -> CallEnd {
    let detail = "The node that made the call stopped while it was in flight; the device may have executed it.";
    refused(Outcome::Lost, Delivered::Unknown, detail)
}

/// The end of an accepted call that the bus did not take.
pub(super) fn not_sent(error: &BusError) -> CallEnd {
    tracing::warn!(%error, "call not sent: the bus is unavailable");
    let detail = "The devices could not be reached; nothing was sent.";
    refused(Outcome::Lost, Delivered::No, detail)
}

pub(super) fn from_answer(answer: Answer) -> CallEnd {
    CallEnd {
        outcome: answer.outcome,
        delivered: answer.delivered,
        answer: answer.body.into(),
        result_valid: answer.result_valid,
    }
}

fn refused(outcome: Outcome, delivered: Delivered, detail: &str) -> CallEnd {
    let refusal = Refusal {
        detail: detail.to_owned(),
        errors: Vec::new(),
    };
    CallEnd {
        outcome,
        delivered,
        answer: serde_json::to_vec(&refusal).unwrap_or_default(),
        result_valid: true,
    }
}

/// The reason why a call ended without a result.
pub(in crate::calls) fn refusal(end: &CallEnd) -> Refusal {
    let answer = Answer {
        outcome: end.outcome,
        delivered: end.delivered,
        body: Bytes::copy_from_slice(&end.answer),
        result_valid: end.result_valid,
    };
    let refusal = answer.refusal();
    refusal.unwrap_or_else(|| default_refusal(end.outcome))
}

/// Counts calls that the database has ended, and shows them to those who watch their organisations.
pub(in crate::calls) fn record_overdue(gateway: &Gateway, ended: &OverdueCalls) {
    let (expired_calls, lost_calls) = (ended.expired.len(), ended.lost.len());
    gateway.metrics.count_overdue(expired_calls, lost_calls);
    for (calls, end) in [(&ended.expired, expired()), (&ended.lost, lost())] {
        for call in calls {
            record_closed(gateway, call, &end);
        }
    }
}

/// Shows the end of a call that its device has not answered.
pub(in crate::calls) fn record_closed(gateway: &Gateway, call: &ClosedCall, end: &CallEnd) {
    gateway
        .bus
        .record_live(call.device.org, || LiveEvent::CallEnded {
            device_id: call.device.device.clone(),
            service: call.service.clone(),
            outcome: end.outcome.as_str(),
            delivered: end.delivered,
            elapsed_ms: milliseconds(call.elapsed),
            call_id: Some(call.id),
            journal_id: None,
            via: CallVia::Rest.as_str(),
        });
}

/// Writes the end of a call, however long the database is unavailable, until `shutdown` stops.
pub(super) async fn store(
    gateway: &Gateway,
    shutdown: &Shutdown,
    attempt: CallAttempt,
    end: &CallEnd,
) {
    let call = attempt.call;
    let write = || gateway.store.end_call(attempt, end);
    match retry(shutdown, call, write).await {
        Some(true) => {}
        Some(false) => tracing::warn!(
            call.id = %call,
            call.outcome = end.outcome.as_str(),
            "the end of a call was not stored: the call was overdue and is already `lost`"
        ),
        None => tracing::error!(
            call.id = %call,
            call.outcome = end.outcome.as_str(),
            "the end of a call could not be stored; the call will be `lost`"
        ),
    }
}

/// Returns an undelivered call to its queue, which is postponed by `backoff`. Retries as
/// [`store`] does.
pub(super) async fn requeue(
    gateway: &Gateway,
    shutdown: &Shutdown,
    attempt: CallAttempt,
    backoff: Duration,
) {
    let call = attempt.call;
    let write = || gateway.store.requeue_call(attempt, backoff);
    if retry(shutdown, call, write).await != Some(true) {
        tracing::error!(
            call.id = %call,
            "an undelivered call could not be returned to its queue; it will be `lost`"
        );
    }
}

/// Repeats a write until the database answers. `None` if it failed or `shutdown` stopped.
async fn retry<F>(shutdown: &Shutdown, call: CallId, write: impl Fn() -> F) -> Option<bool>
where
    F: Future<Output = Result<bool, StoreError>>,
{
    let mut backoff = Backoff::new();
    // An attempt without a response may have been committed. The next one then changes nothing
    // and returns false, although the write succeeded.
    let mut unanswered = false;
    loop {
        match with_timeout(WRITE_TIMEOUT, write()).await {
            Ok(written) => return Some(written || unanswered),
            Err(error) if error.is_unavailable() => {
                if !unanswered {
                    unanswered = true;
                    tracing::warn!(
                        call.id = %call,
                        error = error.report(),
                        "the state of a call cannot be written; retrying until the database is available"
                    );
                }
            }
            Err(error) => {
                let error = error.report();
                tracing::error!(call.id = %call, error, "the state of a call could not be written");
                return None;
            }
        }
        if !backoff.pause_until_stopped(shutdown).await {
            return None;
        }
    }
}
