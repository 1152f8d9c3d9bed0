//! `POST /v1/devices/{id}/calls`: creates a call of any mode.

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::{FromRequestParts, State},
    http::request::Parts,
    response::{IntoResponse, Response},
};
use switchboard_bus::Notification;
use switchboard_identity::outside_key;
use switchboard_protocol::{
    id::{CallId, DeviceId},
    outcome::{Delivered, Outcome},
};
use switchboard_runtime::problem::{Json, Path, Problem};
use switchboard_store::CallVia;
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::{
    Attempt, OpenCall, idempotency,
    idempotency::IdempotencyKey,
    milliseconds,
    mode::Mode,
    queue,
    request::CallBody,
    response::CallResponse,
    stream::{self, Accepted},
    view::CallView,
};
use crate::{
    Gateway,
    admission::{self, MakeCall},
    bus_unavailable,
};

/// What the headers of a call request. They are not copied, unlike by the extractor of all headers.
pub(crate) struct CallHeaders {
    accepted: Accepted,
    key: Result<Option<IdempotencyKey>, Problem>,
}

impl<S: Sync> FromRequestParts<S> for CallHeaders {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self {
            accepted: Accepted::from_headers(&parts.headers),
            key: IdempotencyKey::from_headers(&parts.headers),
        })
    }
}

/// The response to a synchronous call that the device answered.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes `CallResponse` in the API document")]
struct CallResult {
    /// ID of the call.
    call_id: CallId,
    /// `succeeded` or `failed`, as reported by the device.
    outcome: Outcome,
    /// Whether the device may have executed the call.
    delivered: Delivered,
    /// The device's result, byte for byte: `success`, `data` and further members.
    #[schema(value_type = Object)]
    result: (),
    /// False if the result's data does not match the output schema that the service declares, or
    /// could not be checked; otherwise absent.
    #[schema(required = false, example = false)]
    result_valid: bool,
    /// Time from the request to the outcome, in milliseconds.
    #[schema(minimum = 0, maximum = 301_000, example = 12.345)]
    elapsed_ms: f64,
}

/// Calls a service of a device. A `sync` call responds with its outcome, other modes with 202.
///
/// With an Idempotency-Key the call is executed at most once. If the call was not delivered, its
/// key is released.
///
/// With `Accept: text/event-stream` the response of a `sync` call is a stream of events: `progress`
/// and `log` as the device sends them, and at last `result` with the body that the response has
/// otherwise, a problem included. Closing the connection cancels the call.
#[utoipa::path(
    post, path = "/v1/devices/{id}/calls", tag = "Devices", operation_id = "callDevice",
    params(("id" = DeviceId, Path, description = "ID of the device")),
    request_body(content = CallBody),
    responses(
        (status = 200, content((CallResult = "application/json"), (String = "text/event-stream")), description = "The device answered; or the stream of events"),
        (status = 202, body = CallView<'static>, description = "The call is stored and continues without the caller", headers(("Location" = String, description = "URL of the call"))),
    ),
    security(("credential" = ["call"])),
    extensions(
        ("x-idempotent" = json!(true)),
        ("x-problems" = json!([
            "not_found", "outside_key", "not_acceptable", "unknown_device", "unknown_service", "invalid", "offline", "call_in_progress",
            "overloaded", "queue_full", "quota_exceeded", "cancelled", "lost", "timed_out", "bus_unavailable", "store_unavailable"
        ])),
    ),
)]
pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    MakeCall { caller, started }: MakeCall,
    Path(device): Path<DeviceId>,
    CallHeaders { accepted, key }: CallHeaders,
    Json(body): Json<CallBody>,
) -> Result<Response, Problem> {
    let (request, mode) = body.parse()?;
    if mode != Mode::Sync && accepted == Accepted::Stream {
        return Err(stream::not_acceptable());
    }
    let attempt = Attempt::new((&caller, CallVia::Rest), device, request, started);
    let mut attempt =
        attempt.map_err(|outside| outside_key(&outside).with("delivered", Delivered::No))?;
    if mode != Mode::Sync {
        attempt.origin = None;
    }
    let key = key?;
    if let Err(refused) = gateway.rate_limits.admit_call(&attempt.device) {
        return Err(attempt.not_sent(admission::rate_limited(refused)));
    }
    if attempt.request.bytes() > gateway.params_limit_bytes {
        return Ok(attempt.too_large(&gateway).into_response());
    }
    let key = key.map(|key| key.scoped(&caller, &attempt.device));
    // Boxed: the futures of stored calls are large, and that of every call contains them.
    match (mode, key) {
        (Mode::Sync, key) if accepted != Accepted::Json => {
            Box::pin(stream::respond(&gateway, attempt, key)).await
        }
        (Mode::Sync, Some(key)) => {
            Box::pin(idempotency::perform_once(&gateway, &attempt, &key)).await
        }
        (Mode::Sync, None) => {
            let (_, response) = attempt.respond(&gateway, None).await?;
            Ok(response.into_response())
        }
        (mode, key) => Box::pin(queue::accept(&gateway, attempt, &mode, key)).await,
    }
}

impl Attempt {
    /// Makes the call and builds the response for a caller that waits.
    ///
    /// # Errors
    /// If the bus did not accept the call. Nothing was sent.
    pub(super) async fn respond(
        &self,
        gateway: &Gateway,
        notifications: Option<mpsc::Sender<Notification>>,
    ) -> Result<(Delivered, CallResponse), Problem> {
        match self.perform(gateway, notifications).await {
            Ok(answer) => {
                let response = CallResponse::new(self.id, &answer, self.started.elapsed());
                Ok((answer.delivered, response))
            }
            Err(error) => Err(self.not_sent(bus_unavailable(&error))),
        }
    }

    /// Adds the details of this call, which was not sent and has no outcome, to a problem.
    pub(super) fn not_sent(&self, problem: Problem) -> Problem {
        problem
            .with("call_id", self.id)
            .with("delivered", Delivered::No)
            .with("elapsed_ms", milliseconds(self.started.elapsed()))
    }

    fn too_large(&self, gateway: &Gateway) -> CallResponse {
        OpenCall::begin(gateway, self).too_large();
        let limit = gateway.params_limit_bytes;
        let sent = self.request.bytes();
        CallResponse::params_too_large(
            self.id,
            format!("The params have {sent} bytes; the limit is {limit}."),
            self.started.elapsed(),
        )
    }
}
