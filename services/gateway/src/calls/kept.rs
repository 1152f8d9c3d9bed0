//! What a gateway needs for calls that nobody waits for, and the answer that they are kept.
//! Never: 202 for a call that would be forgotten if this process died now.

use std::{sync::Arc, time::Duration};

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use chrono::Utc;
use switchboard_protocol::outcome::{Delivered, Outcome};
use switchboard_runtime::{idempotency::replayed, problem::Problem, shutdown::Shutdown, span};
use switchboard_store::{
    CallKey, CallWork, Expiry, KeepError, Keeping, KeptCall, NewCall, NewKeptCall, QueueLimits,
    RememberedCall, StoreError, Withdrawal,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    Attempt,
    dispatch::{self, Dispatch, Look},
    ending,
    idempotency::{self, REMEMBERED, RESERVATION_PATIENCE, within},
    mode::Mode,
    record::fingerprint,
    shown::ShownCall,
    waiters::Waiters,
};
use crate::{Config, Gateway, metrics::Shed, store_unavailable};

/// How long a call is looked for that may have been kept.
const DOUBT_PATIENCE: Duration = Duration::from_secs(1);
/// How an async call's only attempt is counted.
const ONLY_ATTEMPT: i32 = 1;

/// What a gateway holds for calls that nobody waits for.
pub(crate) struct Kept {
    pub(super) waiters: Waiters,
    pub(super) dispatch: Dispatch,
    /// One for each such call under way.
    pub(super) permits: Arc<Semaphore>,
    pub(super) sweep_every: Duration,
    pub(super) shutdown: Shutdown,
    limits: QueueLimits,
}

impl Kept {
    pub(crate) fn new(config: &Config, shutdown: &Shutdown) -> Self {
        Self {
            waiters: Waiters::default(),
            dispatch: Dispatch::default(),
            permits: Arc::new(Semaphore::new(config.kept_calls_under_way.into())),
            sweep_every: Duration::from_millis(config.queue_sweep_ms),
            shutdown: shutdown.clone(),
            limits: QueueLimits {
                per_device: config.queued_calls_per_device,
                per_org: config.queued_calls_per_org,
            },
        }
    }
}

/// Keeps a call, starts what is to be done with it, and says so.
pub(super) async fn create(
    gateway: &Arc<Gateway>,
    attempt: Attempt,
    mode: &Mode,
    key: Option<CallKey>,
) -> Result<Response, Problem> {
    let permit = match mode {
        Mode::Queued(_) => None,
        Mode::Sync | Mode::Async => Some(permit(gateway, &attempt)?),
    };
    let kept = match keep(gateway, &attempt, mode, key.as_ref()).await {
        Ok(Keeping::Kept(kept)) => kept,
        Ok(Keeping::Remembered(existing)) => {
            return repeat(gateway, &attempt, mode, existing).await;
        }
        Ok(Keeping::DeviceQueueFull) => {
            gateway.metrics.shed.inc(Shed::DeviceQueue);
            let limit = gateway.kept.limits.per_device;
            return Err(full(
                &attempt,
                &format!("{limit} calls wait for this device"),
            ));
        }
        Ok(Keeping::OrgQueueFull) => {
            gateway.metrics.shed.inc(Shed::OrgQueue);
            let limit = gateway.kept.limits.per_org;
            return Err(full(
                &attempt,
                &format!("{limit} calls wait in this organisation"),
            ));
        }
        Err(error) => {
            gateway.metrics.begin(attempt.device.org).refuse();
            return Err(not_kept(gateway, &attempt, mode, &error).await);
        }
    };
    match permit {
        Some(permit) => {
            let span = span!("call.async", switchboard.call.id = %attempt.id);
            let run = run(Arc::clone(gateway), attempt, permit);
            gateway.kept.shutdown.spawn_in(span, run);
        }
        None => dispatch::wake(gateway, attempt.device, Look::IfDue),
    }
    Ok(accepted(&kept))
}

async fn keep(
    gateway: &Gateway,
    attempt: &Attempt,
    mode: &Mode,
    key: Option<&CallKey>,
) -> Result<Keeping, KeepError> {
    let request = &attempt.request;
    let (work, wait) = match mode {
        Mode::Queued(expiry) => {
            let work = CallWork::Queued {
                params: &request.params,
                input: &request.input,
                expiry: *expiry,
                limits: gateway.kept.limits,
            };
            (work, wait_of(*expiry))
        }
        Mode::Sync | Mode::Async => (CallWork::Async, Duration::ZERO),
    };
    let call = NewKeptCall {
        id: attempt.id,
        device: &attempt.device,
        service: &request.service,
        timeout: request.timeout,
        work,
    };
    let longest = wait + request.timeout;
    let remember = NewCall {
        id: attempt.id,
        fingerprint: fingerprint(request, mode),
        timeout: longest,
        kept: longest + REMEMBERED,
    };
    let key = key.map(|key| (key, &remember));
    gateway
        .store
        .keep_call(call, key, RESERVATION_PATIENCE)
        .await
}

fn wait_of(expiry: Expiry) -> Duration {
    match expiry {
        Expiry::In(wait) => wait,
        Expiry::At(at) => (at - Utc::now()).to_std().unwrap_or_default(),
    }
}

/// Makes an async call. Its caller has its answer.
async fn run(gateway: Arc<Gateway>, attempt: Attempt, _permit: OwnedSemaphorePermit) {
    let shutdown = &gateway.kept.shutdown;
    let end = tokio::select! {
        answer = attempt.perform(&gateway, None) => match answer {
            Ok(answer) => ending::of(answer),
            Err(error) => ending::unsent(&error),
        },
        () = shutdown.stopping() => ending::cut_short(),
    };
    ending::record(&gateway, shutdown, (attempt.id, ONLY_ATTEMPT), &end).await;
}

/// Answers a request whose key has a call already.
async fn repeat(
    gateway: &Gateway,
    attempt: &Attempt,
    mode: &Mode,
    existing: RememberedCall,
) -> Result<Response, Problem> {
    if existing.fingerprint != fingerprint(&attempt.request, mode) {
        return Err(idempotency::reused());
    }
    let org = attempt.device.org;
    match gateway.store.kept_call(org, existing.id).await {
        Ok(Some(call)) => Ok(replayed(accepted(&call))),
        // It is giving its key back at this moment.
        Ok(None) => Err(idempotency::in_progress(existing.id)),
        Err(error) => Err(unreadable(&error)),
    }
}

fn accepted(call: &KeptCall) -> Response {
    let location = HeaderValue::try_from(format!("/v1/calls/{}", call.id));
    let mut response = (StatusCode::ACCEPTED, axum::Json(ShownCall::from(call))).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

fn permit(gateway: &Gateway, attempt: &Attempt) -> Result<OwnedSemaphorePermit, Problem> {
    let permit = Arc::clone(&gateway.kept.permits).try_acquire_owned();
    permit.map_err(|_| {
        gateway.metrics.shed.inc(Shed::KeptCalls);
        gateway
            .metrics
            .begin(attempt.device.org)
            .settle(Outcome::Overloaded);
        let problem = Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "overloaded",
            "Overloaded",
            "As many calls are under way as this node may make without a caller that waits.",
        );
        attempt.refused_with(problem.header(header::RETRY_AFTER, 1))
    })
}

fn full(attempt: &Attempt, what: &str) -> Problem {
    let problem = Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        "queue_full",
        "Queue full",
        format!("{what} already, which is the limit; this one was not kept."),
    );
    attempt.refused_with(problem.header(header::RETRY_AFTER, 60))
}

/// Nothing is done with a call that is not known to be kept; a queued one that is all the same is taken back.
async fn not_kept(gateway: &Gateway, attempt: &Attempt, mode: &Mode, error: &KeepError) -> Problem {
    let (cause, unsure) = match error {
        KeepError::NotKept(cause) => (cause, false),
        KeepError::Unsure(cause) => (cause, true),
    };
    // An async call is sent by nobody else, whatever stands on record.
    let may_wait = unsure && cause.is_unavailable() && matches!(mode, Mode::Queued(_));
    let may_wait = may_wait && !taken_back(gateway, attempt).await;
    let detail = if may_wait {
        "The call may wait in the queue; ask for it by its `call_id` before it is made again."
    } else {
        "Calls cannot be kept at the moment; nothing was sent, and a retry is safe."
    };
    let problem = store_unavailable(cause, "a call could not be kept", detail);
    let problem = attempt.refused_with(problem);
    if may_wait {
        problem.with("delivered", Delivered::Unknown)
    } else {
        problem
    }
}

async fn taken_back(gateway: &Gateway, attempt: &Attempt) -> bool {
    let end = ending::withdrawn();
    let withdraw = gateway
        .store
        .withdraw_call(attempt.device.org, attempt.id, &end);
    matches!(
        within(DOUBT_PATIENCE, withdraw).await,
        Ok(Withdrawal::Withdrawn)
    )
}

/// The record of calls does not answer.
pub(super) fn unreadable(error: &StoreError) -> Problem {
    store_unavailable(
        error,
        "the record of calls could not be asked",
        "The record of calls cannot be read at the moment; calls that are kept stay so.",
    )
}
