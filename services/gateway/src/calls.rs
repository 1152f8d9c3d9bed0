//! `POST /v1/devices/{id}/calls`: one call, one outcome, whether its caller waits for it or not.
//! Never: a second execution under the same idempotency key.

mod attempt;
pub(crate) mod by_id;
mod dispatch;
mod ending;
mod idempotency;
mod kept;
pub(crate) mod mode;
mod queues;
mod record;
mod reply;
pub(crate) mod request;
mod shown;
mod waiters;

use std::sync::Arc;

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use switchboard_protocol::{
    id::{CallId, DeviceId, DeviceKey},
    outcome::{Delivered, Outcome},
};
use switchboard_runtime::{
    problem::{Json, Path, Problem},
    shutdown::Shutdown,
};
use utoipa::ToSchema;

pub(crate) use attempt::Attempt;
pub(crate) use kept::Kept;
pub(crate) use reply::milliseconds;
pub(crate) use request::CallRequest;

use crate::{Gateway, access::MayCall, bus_unavailable, rates};
use idempotency::Key;
use mode::Mode;
use reply::Reply;
use request::{Asked, CallBody};
use shown::ShownCall;

/// How a call ended, ready to be sent.
struct Settled {
    delivered: Delivered,
    reply: Reply,
}

/// How a call ended that its device answered.
#[derive(ToSchema)]
#[expect(dead_code, reason = "how `Reply` looks, for the document")]
struct CallResult {
    /// Which call it was.
    call_id: CallId,
    /// How it ended: `succeeded` or `failed`, as the device says.
    outcome: Outcome,
    /// Whether the device may have acted.
    delivered: Delivered,
    /// The device's own words, byte by byte: `success`, `data`, and whatever else it says.
    #[schema(value_type = Object)]
    result: (),
    /// How many milliseconds it took.
    #[schema(minimum = 0, maximum = 301_000, example = 12.345)]
    elapsed_ms: f64,
}

/// Calls a service of a device. A `sync` call is answered with what came of it, others with 202 at once.
///
/// With an Idempotency-Key the call is made once; a call that was not delivered gives its key back.
#[utoipa::path(
    post, path = "/v1/devices/{id}/calls", tag = "Devices", operation_id = "callDevice",
    params(("id" = DeviceId, Path, description = "The device")),
    request_body(content = CallBody),
    responses(
        (status = 200, body = CallResult, description = "The device answered"),
        (status = 202, body = ShownCall<'static>, description = "It is kept, and nobody waits for it", headers(("Location" = String, description = "Where its end is asked for"))),
    ),
    security(("credential" = ["call"])),
    extensions(
        ("x-idempotent" = json!(true)),
        ("x-problems" = json!([
            "invalid_path", "unknown_device", "unknown_service", "invalid", "offline", "call_in_progress",
            "overloaded", "queue_full", "rate_limited", "cancelled", "lost", "timed_out", "bus_unavailable", "store_unavailable"
        ])),
    ),
)]
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
        return Err(attempt.refused_with(rates::not_sent(refused)));
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
        gateway.metrics.begin(self.device.org).too_large();
        let limit = gateway.params_limit_bytes;
        let sent = self.request.bytes();
        Reply::params_too_large(
            self.id,
            format!("The params have {sent} bytes; {limit} is the limit."),
            self.started.elapsed(),
        )
    }
}
