//! `subscriptions/listen`: notifies a client of changes of its endpoint.
//!
//! Invariant: a client receives only notifications that it requested and may read.

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
use switchboard_runtime::problem::{Problem, ProblemKind};

use super::{
    changes::{Change, Changes},
    listeners::{self, ListenError, ListenerGuard, RETRY_AFTER_S},
};
use crate::{
    Gateway,
    mcp::transport::{
        auth::ClientContext,
        encoding::{self, Encoding},
        protocol_version,
        reservation::OVERLOADED,
    },
};

/// The header that names the method. rmcp refuses a body with another method.
const METHOD_HEADER: HeaderName = HeaderName::from_static("mcp-method");
const METHOD: &str = "subscriptions/listen";

/// An admitted listener, until rmcp serves it. It is subscribed to changes before the client
/// receives the acknowledgement.
#[derive(Clone)]
pub(in crate::mcp) struct Subscription(Arc<Mutex<Option<(ListenerGuard, Changes)>>>);

/// The parts of the request that decide on its admission.
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

/// Whether a request with these headers is a subscription.
pub(in crate::mcp) fn is_subscription(headers: &HeaderMap) -> bool {
    let method = headers.get(METHOD_HEADER);
    method.is_some_and(|method| method == METHOD) && protocol_version::is_stateless_head(headers)
}

/// Admits a listener.
///
/// # Errors
/// The response, if the client cannot read a stream, exceeds a limit, or has no valid credential.
pub(in crate::mcp) async fn admit(
    gateway: &Arc<Gateway>,
    client: &ClientContext,
    (head, encoding): (&Parts, Encoding),
    body: &[u8],
) -> Result<Subscription, Response> {
    if !encoding.can_stream() {
        return Err(not_acceptable().into_response());
    }
    // rmcp refuses an invalid message later.
    let message = serde_json::from_slice::<Message>(body).ok();
    let id = message.as_ref().map_or(&Value::Null, |message| &message.id);
    let resources = message
        .as_ref()
        .and_then(|message| message.params.notifications.resource_subscriptions.as_ref());
    let (count, limit) = (
        resources.map_or(0, Vec::len),
        gateway.mcp.max_resource_subscriptions,
    );
    if count > limit {
        let detail = format!("{count} resource subscriptions exceed the limit of {limit}");
        let code = ErrorCode::INVALID_PARAMS;
        return Err(encoding::refusal(StatusCode::OK, code, &detail, id));
    }
    let listener = listeners::admit(gateway, &client.caller, head);
    let listener = listener.map_err(|error| match error {
        ListenError::Credential(problem) => problem.into_response(),
        ListenError::TooMany { limit } => too_many(limit, id),
    })?;
    let changes = Changes::subscribe(gateway, client).await;
    let subscription = Mutex::new(Some((listener, changes)));
    Ok(Subscription(Arc::new(subscription)))
}

/// The requested notifications that a caller may receive.
pub(in crate::mcp) fn permitted(
    requested: &SubscriptionFilter,
    can_read: bool,
) -> SubscriptionFilter {
    let mut permitted = requested.clone();
    if !can_read {
        permitted.prompts_list_changed = None;
        permitted.resources_list_changed = None;
        permitted.resource_subscriptions = None;
    }
    permitted
}

/// Notifies the client until it disconnects, its credential is revoked, its endpoint is deleted,
/// or this node drains.
pub(in crate::mcp) async fn run(
    gateway: &Gateway,
    context: &SubscriptionContext,
) -> Result<(), ErrorData> {
    let parts = context.request_context().extensions.get::<Parts>();
    let subscription = parts.and_then(|parts| parts.extensions.get::<Subscription>());
    let admitted = subscription.and_then(|subscription| subscription.0.lock().take());
    let (listener, changes) =
        admitted.ok_or_else(|| ErrorData::internal_error("the listener was not admitted", None))?;
    tokio::select! {
        () = notify(context, changes) => {}
        () = listener.revoked() => {}
        () = context.cancelled() => {}
        () = gateway.mcp.shutdown.draining() => {}
    }
    Ok(())
}

async fn notify(context: &SubscriptionContext, mut changes: Changes) {
    let (accepted, sink) = (context.accepted(), context.sink());
    while let Some(change) = changes.next().await {
        let sent = match change {
            Change::Tools if accepted.tools_list_changed == Some(true) => {
                sink.notify_tool_list_changed().await
            }
            Change::Prompts if accepted.prompts_list_changed == Some(true) => {
                sink.notify_prompt_list_changed().await
            }
            Change::Resources(uri) => notify_resources(context, uri).await,
            Change::Tools | Change::Prompts => Ok(()),
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "notification not sent: the listener disconnected");
            return;
        }
    }
}

/// Sends that the list changed, and that the subscribed resource with this URI did. Without a URI
/// any of them may have changed.
async fn notify_resources(
    context: &SubscriptionContext,
    uri: Option<Box<str>>,
) -> Result<(), SubscriptionSendError> {
    let (accepted, sink) = (context.accepted(), context.sink());
    if accepted.resources_list_changed == Some(true) {
        sink.notify_resource_list_changed().await?;
    }
    let subscribed = accepted.resource_subscriptions.iter().flatten();
    let is_changed = |subscribed: &&String| uri.as_ref().is_none_or(|uri| **uri == **subscribed);
    for subscribed in subscribed.filter(is_changed) {
        sink.notify_resource_updated(subscribed.as_str()).await?;
    }
    Ok(())
}

fn not_acceptable() -> Problem {
    Problem::new(
        ProblemKind::NotAcceptable,
        "A subscription is a stream of JSON messages and requires Accept: text/event-stream.",
    )
}

fn too_many(limit: usize, id: &Value) -> Response {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let mut response = encoding::refusal(status, OVERLOADED, &ListenError::too_many(limit), id);
    let seconds = HeaderValue::from(RETRY_AFTER_S);
    response.headers_mut().insert(header::RETRY_AFTER, seconds);
    response
}
