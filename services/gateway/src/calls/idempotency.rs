//! `Idempotency-Key`: whoever repeats a request gets the first one's outcome, not a second execution.
//! Never: a call made while it is unsure whether the first one was.

use std::time::Duration;

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};
use switchboard_identity::Caller;
use switchboard_protocol::{
    id::{CallId, DeviceKey},
    outcome::Delivered,
};
use switchboard_runtime::{idempotency, problem::Problem};
use switchboard_store::{CallKey, NewCall, RememberedCall, StoreError};

use super::{
    Attempt,
    mode::Mode,
    perform,
    record::{Standing, fingerprint},
    reply::Reply,
    request::CallRequest,
};
use crate::{Gateway, store_unavailable};

/// How long a call is remembered.
pub(super) const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
/// How long a key may take to be reserved, however patient the caller is.
pub(super) const RESERVATION_PATIENCE: Duration = Duration::from_secs(2);
/// How long an answer that is there waits until it is on record.
const RECORD_PATIENCE: Duration = Duration::from_millis(200);

/// What the caller calls this call.
#[derive(Debug)]
pub(super) struct Key<'a>(&'a str);

impl<'a> Key<'a> {
    /// The request's key, if it has one.
    pub(super) fn find(headers: &'a HeaderMap) -> Result<Option<Self>, Problem> {
        Ok(idempotency::key(headers)?.map(Self))
    }

    /// The key for this device, within what is the caller's own: a token's subject, which outlives the token, or
    /// an API key. Hashed, so that others can neither guess nor meet it.
    pub(super) fn of_call(&self, caller: &Caller, device: &DeviceKey) -> CallKey {
        let owner = caller.credential.holder();
        // None of the first two parts contains a zero, so no two triples run into the same bytes.
        let hash = Sha256::new()
            .chain_update(device.device.as_str())
            .chain_update([0])
            .chain_update(owner)
            .chain_update([0])
            .chain_update(self.0);
        CallKey {
            org: device.org,
            hash: hash.finalize().into(),
        }
    }
}

/// Makes the call unless one with this key was made before; then answers what is known of that one.
pub(super) async fn once(
    gateway: &Gateway,
    attempt: &Attempt,
    key: &CallKey,
) -> Result<Response, Problem> {
    if let Some(existing) = reserve(gateway, attempt, key).await? {
        return repeat(existing, &attempt.request);
    }
    let settled = match perform(gateway, attempt).await {
        Ok(settled) => settled,
        Err(problem) => {
            forget(gateway, attempt, key).await;
            return Err(problem);
        }
    };
    if settled.delivered == Delivered::No {
        forget(gateway, attempt, key).await;
    } else {
        remember(gateway, attempt, key, &settled.reply).await;
    }
    Ok(settled.reply.into_response())
}

/// Takes the key before anything is sent. While that is not possible no call is made under a key.
async fn reserve(
    gateway: &Gateway,
    attempt: &Attempt,
    key: &CallKey,
) -> Result<Option<RememberedCall>, Problem> {
    let call = NewCall {
        id: attempt.id,
        fingerprint: fingerprint(&attempt.request, &Mode::Sync),
        timeout: attempt.time_left(),
        kept: REMEMBERED,
    };
    let patience = RESERVATION_PATIENCE.min(attempt.time_left());
    let reserved = within(patience, gateway.store.reserve_call(key, &call)).await;
    if let Err(error) = &reserved {
        gateway.metrics.begin(attempt.device.org).refuse();
        if error.is_unavailable() {
            // The key may have been taken although nobody said so.
            forget(gateway, attempt, key).await;
        }
    }
    reserved.map_err(|error| attempt.refused_with(unreserved(&error)))
}

/// Answers a request whose key was used before.
fn repeat(existing: RememberedCall, request: &CallRequest) -> Result<Response, Problem> {
    let call_id = existing.id;
    match Standing::of(existing, request) {
        Standing::Reused => Err(reused()),
        Standing::UnderWay => Err(in_progress(call_id)),
        Standing::Over(reply) => Ok(idempotency::replayed(reply.into_response())),
    }
}

pub(super) fn reused() -> Problem {
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "idempotency_key_reused",
        "Idempotency key reused",
        "This Idempotency-Key was used for another request to this device; a new call needs a new key.",
    )
}

pub(super) fn in_progress(call: CallId) -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "call_in_progress",
        "Call in progress",
        "The call with this Idempotency-Key is under way; repeat the request for its outcome.",
    )
    .with("call_id", call)
    .header(header::RETRY_AFTER, 1)
}

/// A call that never reached its device may be made again under its key.
async fn forget(gateway: &Gateway, attempt: &Attempt, key: &CallKey) {
    let release = gateway.store.release_call(key, attempt.id);
    if let Err(error) = within(RECORD_PATIENCE, release).await {
        tracing::warn!(
            call.id = %attempt.id,
            error = error.report(),
            "the idempotency key of an undelivered call was not given back; it stays taken"
        );
    }
}

/// Without the outcome on record a repetition is told `lost`, which is what is then known.
async fn remember(gateway: &Gateway, attempt: &Attempt, key: &CallKey, reply: &Reply) {
    let outcome = reply.clone().into();
    let finish = gateway.store.finish_call(key, attempt.id, &outcome);
    if let Err(error) = within(RECORD_PATIENCE, finish).await {
        tracing::warn!(
            call.id = %attempt.id,
            error = error.report(),
            "a call's outcome was not put on record; repetitions will be told it is lost"
        );
    }
}

pub(super) async fn within<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let timely = tokio::time::timeout(patience, work).await;
    timely.unwrap_or(Err(StoreError::Unavailable(None)))
}

fn unreserved(error: &StoreError) -> Problem {
    store_unavailable(
        error,
        "an idempotency key could not be reserved; the call was not made",
        "An Idempotency-Key cannot be kept at the moment; nothing was sent, and a retry is safe.",
    )
}
