//! Asynchronous and queued calls: stored in the database, then answered with 202.
//!
//! An asynchronous call is sent at once by the gateway that accepted it. A queued call waits for
//! its device; any gateway sends it:
//! - [`watch`] finds the queues whose devices are connected;
//! - [`dispatch`] sends the calls of one queue in order;
//! - [`refused`] remembers the organisations whose queues have to wait for a slot;
//! - [`completion`] stores how a call ended;
//! - [`waiters`] wakes the requests that wait for the end of a call.
//!
//! Invariant: the response is 202 only if the call survives a crash of this process.

pub(super) mod completion;
mod dispatch;
mod refused;
mod waiters;
mod watch;

use std::{sync::Arc, time::Duration};

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use chrono::Utc;
use switchboard_bus::BusError;
use switchboard_protocol::outcome::{Delivered, Outcome};
use switchboard_runtime::{
    budget::{Budget, Budgets, Exhausted, Kind, Owner, Permit},
    idempotency::mark_replayed,
    problem::{Problem, ProblemKind},
    shutdown::Shutdown,
    span,
};
use switchboard_store::{
    CallAttempt, CallCancellation, CallDispatch, CallInsert, CallKey, Expiry, InsertCallError,
    NewCall, NewStoredCall, QueueLimits, ReservedCall, StoreError, StoredCall,
};

use self::{
    dispatch::{ActiveQueues, WakeMode},
    refused::RefusedQueues,
    waiters::Waiters,
};
use super::{
    Attempt,
    idempotency::{self, KEY_TTL, RESERVE_TIMEOUT, fingerprint, with_timeout},
    mode::Mode,
    view::CallView,
};
use crate::{Config, Gateway, bus_unavailable, metrics::ShedReason, store_unavailable};

/// Limits the cancellation of a call whose insertion has an unknown result.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);
/// The attempt number of an asynchronous call, which is sent once.
const ONLY_ATTEMPT: i32 = 1;
/// Smaller params are not charged: the slots bound their number.
const SMALL_PARAMS_BYTES: usize = 4 * 1024;

/// The state of one gateway's asynchronous and queued calls.
pub(crate) struct AsyncCalls {
    pub(super) waiters: Waiters,
    active_queues: ActiveQueues,
    refused_queues: RefusedQueues,
    /// One slot for each asynchronous call in flight.
    slots: Budget,
    /// One slot for each queue whose calls are being sent.
    queue_slots: Budget,
    /// The params of both, which stay in memory until the device has answered.
    params: Budget,
    sweep_interval: Duration,
    pub(crate) shutdown: Shutdown,
    limits: QueueLimits,
}

impl AsyncCalls {
    pub(crate) fn new(config: &Config, budgets: &Budgets, shutdown: &Shutdown) -> Self {
        let capacity = config.kept_calls_under_way.into();
        let kind = Kind::quarter_of(capacity);
        Self {
            waiters: Waiters::default(),
            active_queues: ActiveQueues::default(),
            refused_queues: RefusedQueues::default(),
            slots: budgets.slots("async_calls", capacity, kind),
            queue_slots: budgets.slots("queued_calls", capacity, kind),
            params: budgets.bytes(
                "call_params",
                config.call_params_bytes,
                // At least the params of one call.
                Kind::Held {
                    share: (config.call_params_bytes / 4).max(config.params_limit_bytes),
                },
            ),
            sweep_interval: Duration::from_millis(config.queue_sweep_ms),
            shutdown: shutdown.clone(),
            limits: QueueLimits {
                per_device: config.queued_calls_per_device,
                per_org: config.queued_calls_per_org,
            },
        }
    }

    /// Acquires the bytes of the params of a call. Small params need no permit.
    fn reserve_params(&self, attempt: &Attempt) -> Result<Option<Permit>, Exhausted> {
        let bytes = attempt.request.bytes();
        if bytes <= SMALL_PARAMS_BYTES {
            return Ok(None);
        }
        let owner = Owner::Org(attempt.device.org.uuid());
        self.params.try_acquire(owner, bytes).map(Some)
    }
}

/// What an asynchronous call holds until it has ended.
struct AsyncPermits {
    _slot: Permit,
    _params: Option<Permit>,
}

/// Starts the background tasks, which end when `shutdown` drains.
pub(crate) fn start_background(gateway: &Arc<Gateway>, shutdown: &Shutdown) {
    shutdown.spawn(waiters::listen(Arc::clone(gateway), shutdown.clone()));
    shutdown.spawn(watch::run(Arc::clone(gateway), shutdown.clone()));
}

/// Stores a call, starts it or wakes its queue, and responds with 202.
pub(super) async fn accept(
    gateway: &Arc<Gateway>,
    attempt: Attempt,
    mode: &Mode,
    key: Option<CallKey>,
) -> Result<Response, Problem> {
    let permits = match mode {
        Mode::Queued(_) => None,
        Mode::Sync | Mode::Async => match acquire_permits(gateway, &attempt) {
            Ok(permits) => Some(permits),
            // The first request with its key may have been accepted.
            Err(refused) => {
                return match idempotency::find(gateway, &attempt, key.as_ref()).await? {
                    Some(existing) => replay(gateway, &attempt, mode, existing).await,
                    None => Err(refused),
                };
            }
        },
    };
    if let Some(existing) = idempotency::admit_or_find(gateway, &attempt, key.as_ref()).await? {
        return replay(gateway, &attempt, mode, existing).await;
    }
    let stored = match insert(gateway, &attempt, mode, key.as_ref()).await {
        Ok(CallInsert::Inserted(stored)) => stored,
        Ok(CallInsert::Existing(existing)) => {
            return replay(gateway, &attempt, mode, existing).await;
        }
        Ok(CallInsert::DeviceQueueFull) => {
            gateway.metrics.shed.inc(ShedReason::DeviceQueue);
            let limit = gateway.async_calls.limits.per_device;
            return Err(queue_full(&attempt, limit, "this device"));
        }
        Ok(CallInsert::OrgQueueFull) => {
            gateway.metrics.shed.inc(ShedReason::OrgQueue);
            let limit = gateway.async_calls.limits.per_org;
            return Err(queue_full(&attempt, limit, "this organisation"));
        }
        Err(error) => {
            gateway
                .metrics
                .begin_call(&attempt.device, &attempt.request.service)
                .unavailable();
            return Err(insert_failed(gateway, &attempt, mode, &error).await);
        }
    };
    match permits {
        Some(permits) => {
            let span = span!("call.async", switchboard.call.id = %attempt.id);
            let perform = perform_async(Arc::clone(gateway), attempt, permits);
            gateway.async_calls.shutdown.spawn_in(span, perform);
        }
        None => dispatch::wake(gateway, attempt.device, WakeMode::IfDue),
    }
    Ok(accepted(&stored))
}

async fn insert(
    gateway: &Gateway,
    attempt: &Attempt,
    mode: &Mode,
    key: Option<&CallKey>,
) -> Result<CallInsert, InsertCallError> {
    let request = &attempt.request;
    let (work, max_wait) = match mode {
        Mode::Queued(expiry) => {
            let work = CallDispatch::Queued {
                params: &request.params,
                input: &request.input,
                expiry: *expiry,
                limits: gateway.async_calls.limits,
            };
            (work, max_wait(*expiry))
        }
        Mode::Sync | Mode::Async => (CallDispatch::Async, Duration::ZERO),
    };
    let call = NewStoredCall {
        id: attempt.id,
        device: &attempt.device,
        service: &request.service,
        timeout: request.timeout,
        work,
    };
    let max_duration = max_wait + request.timeout;
    let reservation = NewCall {
        id: attempt.id,
        fingerprint: fingerprint(request, mode),
        timeout: max_duration,
        retention: max_duration + KEY_TTL,
    };
    let key = key.map(|key| (key, &reservation));
    gateway.store.insert_call(call, key, RESERVE_TIMEOUT).await
}

fn max_wait(expiry: Expiry) -> Duration {
    match expiry {
        Expiry::In(wait) => wait,
        Expiry::At(at) => (at - Utc::now()).to_std().unwrap_or_default(),
    }
}

/// Makes an asynchronous call and stores its end.
async fn perform_async(gateway: Arc<Gateway>, attempt: Attempt, _held: AsyncPermits) {
    let shutdown = &gateway.async_calls.shutdown;
    let end = tokio::select! {
        answer = attempt.perform(&gateway, None) => match answer {
            Ok(answer) => completion::from_answer(answer),
            Err(error) => completion::not_sent(&error),
        },
        () = shutdown.stopping() => completion::aborted(),
    };
    let org = attempt.device.org;
    gateway.result_stored(org, end.answer.len()).await;
    let stored = CallAttempt {
        org,
        call: attempt.id,
        number: ONLY_ATTEMPT,
    };
    completion::store(&gateway, shutdown, stored, &end).await;
}

/// Responds to a request whose key belongs to an earlier call.
async fn replay(
    gateway: &Gateway,
    attempt: &Attempt,
    mode: &Mode,
    existing: ReservedCall,
) -> Result<Response, Problem> {
    if existing.fingerprint != fingerprint(&attempt.request, mode) {
        return Err(idempotency::reused());
    }
    let org = attempt.device.org;
    match gateway.store.stored_call(org, existing.id).await {
        Ok(Some(call)) => Ok(mark_replayed(accepted(&call))),
        // The key is being released at this moment.
        Ok(None) => Err(idempotency::in_progress(existing.id)),
        // The earlier request may have been sent.
        Err(error) => Err(calls_unavailable(&error)
            .with("call_id", existing.id)
            .with("delivered", Delivered::Unknown)),
    }
}

fn accepted(call: &StoredCall) -> Response {
    let location = HeaderValue::try_from(format!("/v1/calls/{}", call.id));
    let mut response = (StatusCode::ACCEPTED, axum::Json(CallView::from(call))).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// Acquires what a call holds that is sent at once. Without the bus it would be lost.
fn acquire_permits(gateway: &Gateway, attempt: &Attempt) -> Result<AsyncPermits, Problem> {
    if !gateway.bus.is_connected() {
        return Err(attempt.not_sent(bus_unavailable(&BusError::Unavailable)));
    }
    let calls = &gateway.async_calls;
    let org = attempt.device.org;
    let acquire = || {
        Ok(AsyncPermits {
            _slot: calls.slots.try_acquire(Owner::Org(org.uuid()), 1)?,
            _params: calls.reserve_params(attempt)?,
        })
    };
    acquire().map_err(|exhausted: Exhausted| {
        gateway.metrics.shed.inc(ShedReason::AsyncCalls);
        gateway
            .metrics
            .begin_call(&attempt.device, &attempt.request.service)
            .complete(Outcome::Overloaded);
        attempt.not_sent(exhausted.into())
    })
}

fn queue_full(attempt: &Attempt, limit: u32, scope: &str) -> Problem {
    let detail = format!(
        "{limit} calls are queued for {scope}, which is the limit; this call was not stored."
    );
    let problem = Problem::new(ProblemKind::QueueFull, detail);
    attempt.not_sent(problem.header(header::RETRY_AFTER, 60))
}

/// The problem for a failed insertion. If a queued call may have been inserted, cancels it first.
async fn insert_failed(
    gateway: &Gateway,
    attempt: &Attempt,
    mode: &Mode,
    error: &InsertCallError,
) -> Problem {
    let (cause, unknown) = match error {
        InsertCallError::NotInserted(cause) => (cause, false),
        InsertCallError::Uncertain(cause) => (cause, true),
    };
    // An asynchronous call is sent by this task only, so it is not sent in either case.
    let may_be_queued = unknown && cause.is_unavailable() && matches!(mode, Mode::Queued(_));
    let may_be_queued = may_be_queued && !cancel(gateway, attempt).await;
    let detail = if may_be_queued {
        "The call may be queued; look it up by its `call_id` before you retry."
    } else {
        "Calls cannot be stored at the moment; nothing was sent, and a retry is safe."
    };
    let problem = store_unavailable(cause, "a call could not be stored", detail);
    let problem = attempt.not_sent(problem);
    if may_be_queued {
        problem.with("delivered", Delivered::Unknown)
    } else {
        problem
    }
}

async fn cancel(gateway: &Gateway, attempt: &Attempt) -> bool {
    let end = completion::cancelled();
    let org = attempt.device.org;
    let cancellation = gateway.store.cancel_call(org, attempt.id, &end);
    matches!(
        with_timeout(CANCEL_TIMEOUT, cancellation).await,
        Ok((CallCancellation::Cancelled, _))
    )
}

/// The problem for a request that failed because stored calls could not be read or written.
pub(super) fn calls_unavailable(error: &StoreError) -> Problem {
    store_unavailable(
        error,
        "stored calls could not be read or written",
        "Stored calls cannot be read at the moment; accepted calls are not affected.",
    )
}
