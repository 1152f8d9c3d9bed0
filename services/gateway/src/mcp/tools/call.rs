//! `tools/call`: one call of one service of a device.
//!
//! Invariant: a request makes at most one call, and the call is cancelled if its client
//! disconnects.

use std::{
    pin::pin,
    sync::{Arc, OnceLock},
    time::Instant,
};

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::request::Parts;
use rmcp::{
    ErrorData, RoleServer,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities,
        InputRequiredResult, InputResponses,
    },
    service::RequestContext,
};
use serde_json::{Value, json, value::RawValue};
use switchboard_bus::{Answer, BusError, CancelKey};
use switchboard_protocol::outcome::{Delivered, Outcome};
use switchboard_runtime::{http::received_at, rate_limit::RateLimited};
use switchboard_store::CallVia;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    approvals,
    elicitation::{self, Elicitation, ElicitationError},
    progress::{self, NotificationForwarder},
    resolve::{ResolvedTool, outside_key},
    result::{self, DeviceResult},
};
use crate::{
    Gateway,
    calls::{Attempt, CallRequest, OpenCall},
    mcp::transport::{
        auth::ClientContext,
        binding::Binding,
        protocol_version::is_stateless,
        reservation::OVERLOADED,
        session::{InFlightRequest, SessionId},
    },
};

pub(in crate::mcp) const METHOD: &str = "tools/call";

/// A `tools/call` request.
pub(in crate::mcp) struct ToolCall<'a> {
    pub(in crate::mcp) client: &'a ClientContext,
    /// The name of the tool, as the client sent it.
    pub(in crate::mcp) name: &'a str,
    /// A JSON object, which is sent to the device.
    pub(in crate::mcp) arguments: Bytes,
    /// The request in its session, if its protocol revision has sessions.
    pub(in crate::mcp) session: Option<SessionRequest>,
    /// When the head of the request was complete.
    pub(in crate::mcp) started: Instant,
}

/// A request of a session, which the client can cancel with another request.
pub(in crate::mcp) struct SessionRequest {
    cancel_key: CancelKey,
    id: Value,
}

/// The answers of a client to an earlier elicitation, and the state that it returned.
#[derive(Default)]
pub(in crate::mcp) struct ElicitedInput<'a> {
    responses: Option<InputResponses>,
    state: Option<&'a str>,
}

/// A call that may be made. Keeps the request's ID reserved in its session.
pub(in crate::mcp) struct PreparedCall<'a> {
    pub(in crate::mcp) attempt: Attempt,
    _in_flight: Option<InFlightRequest<'a>>,
}

/// Why a call is not made.
pub(in crate::mcp) enum Refusal {
    Error(ErrorData),
    RateLimited(RateLimited),
    /// The arguments exceed the limit, or the service is not approved. This is a result, not an error of the protocol.
    Result(Box<CallToolResult>),
}

/// The error of a tool that was not found before rmcp read the request: it is not searched twice.
#[derive(Debug, Clone)]
pub(in crate::mcp) struct UnresolvedTool(pub(in crate::mcp) ErrorData);

/// Passes the refusal of a rate-limited call to the HTTP layer, which sets the status.
#[derive(Debug, Clone, Default)]
pub(in crate::mcp) struct RateLimitSignal(Arc<OnceLock<RateLimited>>);

impl From<ErrorData> for Refusal {
    fn from(error: ErrorData) -> Self {
        Self::Error(error)
    }
}

impl RateLimitSignal {
    pub(in crate::mcp) fn refusal(&self) -> Option<RateLimited> {
        self.0.get().copied()
    }
}

impl<'a> ToolCall<'a> {
    fn binding(&'a self) -> Binding<'a> {
        Binding::new(self.client, METHOD, self.name, &self.arguments)
    }
}

/// Checks the limits and builds the call of a resolved tool.
pub(in crate::mcp) async fn prepare<'g>(
    gateway: &'g Gateway,
    target: ResolvedTool,
    call: &ToolCall<'_>,
    input: ElicitedInput<'_>,
) -> Result<PreparedCall<'g>, Refusal> {
    let ResolvedTool {
        device,
        tool,
        registration,
    } = target;
    let admitted = gateway.rate_limits.admit_call(&device);
    admitted.map_err(Refusal::RateLimited)?;
    let input = match (input.responses, input.state) {
        (None, None) => Bytes::new(),
        // Boxed: the future is large, and that of every call contains it.
        input => {
            let (sealer, store) = (&gateway.mcp.sealer, &gateway.store);
            Box::pin(elicitation::input(sealer, store, &call.binding(), input)).await?
        }
    };
    let request = CallRequest {
        service: tool.service.clone(),
        params: call.arguments.clone(),
        input,
        timeout: tool.timeout,
    };
    let caller = (&call.client.caller, CallVia::Mcp);
    let attempt = Attempt::new(caller, device.device, request, call.started);
    let mut attempt = attempt.map_err(|outside| outside_key(&outside))?;
    if let Some(approved) = approvals::of(gateway, attempt.device.org).await? {
        if !approved.permit(&attempt.device, &tool.digest) {
            return Err(Refusal::Result(Box::new(result::not_approved(&attempt))));
        }
        attempt.registration = registration;
    }
    let in_flight = match &call.session {
        Some(SessionRequest { cancel_key, id }) => {
            attempt.cancel_key = Some(*cancel_key);
            let reserved = gateway.mcp.in_flight.begin(*cancel_key);
            Some(reserved.ok_or_else(|| id_in_flight(id))?)
        }
        None => None,
    };
    match too_large(gateway, &attempt) {
        Some(result) => Err(Refusal::Result(Box::new(result))),
        None => Ok(PreparedCall {
            attempt,
            _in_flight: in_flight,
        }),
    }
}

/// Makes the call of a request that rmcp has read.
pub(in crate::mcp) async fn perform(
    gateway: &Gateway,
    client: &ClientContext,
    mut request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    // The call may take minutes: parsed JSON, which takes up to 85 times its text, is not kept.
    request.meta = None;
    let arguments = match request.arguments.take() {
        Some(arguments) => serde_json::to_vec(&arguments).unwrap_or_default().into(),
        None => Bytes::from_static(b"{}"),
    };
    let parts = context.extensions.get::<Parts>();
    let unresolved = parts.and_then(|parts| parts.extensions.get::<UnresolvedTool>());
    if let Some(UnresolvedTool(error)) = unresolved {
        return Err(error.clone());
    }
    let target = ResolvedTool::find(gateway, client, &request.name).await?;
    if let Some(parts) = parts.filter(|_| is_stateless(context)) {
        target.tool.headers.check(&arguments, &parts.headers)?;
    }
    let call = ToolCall {
        client,
        name: &request.name,
        arguments,
        session: session_request(client, context),
        started: parts.map_or_else(Instant::now, |parts| received_at(&parts.extensions)),
    };
    let input = ElicitedInput {
        responses: request.input_responses,
        state: request.request_state.as_deref(),
    };
    let prepared = match prepare(gateway, target, &call, input).await {
        Ok(prepared) => prepared,
        Err(Refusal::Error(error)) => return Err(error),
        Err(Refusal::Result(result)) => return Ok((*result).into()),
        Err(Refusal::RateLimited(refused)) => {
            let signal = parts.and_then(|parts| parts.extensions.get::<RateLimitSignal>());
            if let Some(signal) = signal {
                // A request makes one call, so the signal has not been set before.
                let _ = signal.0.set(refused);
            }
            return Err(rate_limited(refused));
        }
    };
    let attempt = &prepared.attempt;
    let forwarder = NotificationForwarder::new(context, &attempt.device.device);
    let ended = tokio::select! {
        ended = perform_with_progress(gateway, attempt, forwarder) => ended,
        // Dropping the call cancels it on the device.
        () = context.ct.cancelled() => {
            let detail = "the client disconnected; the call was cancelled";
            return Err(ErrorData::internal_error(detail, None));
        }
    };
    let capabilities = is_stateless(context).then(|| context.client_capabilities());
    let capabilities = capabilities.map(Option::unwrap_or_default);
    conclude(gateway, attempt, &ended, (&call, capabilities.as_ref())).await
}

/// Turns the end of a call into the response. Clients of revisions that declare no capabilities
/// in the request have `None`: no elicitation can be sent to them.
pub(in crate::mcp) async fn conclude(
    gateway: &Gateway,
    attempt: &Attempt,
    ended: &Result<Answer, BusError>,
    (call, capabilities): (&ToolCall<'_>, Option<&ClientCapabilities>),
) -> Result<CallToolResponse, ErrorData> {
    let answer = match ended {
        Ok(answer) => answer,
        Err(error) => return Ok(result::bus_unavailable(attempt, error).into()),
    };
    let Some(device_result) = DeviceResult::parse(answer) else {
        return Ok(result::refused(attempt, answer).into());
    };
    let Some(required) = device_result.input_required() else {
        return Ok(device_result.into_tool_result(attempt, answer).into());
    };
    // Boxed: the future is large, and that of every call contains it.
    match Box::pin(elicit(gateway, &call.binding(), required, capabilities)).await {
        Ok(required) => Ok(required.into()),
        Err(ElicitationError::Invalid(reason)) => {
            Ok(result::elicitation_failed(attempt, answer, &reason).into())
        }
        Err(ElicitationError::Refused(error)) => {
            Err(result::with_call_details(error, attempt, answer))
        }
    }
}

/// The request in its session. Clients of the stateless revision cancel by closing the response.
fn session_request(
    client: &ClientContext,
    context: &RequestContext<RoleServer>,
) -> Option<SessionRequest> {
    let parts = context.extensions.get::<Parts>()?;
    let session = parts.extensions.get::<SessionId>()?;
    if is_stateless(context) {
        return None;
    }
    let id = context.id.clone().into_json_value();
    Some(SessionRequest {
        cancel_key: session.cancel_key(client, &id),
        id,
    })
}

fn id_in_flight(id: &Value) -> ErrorData {
    let detail = format!("a request with the id {id} is in flight in this session");
    ErrorData::invalid_request(detail, None)
}

/// Asks the client for the input that the device requires.
async fn elicit(
    gateway: &Gateway,
    binding: &Binding<'_>,
    required: &RawValue,
    capabilities: Option<&ClientCapabilities>,
) -> Result<InputRequiredResult, ElicitationError> {
    let capabilities = capabilities.ok_or_else(|| {
        let reason = "this protocol revision has no elicitation; revision 2026-07-28 has";
        ElicitationError::Invalid(reason.to_owned())
    })?;
    let elicitation = Elicitation::parse(required)?;
    let sealer = &gateway.mcp.sealer;
    let store = &gateway.store;
    elicitation
        .request(sealer, store, binding, capabilities)
        .await
}

/// Waits for the answer and forwards the device's notifications until then. Neither delays the
/// other: the call ends in time however many notifications arrive, and however slowly the client
/// reads.
async fn perform_with_progress(
    gateway: &Gateway,
    attempt: &Attempt,
    forwarder: Option<NotificationForwarder>,
) -> Result<Answer, BusError> {
    let Some(forwarder) = forwarder else {
        return attempt.perform(gateway, None).await;
    };
    let (sender, notifications) = mpsc::channel(progress::QUEUE_LEN);
    let stop = CancellationToken::new();
    let mut forwarding = pin!(forwarder.run(notifications, &stop));
    let call = pin!(attempt.perform(gateway, Some(sender)));
    let ended = match select(call, &mut forwarding).await {
        Either::Left((ended, _)) => ended,
        // The channel closes only when the call has ended.
        Either::Right(((), call)) => return call.await,
    };
    // Notifications that arrived before the answer are sent first, unless the client is too slow.
    if timeout(progress::FLUSH_TIMEOUT, forwarding.as_mut())
        .await
        .is_err()
    {
        // Finish the notification that is being written; drop the others.
        stop.cancel();
        forwarding.await;
    }
    ended
}

/// The error of a rate-limited call.
pub(in crate::mcp) fn rate_limited(refused: RateLimited) -> ErrorData {
    let wait_ms = refused.retry_after.as_millis();
    let detail = format!("the rate limit of this device is exceeded; retry in {wait_ms} ms");
    let data = json!({
        "outcome": Outcome::Overloaded, "delivered": Delivered::No, "retry_after_ms": wait_ms,
    });
    ErrorData::new(OVERLOADED, detail, Some(data))
}

fn too_large(gateway: &Gateway, attempt: &Attempt) -> Option<CallToolResult> {
    let (sent, limit) = (attempt.request.bytes(), gateway.params_limit_bytes);
    (sent > limit).then(|| {
        OpenCall::begin(gateway, attempt).too_large();
        let detail = format!("The arguments have {sent} bytes; the limit is {limit}.");
        result::refused(attempt, &Answer::ended(Outcome::Overloaded, detail))
    })
}
