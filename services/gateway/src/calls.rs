//! `POST /v1/devices/{id}/calls`: one call, one outcome.
//! Never: a second execution under the same idempotency key.

mod idempotency;
mod record;
mod reply;
mod request;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use switchboard_bus::{Answer, Call};
use switchboard_protocol::{
    id::{CallId, DeviceId, DeviceKey},
    outcome::{Delivered, Outcome},
};
use switchboard_runtime::problem::{Json, Path, Problem};
use uuid::Uuid;

use crate::{Gateway, access::MayCall, bus_unavailable};
use idempotency::Key;
use reply::Reply;
use request::{CallBody, CallRequest};

/// How long an absent device is looked up; the answer must not be late because the record is away.
const LOOKUP_PATIENCE: Duration = Duration::from_millis(500);

/// A call that was asked for, before anything was sent.
struct Attempt {
    id: CallId,
    device: DeviceKey,
    request: CallRequest,
    started: Instant,
}

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
    let attempt = Attempt {
        id: CallId::from_uuid(Uuid::now_v7()),
        device: DeviceKey {
            org: caller.org,
            device,
        },
        request: CallRequest::try_from(body)?,
        started: Instant::now(),
    };
    let key = Key::find(&headers)?;
    if attempt.request.params.len() > gateway.params_limit_bytes {
        return Ok(attempt.too_large(&gateway).into_response());
    }
    match key {
        Some(key) => idempotency::once(&gateway, attempt, &key.scoped_to(&caller)).await,
        None => Ok(perform(&gateway, attempt).await?.reply.into_response()),
    }
}

/// Makes the call.
///
/// # Errors
/// When the bus did not take it: nothing was sent.
async fn perform(gateway: &Gateway, attempt: Attempt) -> Result<Settled, Problem> {
    let in_flight = gateway.metrics.begin();
    let Attempt {
        id,
        device,
        request,
        started,
    } = attempt;
    let call = Call {
        device: device.clone(),
        id,
        service: request.service,
        params: request.params,
        timeout: request.timeout,
    };
    let answer = match gateway.bus.call(call).await {
        Ok(answer) => answer,
        Err(error) => {
            in_flight.refuse();
            return Err(bus_unavailable(&error));
        }
    };
    let answer = tell_unknown_from_offline(gateway, &device, answer).await;
    in_flight.settle(answer.outcome);
    Ok(Settled {
        delivered: answer.delivered,
        reply: Reply::to_call(id, &answer, started.elapsed()),
    })
}

/// The bus knows live devices only; whether an absent one exists at all is on record. While the record
/// cannot be read, `offline` is what is known.
async fn tell_unknown_from_offline(
    gateway: &Gateway,
    device: &DeviceKey,
    answer: Answer,
) -> Answer {
    if answer.outcome != Outcome::Offline {
        return answer;
    }
    let lookup = gateway.store.device(device.org, &device.device);
    match tokio::time::timeout(LOOKUP_PATIENCE, lookup).await {
        Ok(Ok(None)) => {
            let detail = format!("There is no device {} in this organisation.", device.device);
            Answer::ended(Outcome::UnknownDevice, detail)
        }
        Ok(Ok(Some(_))) => answer,
        Ok(Err(error)) => {
            tracing::warn!(
                error = error.report(),
                "an absent device could not be looked up; it is called offline"
            );
            answer
        }
        Err(_) => {
            tracing::warn!("an absent device was not looked up in time; it is called offline");
            answer
        }
    }
}

impl Attempt {
    fn too_large(&self, gateway: &Gateway) -> Reply {
        gateway.metrics.begin().settle(Outcome::Overloaded);
        let limit = gateway.params_limit_bytes;
        let sent = self.request.params.len();
        Reply::params_too_large(
            self.id,
            format!("The params have {sent} bytes; {limit} is the limit."),
            self.started.elapsed(),
        )
    }
}
