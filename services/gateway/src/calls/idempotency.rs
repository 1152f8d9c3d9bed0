//! `Idempotency-Key` of synchronous calls: a repeated request receives the first one's outcome.
//!
//! Invariant: no call is made under a key unless the key is reserved in the database.

use std::{sync::Arc, time::Duration};

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};
use switchboard_bus::Notification;
use switchboard_identity::Caller;
use switchboard_protocol::{
    id::{CallId, DeviceKey},
    outcome::Delivered,
};
use switchboard_runtime::{
    idempotency,
    problem::{Problem, ProblemKind},
    quota::Quota,
};
use switchboard_store::{
    CallKey, Expiry, NewCall, RESULT_GRACE, ReservedCall, StoreError, StoredOutcome,
};
use tokio::sync::mpsc;

use super::{Attempt, OpenCall, mode::Mode, request::CallRequest, response::CallResponse};
use crate::{Gateway, store_unavailable};

/// How long a key is stored after its call.
pub(super) const KEY_TTL: Duration = Duration::from_secs(24 * 3600);
/// Limits the reservation of a key, whatever the timeout of the call.
pub(super) const RESERVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Limits the release of a key, and the writing of an outcome.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Limits how long either delays the response to the caller.
const WRITE_WAIT_TIMEOUT: Duration = Duration::from_millis(200);

/// The value of the `Idempotency-Key` header.
#[derive(Debug)]
pub(super) struct IdempotencyKey(Box<str>);

impl IdempotencyKey {
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, Problem> {
        Ok(idempotency::key(headers)?.map(|key| Self(key.into())))
    }

    /// The key in the scope of this device and of the caller: an API key, or the subject of a
    /// token, which outlives the token. It is hashed, so that other callers can neither guess it
    /// nor collide with it.
    pub(super) fn scoped(&self, caller: &Caller, device: &DeviceKey) -> CallKey {
        let owner = caller.credential.caller_name();
        // Neither of the first two parts contains a zero byte, so the encoding is unambiguous.
        let hash = Sha256::new()
            .chain_update(device.device.as_str())
            .chain_update([0])
            .chain_update(owner)
            .chain_update([0])
            .chain_update(&*self.0);
        CallKey {
            org: device.org,
            hash: hash.finalize().into(),
        }
    }
}

/// What a stored key means for another request with that key.
#[derive(Debug, PartialEq, Eq)]
enum KeyState {
    /// The key belongs to a different request: the fingerprints differ.
    Reused,
    /// The call has no outcome yet.
    InFlight,
    Completed(CallResponse),
}

impl KeyState {
    fn new(call: ReservedCall, request: &CallRequest) -> Self {
        if call.fingerprint != fingerprint(request, &Mode::Sync) {
            return Self::Reused;
        }
        match call.outcome {
            Some(outcome) => Self::Completed(outcome.into()),
            None if call.read_at <= call.deadline + RESULT_GRACE => Self::InFlight,
            None => {
                let elapsed = (call.read_at - call.created_at).to_std();
                Self::Completed(CallResponse::lost(
                    call.id,
                    elapsed.unwrap_or(Duration::ZERO),
                ))
            }
        }
    }
}

impl From<StoredOutcome> for CallResponse {
    fn from(outcome: StoredOutcome) -> Self {
        Self {
            status: StatusCode::from_u16(outcome.status).unwrap_or(StatusCode::BAD_GATEWAY),
            body: outcome.body.into(),
        }
    }
}

impl From<CallResponse> for StoredOutcome {
    fn from(response: CallResponse) -> Self {
        Self {
            status: response.status.as_u16(),
            body: response.body.into(),
        }
    }
}

/// A hash of everything that makes two requests to one device the same.
pub(super) fn fingerprint(request: &CallRequest, mode: &Mode) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(request.timeout.as_millis().to_be_bytes());
    // The length before each part makes the encoding unambiguous.
    for part in [request.service.as_bytes(), &request.params, &request.input] {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    match mode {
        Mode::Sync => {}
        Mode::Async => hash.update(b"async"),
        Mode::Queued(Expiry::At(at)) => {
            hash.update(format!("queued until {}", at.timestamp_micros()))
        }
        Mode::Queued(Expiry::In(wait)) => hash.update(format!("queued for {}", wait.as_millis())),
    }
    hash.finalize().into()
}

/// Makes the call unless its key is taken. If it is, responds with the state of the first call.
pub(super) async fn perform_once(
    gateway: &Gateway,
    attempt: &Attempt,
    key: &CallKey,
) -> Result<Response, Problem> {
    if let Some(existing) = begin(gateway, attempt, key).await? {
        return Ok(idempotency::mark_replayed(existing.into_response()));
    }
    let response = finish(gateway, attempt, key, None).await?;
    Ok(response.into_response())
}

/// Reserves the key for the call, which [`finish`] makes. Returns the response of the first call if
/// there was one and it has ended.
///
/// # Errors
/// If the first call is in flight or was another one, or if nothing can be stored.
pub(super) async fn begin(
    gateway: &Gateway,
    attempt: &Attempt,
    key: &CallKey,
) -> Result<Option<CallResponse>, Problem> {
    if let Some(existing) = reserve(gateway, attempt, key).await? {
        return replay(existing, &attempt.request).map(Some);
    }
    if let Err(problem) = admit_result(gateway, attempt).await {
        release(gateway, attempt, key).await;
        return Err(problem);
    }
    Ok(None)
}

/// Makes the call that has the key, and stores its response.
///
/// # Errors
/// If the bus did not accept the call.
pub(super) async fn finish(
    gateway: &Gateway,
    attempt: &Attempt,
    key: &CallKey,
    notifications: Option<mpsc::Sender<Notification>>,
) -> Result<CallResponse, Problem> {
    let (delivered, response) = match attempt.respond(gateway, notifications).await {
        Ok(responded) => responded,
        Err(problem) => {
            release(gateway, attempt, key).await;
            return Err(problem);
        }
    };
    if delivered == Delivered::No {
        release(gateway, attempt, key).await;
    } else {
        store_outcome(gateway, attempt, key, &response).await;
    }
    Ok(response)
}

/// Admits a call whose result is stored.
async fn admit_result(gateway: &Gateway, attempt: &Attempt) -> Result<(), Problem> {
    let org = attempt.device.org;
    let quotas = gateway.authenticator.quotas();
    let admit = quotas.admit(org, Quota::StoredResultBytes, 1);
    let timeout = RESERVE_TIMEOUT.min(attempt.time_left());
    let admitted = tokio::time::timeout(timeout, admit).await;
    let admitted = admitted.unwrap_or_else(|_| Err(Arc::new(StoreError::Unavailable(None)).into()));
    admitted.map_err(|error| attempt.not_sent(error.into()))
}

/// Admits a call whose result is stored, unless its key belongs to an earlier one, which is
/// returned.
pub(super) async fn admit_or_find(
    gateway: &Gateway,
    attempt: &Attempt,
    key: Option<&CallKey>,
) -> Result<Option<ReservedCall>, Problem> {
    let Err(refused) = admit_result(gateway, attempt).await else {
        return Ok(None);
    };
    let existing = find(gateway, attempt, key).await?;
    existing.map(Some).ok_or(refused)
}

/// Returns the earlier call that the key belongs to.
pub(super) async fn find(
    gateway: &Gateway,
    attempt: &Attempt,
    key: Option<&CallKey>,
) -> Result<Option<ReservedCall>, Problem> {
    let Some(key) = key else {
        return Ok(None);
    };
    let existing = reserve(gateway, attempt, key).await?;
    if existing.is_none() {
        release(gateway, attempt, key).await;
    }
    Ok(existing)
}

/// Reserves the key, or returns the call that has it.
async fn reserve(
    gateway: &Gateway,
    attempt: &Attempt,
    key: &CallKey,
) -> Result<Option<ReservedCall>, Problem> {
    let call = NewCall {
        id: attempt.id,
        fingerprint: fingerprint(&attempt.request, &Mode::Sync),
        timeout: attempt.time_left(),
        retention: KEY_TTL,
    };
    let timeout = RESERVE_TIMEOUT.min(attempt.time_left());
    let reserved = with_timeout(timeout, gateway.store.reserve_call(key, &call)).await;
    if let Err(error) = &reserved {
        OpenCall::begin(gateway, attempt).unavailable();
        if error.is_unavailable() {
            // The reservation may have been committed although the response was lost.
            release(gateway, attempt, key).await;
        }
    }
    reserved.map_err(|error| attempt.not_sent(reservation_failed(&error)))
}

fn replay(existing: ReservedCall, request: &CallRequest) -> Result<CallResponse, Problem> {
    let call_id = existing.id;
    match KeyState::new(existing, request) {
        KeyState::Reused => Err(reused()),
        KeyState::InFlight => Err(in_progress(call_id)),
        KeyState::Completed(response) => Ok(response),
    }
}

pub(super) fn reused() -> Problem {
    Problem::new(
        ProblemKind::IdempotencyKeyReused,
        "This Idempotency-Key was used for another request to this device; a new call needs a new key.",
    )
}

pub(super) fn in_progress(call: CallId) -> Problem {
    Problem::new(
        ProblemKind::CallInProgress,
        "The call with this Idempotency-Key is in flight; repeat the request for its outcome.",
    )
    .with("call_id", call)
    .header(header::RETRY_AFTER, 1)
}

/// Releases the key of a call that did not reach its device, so that it can be repeated. The caller
/// waits for it within the time of the call only.
async fn release(gateway: &Gateway, attempt: &Attempt, key: &CallKey) {
    let (store, key, call) = (gateway.store.clone(), key.clone(), attempt.id);
    let release = async move { store.release_call(&key, call).await };
    let wait = WRITE_WAIT_TIMEOUT.min(attempt.time_left());
    let loss =
        "the idempotency key of an undelivered call could not be released; it stays reserved";
    write(gateway, call, wait, release, loss).await;
}

/// Stores the response under the key. If that fails, repeated requests receive `lost`.
async fn store_outcome(
    gateway: &Gateway,
    attempt: &Attempt,
    key: &CallKey,
    response: &CallResponse,
) {
    let outcome = response.clone().into();
    gateway.result_stored(key.org, response.body.len()).await;
    let (store, key, call) = (gateway.store.clone(), key.clone(), attempt.id);
    let finish = async move { store.finish_call(&key, call, outcome).await };
    let loss = "the outcome of a call could not be stored; repeated requests will receive `lost`";
    write(gateway, call, WRITE_WAIT_TIMEOUT, finish, loss).await;
}

/// Writes what concerns a key. After `wait`, that continues in the background. `loss` is logged if it
/// fails.
async fn write(
    gateway: &Gateway,
    call: CallId,
    wait: Duration,
    write: impl Future<Output = Result<bool, StoreError>> + Send + 'static,
    loss: &'static str,
) {
    let written = gateway.async_calls.shutdown.spawn(async move {
        if let Err(error) = with_timeout(WRITE_TIMEOUT, write).await {
            tracing::warn!(call.id = %call, error = error.report(), "{loss}");
        }
    });
    let _ = tokio::time::timeout(wait, written).await;
}

/// Runs a database operation, which is unavailable if it takes longer than `timeout`.
pub(super) async fn with_timeout<T>(
    timeout: Duration,
    operation: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let result = tokio::time::timeout(timeout, operation).await;
    result.unwrap_or(Err(StoreError::Unavailable(None)))
}

fn reservation_failed(error: &StoreError) -> Problem {
    store_unavailable(
        error,
        "an idempotency key could not be reserved; the call was not made",
        "An Idempotency-Key cannot be stored at the moment; nothing was sent, and a retry is safe.",
    )
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use chrono::{DateTime, TimeDelta};
    use uuid::Uuid;

    use super::*;

    fn request(service: &str, params: &'static str) -> CallRequest {
        CallRequest {
            service: service.into(),
            params: Bytes::from_static(params.as_bytes()),
            input: Bytes::new(),
            timeout: Duration::from_secs(1),
        }
    }

    fn stored_call(after_deadline: TimeDelta) -> ReservedCall {
        let created_at = DateTime::UNIX_EPOCH;
        let deadline = created_at + TimeDelta::seconds(1);
        ReservedCall {
            id: CallId::from_uuid(Uuid::from_u128(7)),
            fingerprint: fingerprint(&request("wave", "{}"), &Mode::Sync).to_vec(),
            created_at,
            deadline,
            read_at: deadline + after_deadline,
            outcome: None,
        }
    }

    #[test]
    fn key_without_outcome_is_in_flight_until_overdue() {
        let same = request("wave", "{}");
        let grace = TimeDelta::from_std(RESULT_GRACE).unwrap();
        assert_eq!(KeyState::new(stored_call(grace), &same), KeyState::InFlight);
        let overdue = stored_call(grace + TimeDelta::microseconds(1));
        match KeyState::new(overdue, &same) {
            KeyState::Completed(response) => assert_eq!(response.status.as_u16(), 502),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn stored_outcome_is_replayed_byte_for_byte() {
        let body = Bytes::from_static(b"{\"result\": {\"success\":true , \"data\":1.0}}");
        let response = CallResponse {
            status: StatusCode::OK,
            body,
        };
        let call = ReservedCall {
            outcome: Some(response.clone().into()),
            ..stored_call(TimeDelta::days(1))
        };
        assert_eq!(
            KeyState::new(call, &request("wave", "{}")),
            KeyState::Completed(response)
        );
    }

    #[test]
    fn key_of_a_different_request_is_reused() {
        fn check(other: &CallRequest) {
            let state = KeyState::new(stored_call(TimeDelta::zero()), other);
            assert_eq!(state, KeyState::Reused, "{other:?}");
        }
        check(&request("wave", "{ }"));
        check(&request("wav", "e{}"));
        check(&CallRequest {
            timeout: Duration::from_secs(2),
            ..request("wave", "{}")
        });
    }

    #[test]
    fn fingerprint_depends_on_the_mode() {
        let wait = Duration::from_secs(60);
        let modes = [
            Mode::Sync,
            Mode::Async,
            Mode::Queued(Expiry::In(wait)),
            Mode::Queued(Expiry::In(wait * 2)),
            Mode::Queued(Expiry::At(DateTime::UNIX_EPOCH)),
        ];
        let same = request("wave", "{}");
        let prints: std::collections::HashSet<_> =
            modes.iter().map(|mode| fingerprint(&same, mode)).collect();
        assert_eq!(prints.len(), modes.len());
    }
}
