//! `POST /v1/devices/{id}/calls`: one call, one outcome, whether its caller waits for it or not.
//! Never: a second execution under the same idempotency key.

mod attempt;
mod by_id;
mod dispatch;
mod ending;
mod idempotency;
mod kept;
mod mode;
mod queues;
mod record;
mod reply;
mod request;
mod shown;
mod waiters;

use std::sync::Arc;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use switchboard_protocol::{
    id::{DeviceId, DeviceKey},
    outcome::{Delivered, Outcome},
};
use switchboard_runtime::{
    problem::{Json, Path, Problem},
    shutdown::Shutdown,
};

pub(crate) use attempt::Attempt;
pub(crate) use by_id::{list, show, withdraw};
pub(crate) use kept::Kept;
pub(crate) use reply::milliseconds;
pub(crate) use request::CallRequest;

use crate::{Gateway, access::MayCall, bus_unavailable};
use idempotency::Key;
use mode::Mode;
use reply::Reply;
use request::{Asked, CallBody};

/// How a call ended, ready to be sent.
struct Settled {
    delivered: Delivered,
    reply: Reply,
}

pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    MayCall(caller): MayCall,
    Path(device): Path<DeviceId>,
    headers: HeaderMap,
    Json(body): Json<CallBody>,
) -> Result<Response, Problem> {
    let device = DeviceKey {
        org: caller.org,
        device,
    };
    let Asked { request, mode } = body.try_into()?;
    let attempt = Attempt::begin(device, request);
    let key = Key::find(&headers)?;
    if let Err(refused) = gateway.rates.admit_call(&attempt.device) {
        return Err(attempt.refused_with(refused.into()));
    }
    if attempt.request.bytes() > gateway.params_limit_bytes {
        return Ok(attempt.too_large(&gateway).into_response());
    }
    let key = key.map(|key| key.of_call(&caller, &attempt.device));
    match (mode, key) {
        (Mode::Sync, Some(key)) => idempotency::once(&gateway, &attempt, &key).await,
        (Mode::Sync, None) => Ok(perform(&gateway, &attempt).await?.reply.into_response()),
        (mode, key) => kept::create(&gateway, attempt, &mode, key).await,
    }
}

/// Starts what is done for calls that nobody waits for.
pub(crate) fn start(gateway: &Arc<Gateway>, shutdown: &Shutdown) {
    shutdown.spawn(waiters::listen(Arc::clone(gateway), shutdown.clone()));
    shutdown.spawn(queues::watch(Arc::clone(gateway), shutdown.clone()));
}

/// Makes the call.
///
/// # Errors
/// When the bus did not take it: nothing was sent.
async fn perform(gateway: &Gateway, attempt: &Attempt) -> Result<Settled, Problem> {
    let answer = attempt
        .perform(gateway, None)
        .await
        .map_err(|error| attempt.refused_with(bus_unavailable(&error)))?;
    Ok(Settled {
        delivered: answer.delivered,
        reply: Reply::to_call(attempt.id, &answer, attempt.started.elapsed()),
    })
}

impl Attempt {
    /// What is said of a call that was not accepted, beside why: it has no outcome.
    fn refused_with(&self, problem: Problem) -> Problem {
        problem
            .with("call_id", self.id)
            .with("delivered", Delivered::No)
            .with("elapsed_ms", reply::milliseconds(self.started.elapsed()))
    }

    fn too_large(&self, gateway: &Gateway) -> Reply {
        gateway.metrics.begin().settle(Outcome::Overloaded);
        let limit = gateway.params_limit_bytes;
        let sent = self.request.bytes();
        Reply::params_too_large(
            self.id,
            format!("The params have {sent} bytes; {limit} is the limit."),
            self.started.elapsed(),
        )
    }
}
