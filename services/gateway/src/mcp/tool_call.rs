//! `tools/call`: one call of one device's service.
//! Never: a second call for one request, or a call that goes on when its client has gone.

use std::{
    pin::pin,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::request::Parts;
use rmcp::{
    ErrorData, RoleServer,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ErrorCode,
        InputRequiredResult,
    },
    service::RequestContext,
};
use serde_json::{json, value::RawValue};
use switchboard_bus::{Answer, BusError};
use switchboard_protocol::{
    id::DeviceKey,
    outcome::{Delivered, Outcome},
};
use switchboard_runtime::rates::TooOften;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    access::Visit,
    binding::Binding,
    content::{self, DeviceResult},
    era::is_modern,
    input::{self, Unasked, Wanted},
    notices::{self, Listener},
    session::{Begun, Session},
    target::Target,
};
use crate::{
    Gateway,
    calls::{Attempt, CallRequest},
};

/// What a call is refused with that comes too often.
const RATE_LIMITED: ErrorCode = ErrorCode(-32_000);

/// Where a call leaves word that it came too often, for the status of the response.
#[derive(Debug, Clone, Default)]
pub(super) struct Pace(Arc<OnceLock<TooOften>>);

impl Pace {
    /// The refusal, if there was one.
    pub(super) fn refused(&self) -> Option<TooOften> {
        self.0.get().copied()
    }
}

pub(super) async fn perform(
    gateway: &Gateway,
    visit: &Visit,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let target = Target::find(gateway, visit, &request.name).await?;
    let tool = target.tool(&request.name)?;
    let parts = context.extensions.get::<Parts>();
    if let Some(parts) = parts.filter(|_| is_modern(context)) {
        let arguments = request.arguments.as_ref();
        tool.headers.check(arguments, &parts.headers)?;
    }
    keep_pace(gateway, &target.device, context)?;
    let params = match &request.arguments {
        Some(arguments) => serde_json::to_vec(arguments).unwrap_or_default().into(),
        None => Bytes::from_static(b"{}"),
    };
    let arguments = params.clone();
    let binding = Binding::new(visit, "tools/call", &request.name, &arguments);
    let answers = (request.input_responses, request.request_state.as_deref());
    let call = CallRequest {
        service: tool.service.clone(),
        params,
        input: input::answered(&gateway.mcp.seal, &gateway.store, &binding, answers).await?,
        timeout: tool.timeout,
    };
    let mut attempt = Attempt::begin(target.device, call);
    let begun = begin_in_session(gateway, visit, context)?;
    attempt.handle = begun.as_ref().map(|begun| begun.handle);
    if let Some(refused) = too_large(gateway, &attempt) {
        return Ok(refused.into());
    }
    let listener = Listener::of(context, &attempt.device.device);
    let ended = tokio::select! {
        ended = attend(gateway, &attempt, listener) => ended,
        // Dropping the call is what cancels it on the device.
        () = context.ct.cancelled() => {
            return Err(ErrorData::internal_error("the client has gone; the device was told to stop", None));
        }
    };
    let able = is_modern(context).then(|| context.client_capabilities().unwrap_or_default());
    conclude(gateway, &attempt, &ended, &binding, able.as_ref()).await
}

/// What a request's client is told of its call's end; clients of revisions without capabilities in the request cannot
/// be asked anything.
pub(super) async fn conclude(
    gateway: &Gateway,
    attempt: &Attempt,
    ended: &Result<Answer, BusError>,
    binding: &Binding<'_>,
    able: Option<&ClientCapabilities>,
) -> Result<CallToolResponse, ErrorData> {
    let answer = match ended {
        Ok(answer) => answer,
        Err(error) => return Ok(content::not_accepted(attempt, error).into()),
    };
    let Some(result) = DeviceResult::of(answer) else {
        return Ok(content::refused(attempt, answer).into());
    };
    match result.input_required() {
        None => Ok(result.into_tool_result(attempt, answer).into()),
        Some(wanted) => match ask(gateway, binding, wanted, able).await {
            Ok(questions) => Ok(questions.into()),
            Err(Unasked::Malformed(why)) => Ok(content::not_asked(attempt, answer, &why).into()),
            Err(Unasked::Refused(error)) => Err(content::with_ending(error, attempt, answer)),
        },
    }
}

/// Takes the request's id in its session, so that the client can take the call back with another request; those of the
/// newest revision close the response instead.
fn begin_in_session<'a>(
    gateway: &'a Gateway,
    visit: &Visit,
    context: &RequestContext<RoleServer>,
) -> Result<Option<Begun<'a>>, ErrorData> {
    let parts = context.extensions.get::<Parts>();
    let session = parts.and_then(|parts| parts.extensions.get::<Session>());
    let Some(session) = session.filter(|_| !is_modern(context)) else {
        return Ok(None);
    };
    let id = context.id.clone().into_json_value();
    let begun = gateway.mcp.under_way.begin(session.handle(visit, &id));
    let refused = || {
        let detail = format!("a request with the id {id} is under way in this session");
        ErrorData::invalid_request(detail, None)
    };
    begun.map(Some).ok_or_else(refused)
}

/// Asks the client what the device wants to know.
async fn ask(
    gateway: &Gateway,
    binding: &Binding<'_>,
    wanted: &RawValue,
    able: Option<&ClientCapabilities>,
) -> Result<InputRequiredResult, Unasked> {
    let able = able.ok_or_else(|| {
        let why = "clients of this revision cannot be asked; those of 2026-07-28 can";
        Unasked::Malformed(why.to_owned())
    })?;
    let wanted = Wanted::read(wanted)?;
    let seal = &gateway.mcp.seal;
    seal.ask(&gateway.store, binding, wanted, able).await
}

/// Waits for the answer and passes on what the device says until then. Neither waits for the other: the call ends in
/// its time however much the device says, and however slowly the client reads.
async fn attend(
    gateway: &Gateway,
    attempt: &Attempt,
    listener: Option<Listener>,
) -> Result<Answer, BusError> {
    let Some(listener) = listener else {
        return attempt.perform(gateway, None).await;
    };
    let (sender, said) = mpsc::channel(notices::WAITING);
    let enough = CancellationToken::new();
    let mut telling = pin!(listener.tell(said, &enough));
    let call = pin!(attempt.perform(gateway, Some(sender)));
    let ended = match select(call, &mut telling).await {
        Either::Left((ended, _)) => ended,
        // Only a call that has ended has let go of the channel.
        Either::Right(((), call)) => return call.await,
    };
    // What was said before the answer is heard before it, unless the client keeps it waiting.
    if timeout(notices::LAST_WORDS, telling.as_mut())
        .await
        .is_err()
    {
        // The one on its way is: nothing is told of a call that is over, and the answer waits for the same client anyway.
        enough.cancel();
        telling.await;
    }
    ended
}

/// Refuses what the device's rate does not allow.
fn keep_pace(
    gateway: &Gateway,
    device: &DeviceKey,
    context: &RequestContext<RoleServer>,
) -> Result<(), ErrorData> {
    let Err(refused) = gateway.rates.admit_call(device) else {
        return Ok(());
    };
    let parts = context.extensions.get::<Parts>();
    if let Some(pace) = parts.and_then(|parts| parts.extensions.get::<Pace>()) {
        // One request makes one call, so nobody was here before.
        let _ = pace.0.set(refused);
    }
    Err(too_often(refused))
}

/// The error for a call that its device's rate does not allow.
pub(super) fn too_often(refused: TooOften) -> ErrorData {
    let waits_ms = refused.retry_after.as_millis();
    let detail =
        format!("this device is called faster than the limit allows; try again in {waits_ms} ms");
    let data = json!({"outcome": Outcome::Overloaded, "delivered": Delivered::No, "retry_after_ms": waits_ms});
    ErrorData::new(RATE_LIMITED, detail, Some(data))
}

/// The result of a call that is larger than the limit allows, if it is.
pub(super) fn too_large(gateway: &Gateway, attempt: &Attempt) -> Option<CallToolResult> {
    let (sent, limit) = (attempt.request.bytes(), gateway.params_limit_bytes);
    (sent > limit).then(|| {
        gateway.metrics.begin(attempt.device.org).too_large();
        let detail = format!("The arguments have {sent} bytes; {limit} is the limit.");
        content::refused(attempt, &Answer::ended(Outcome::Overloaded, detail))
    })
}
