//! `GET` on an endpoint: the notification stream of the revisions with a handshake.
//!
//! A stream reports the changes of its own endpoint. It ends with its connection, with its
//! credential, or when the node drains.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_util::{StreamExt as _, stream};
use http::{header, request::Parts};
use serde_json::{Value, json};
use switchboard_runtime::problem::{Problem, ProblemKind, method_not_allowed};

use super::{auth::ClientContext, protocol_version};
use crate::{
    Gateway,
    mcp::subscriptions::{
        changes::{Change, Changes},
        listeners,
    },
};

/// Less than the idle timeout of common proxies.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

pub(super) async fn open(
    gateway: &Arc<Gateway>,
    client: &ClientContext,
    head: &Parts,
) -> Result<Response, Problem> {
    let headers = &head.headers;
    if protocol_version::is_stateless_head(headers) {
        let refused = method_not_allowed(http::Method::GET, head.uri.clone()).await;
        return Err(refused.header(header::ALLOW, "POST"));
    }
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|types| types.to_str().ok());
    if !accept.is_some_and(|types| types.contains("text/event-stream")) {
        return Err(Problem::new(
            ProblemKind::NotAcceptable,
            "A GET opens a stream of notifications and requires Accept: text/event-stream.",
        ));
    }
    let listener = listeners::admit(gateway, &client.caller, head)?;
    let changes = Changes::subscribe(gateway, client).await;
    let shutdown = gateway.mcp.shutdown.clone();
    let state = (changes, listener, shutdown);
    let events = stream::unfold(state, |(mut changes, listener, shutdown)| async move {
        let change = tokio::select! {
            change = changes.next() => change?,
            () = listener.revoked() => return None,
            () = shutdown.draining() => return None,
        };
        let events = stream::iter(notifications(change));
        Some((events, (changes, listener, shutdown)))
    });
    let events = events.flatten().map(Ok::<_, Infallible>);
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_INTERVAL);
    Ok(Sse::new(events).keep_alive(keep_alive).into_response())
}

/// The notifications of a change. Without a session there are no resource subscriptions, so the
/// client is notified of every resource.
fn notifications(change: Change) -> Vec<Event> {
    let list_changed =
        |kind: &str| notification(&format!("notifications/{kind}/list_changed"), None);
    match change {
        Change::Tools => vec![list_changed("tools")],
        Change::Prompts => vec![list_changed("prompts")],
        Change::Resources(None) => vec![list_changed("resources")],
        Change::Resources(Some(uri)) => vec![
            list_changed("resources"),
            notification(
                "notifications/resources/updated",
                Some(json!({ "uri": uri })),
            ),
        ],
    }
}

fn notification(method: &str, params: Option<Value>) -> Event {
    let mut message = json!({"jsonrpc": "2.0", "method": method});
    if let Some(params) = params {
        message["params"] = params;
    }
    Event::default().event("message").data(message.to_string())
}
