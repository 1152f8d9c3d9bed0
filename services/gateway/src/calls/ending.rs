//! How calls end that nobody waits for, and how their ends come on record.
//! Never: an end that is given up while its process lives, or one that says more than is known.

use std::time::Duration;

use bytes::Bytes;
use switchboard_bus::{Answer, BusError};
use switchboard_protocol::{
    id::CallId,
    outcome::{Delivered, Outcome, Refusal},
};
use switchboard_runtime::{backoff::Backoff, shutdown::Shutdown};
use switchboard_store::{CallEnd, StoreError};

use super::{idempotency::within, reply::unexplained};
use crate::Gateway;

/// How long one attempt to write may take.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);

/// Waited too long.
pub(super) fn expired() -> CallEnd {
    plain(Outcome::Expired, Delivered::No)
}

/// Taken back while it waited.
pub(super) fn withdrawn() -> CallEnd {
    let detail = "The call was taken back while it waited; the device never saw it.";
    refused(Outcome::Cancelled, Delivered::No, detail)
}

/// Sent, and not heard of until long after its deadline.
pub(super) fn lost() -> CallEnd {
    let detail = "Nothing has been heard of this call since it was sent; it is not made again.";
    refused(Outcome::Lost, Delivered::Unknown, detail)
}

/// Its gateway was told to end at once while the call was under way.
pub(super) fn cut_short() -> CallEnd {
    let detail =
        "The node that made the call ended while it was under way; the device may have acted.";
    refused(Outcome::Lost, Delivered::Unknown, detail)
}

/// The bus did not take a call that was accepted.
pub(super) fn unsent(error: &BusError) -> CallEnd {
    tracing::warn!(%error, "a call was not sent because the bus is away");
    let detail = "The devices could not be reached; nothing was sent.";
    refused(Outcome::Lost, Delivered::No, detail)
}

pub(super) fn of(answer: Answer) -> CallEnd {
    CallEnd {
        outcome: answer.outcome,
        delivered: answer.delivered,
        answer: answer.body.into(),
    }
}

fn plain(outcome: Outcome, delivered: Delivered) -> CallEnd {
    refused(outcome, delivered, &unexplained(outcome).detail)
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
    }
}

/// Why there is no result.
pub(super) fn refusal(end: &CallEnd) -> Refusal {
    let answer = Answer {
        outcome: end.outcome,
        delivered: end.delivered,
        body: Bytes::copy_from_slice(&end.answer),
    };
    answer.refusal().unwrap_or_else(|| unexplained(end.outcome))
}

/// Puts an end on record, however long the database is away, unless the process is told to end at once.
pub(super) async fn record(
    gateway: &Gateway,
    shutdown: &Shutdown,
    (call, attempt): (CallId, i32),
    end: &CallEnd,
) {
    let write = || gateway.store.end_call(call, attempt, end);
    match persist(shutdown, call, write).await {
        Some(true) => {}
        Some(false) => tracing::warn!(
            call.id = %call,
            call.outcome = end.outcome.as_str(),
            "a call's end came too late: it counts as lost"
        ),
        None => tracing::error!(
            call.id = %call,
            call.outcome = end.outcome.as_str(),
            "a call's end is not on record; it will count as lost"
        ),
    }
}

/// Puts a call back that was not delivered, as stubbornly.
pub(super) async fn put_back(
    gateway: &Gateway,
    shutdown: &Shutdown,
    (call, attempt): (CallId, i32),
    pause: Duration,
) {
    let write = || gateway.store.put_call_back(call, attempt, pause);
    if persist(shutdown, call, write).await != Some(true) {
        tracing::error!(call.id = %call, "an undelivered call was not put back into its queue; it will count as lost");
    }
}

/// Writes until it is written; `None` when it never was.
async fn persist<F>(shutdown: &Shutdown, call: CallId, write: impl Fn() -> F) -> Option<bool>
where
    F: Future<Output = Result<bool, StoreError>>,
{
    let mut backoff = Backoff::new();
    let mut told = false;
    // A write that reached the database without an answer finds its own work when it is repeated.
    let mut unanswered = false;
    loop {
        match within(WRITE_PATIENCE, write()).await {
            Ok(written) => return Some(written || unanswered),
            Err(error) if error.is_unavailable() => {
                unanswered = true;
                if !told {
                    told = true;
                    tracing::warn!(
                        call.id = %call,
                        error = error.report(),
                        "what became of a call cannot be written; trying again until it can"
                    );
                }
            }
            Err(error) => {
                tracing::error!(call.id = %call, error = error.report(), "what became of a call is not written");
                return None;
            }
        }
        if !backoff.pause_until_stopped(shutdown).await {
            return None;
        }
    }
}
