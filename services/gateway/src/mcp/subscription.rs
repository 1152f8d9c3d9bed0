//! `subscriptions/listen`: a client hears what changes in what its endpoint offers.
//! Never: a notification that the client did not ask for, or one that it may not hear.

use std::sync::Arc;

use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts};
use parking_lot::Mutex;
use rmcp::{
    ErrorData,
    model::{ErrorCode, SubscriptionFilter},
    service::{SubscriptionContext, SubscriptionSendError},
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use switchboard_runtime::problem::Problem;

use super::{
    access::Visit,
    changes::{Change, Changes},
    encoding::{self, Encoding},
    era,
    listeners::{self, Denied, Listening, RETRY_AFTER_S},
};
use crate::Gateway;

/// Names a request's method; the protocol's implementation refuses a body that says otherwise.
const METHOD_HEADER: HeaderName = HeaderName::from_static("mcp-method");
const METHOD: &str = "subscriptions/listen";
/// The caller has as many listeners as it may have.
const TOO_MANY: ErrorCode = ErrorCode(-32_000);

/// A listener that was let in, until it is served. It follows the changes from before the client is told so.
#[derive(Clone)]
pub(super) struct Subscription(Arc<Mutex<Option<(Listening, Changes)>>>);

/// As much of the request as decides whether it is let in.
#[derive(Deserialize)]
struct Message {
    id: Value,
    params: Params,
}

#[derive(Deserialize)]
struct Params {
    notifications: Notifications,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Notifications {
    resource_subscriptions: Option<Vec<IgnoredAny>>,
}

/// Whether a request with this head is to listen.
pub(super) fn is_meant(headers: &HeaderMap) -> bool {
    let method = headers.get(METHOD_HEADER);
    method.is_some_and(|method| method == METHOD) && era::is_modern_head(headers)
}

/// Lets a listener in.
///
/// # Errors
/// The answer, when its client cannot read a stream, wants more than it may, or has no good credential any more.
pub(super) async fn admit(
    gateway: &Arc<Gateway>,
    visit: &Visit,
    (headers, encoding): (&HeaderMap, Encoding),
    body: &[u8],
) -> Result<Subscription, Response> {
    if !encoding.can_stream() {
        return Err(not_acceptable().into_response());
    }
    // What does not fit is refused with the reason later on.
    let message = serde_json::from_slice::<Message>(body).ok();
    let id = message.as_ref().map_or(&Value::Null, |message| &message.id);
    let followed = message
        .as_ref()
        .and_then(|message| message.params.notifications.resource_subscriptions.as_ref());
    let (followed, limit) = (followed.map_or(0, Vec::len), gateway.mcp.followed_limit);
    if followed > limit {
        let detail = format!("{followed} resources are to be followed; {limit} is the limit");
        let code = ErrorCode::INVALID_PARAMS;
        return Err(encoding::refusal(StatusCode::OK, code, &detail, id));
    }
    let listening = listeners::enter(gateway, &visit.caller, headers);
    let listening = listening.map_err(|denied| match denied {
        Denied::Credential(problem) => problem.into_response(),
        Denied::TooMany { limit } => too_many(limit, id),
    })?;
    let changes = Changes::follow(gateway, visit).await;
    Ok(Subscription(Arc::new(Mutex::new(Some((
        listening, changes,
    ))))))
}

/// What a caller hears of all that it asked for.
pub(super) fn audible(requested: &SubscriptionFilter, reads: bool) -> SubscriptionFilter {
    let mut audible = requested.clone();
    if !reads {
        audible.prompts_list_changed = None;
        audible.resources_list_changed = None;
        audible.resource_subscriptions = None;
    }
    audible
}

/// Tells the client until it leaves, its credential is no longer good, its endpoint is no more, or this node stops.
pub(super) async fn run(gateway: &Gateway, context: &SubscriptionContext) -> Result<(), ErrorData> {
    let parts = context.request_context().extensions.get::<Parts>();
    let subscription = parts.and_then(|parts| parts.extensions.get::<Subscription>());
    let admitted = subscription.and_then(|subscription| subscription.0.lock().take());
    let (listening, changes) = admitted
        .ok_or_else(|| ErrorData::internal_error("the listener came in past the gate", None))?;
    tokio::select! {
        () = tell(context, changes) => {}
        () = listening.over() => {}
        () = context.cancelled() => {}
        () = gateway.mcp.shutdown.draining() => {}
    }
    Ok(())
}

async fn tell(context: &SubscriptionContext, mut changes: Changes) {
    let (accepted, sink) = (context.accepted(), context.sink());
    while let Some(change) = changes.next().await {
        let told = match change {
            Change::Tools if accepted.tools_list_changed == Some(true) => {
                sink.notify_tool_list_changed().await
            }
            Change::Prompts if accepted.prompts_list_changed == Some(true) => {
                sink.notify_prompt_list_changed().await
            }
            Change::Resources(uri) => tell_resources(context, uri).await,
            Change::Tools | Change::Prompts => Ok(()),
        };
        if let Err(error) = told {
            tracing::debug!(%error, "a listener has gone");
            return;
        }
    }
}

/// Tells that the list changed, and that a resource did which the client follows; without a URI each of them may have.
async fn tell_resources(
    context: &SubscriptionContext,
    uri: Option<Box<str>>,
) -> Result<(), SubscriptionSendError> {
    let (accepted, sink) = (context.accepted(), context.sink());
    if accepted.resources_list_changed == Some(true) {
        sink.notify_resource_list_changed().await?;
    }
    let followed = accepted.resource_subscriptions.iter().flatten();
    for followed in followed.filter(|followed| uri.as_ref().is_none_or(|uri| **uri == ***followed))
    {
        sink.notify_resource_updated(followed.as_str()).await?;
    }
    Ok(())
}

fn not_acceptable() -> Problem {
    Problem::new(
        StatusCode::NOT_ACCEPTABLE,
        "not_acceptable",
        "Not acceptable",
        "A subscription is a stream of JSON messages: accept text/event-stream as well.",
    )
}

fn too_many(limit: usize, id: &Value) -> Response {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let mut response = encoding::refusal(status, TOO_MANY, &Denied::too_many(limit), id);
    let seconds = HeaderValue::from(RETRY_AFTER_S);
    response.headers_mut().insert(header::RETRY_AFTER, seconds);
    response
}
