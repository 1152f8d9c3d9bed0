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
use switchboard_bus::{Answer, BusError, Call};
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
const LOOKUP_PATIENCE: Duration = Duration::from_millis(200);

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
        Some(key) => {
            let key = key.of_call(&caller, &attempt.device);
            idempotency::once(&gateway, &attempt, &key).await
        }
        None => Ok(perform(&gateway, &attempt).await?.reply.into_response()),
    }
}

/// Makes the call.
///
/// # Errors
/// When the bus did not take it: nothing was sent.
async fn perform(gateway: &Gateway, attempt: &Attempt) -> Result<Settled, Problem> {
    let in_flight = gateway.metrics.begin();
    let answer = match gateway.send(attempt).await {
        Ok(answer) => answer,
        Err(error) => match attempt.ended_by(&error) {
            Some(answer) => answer,
            None => {
                in_flight.refuse();
                return Err(attempt.refused_with(bus_unavailable(&error)));
            }
        },
    };
    let answer = tell_unknown_from_offline(gateway, attempt, answer).await;
    in_flight.settle(answer.outcome);
    Ok(Settled {
        delivered: answer.delivered,
        reply: Reply::to_call(attempt.id, &answer, attempt.started.elapsed()),
    })
}

/// The bus knows live devices only; whether an absent one exists at all is on record. While the record
/// cannot be read, `offline` is what is known.
async fn tell_unknown_from_offline(gateway: &Gateway, attempt: &Attempt, answer: Answer) -> Answer {
    if answer.outcome != Outcome::Offline {
        return answer;
    }
    let device = &attempt.device;
    let lookup = gateway.store.device(device.org, &device.device);
    let patience = LOOKUP_PATIENCE.min(attempt.time_left());
    match tokio::time::timeout(patience, lookup).await {
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

impl Gateway {
    async fn send(&self, attempt: &Attempt) -> Result<Answer, BusError> {
        let timeout = attempt.time_left();
        if timeout.is_zero() {
            return Err(BusError::Timeout(attempt.request.timeout));
        }
        let call = Call {
            device: attempt.device.clone(),
            id: attempt.id,
            service: attempt.request.service.clone(),
            params: attempt.request.params.clone(),
            timeout,
            notices: None,
        };
        self.bus.call(call).await
    }
}

impl Attempt {
    /// Until the one deadline that everything about the call is under.
    fn time_left(&self) -> Duration {
        self.request.timeout.saturating_sub(self.started.elapsed())
    }

    /// The outcome that a failure of the bus is; `None` when the bus did not take the call at all.
    fn ended_by(&self, error: &BusError) -> Option<Answer> {
        match error {
            BusError::Overloaded => Some(Answer::ended(
                Outcome::Overloaded,
                "Too much waits to be sent to the node that holds the device; try again later.",
            )),
            BusError::Timeout(_) if self.time_left().is_zero() => {
                let detail =
                    "The time was over before the call could be sent; the device never saw it.";
                Some(Answer::ended(Outcome::TimedOut, detail).with_delivered(Delivered::No))
            }
            _ => None,
        }
    }

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
        let sent = self.request.params.len();
        Reply::params_too_large(
            self.id,
            format!("The params have {sent} bytes; {limit} is the limit."),
            self.started.elapsed(),
        )
    }
}

#[cfg(test)]
mod tests {
    use switchboard_protocol::id::OrgId;

    use super::*;

    #[test]
    fn what_the_bus_could_not_send_was_never_delivered() {
        fn check(error: &BusError, timeout: Duration, expected: Option<Outcome>) {
            let attempt = Attempt {
                id: CallId::from_uuid(Uuid::from_u128(7)),
                device: DeviceKey {
                    org: OrgId::from_uuid(Uuid::from_u128(1)),
                    device: "toy-1".parse().unwrap(),
                },
                request: CallRequest {
                    service: "wave".into(),
                    params: bytes::Bytes::from_static(b"{}"),
                    timeout,
                },
                started: Instant::now(),
            };
            let answer = attempt.ended_by(error);
            let expected = expected.map(|outcome| (outcome, Delivered::No));
            let seen = answer.map(|answer| (answer.outcome, answer.delivered));
            assert_eq!(seen, expected, "{error}");
        }
        const PATIENT: Duration = Duration::from_secs(60);
        let late = BusError::Timeout(PATIENT);
        check(&BusError::Overloaded, PATIENT, Some(Outcome::Overloaded));
        check(&late, Duration::ZERO, Some(Outcome::TimedOut));
        // The bus gave up before the caller would: it is away.
        check(&late, PATIENT, None);
        check(&BusError::Unavailable, Duration::ZERO, None);
    }
}
