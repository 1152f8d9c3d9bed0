//! `GET` on an endpoint: the notifications of the older revisions, which have no `subscriptions/listen`.
//! Never: a session; a stream tells what its own endpoint offers anew, and ends with its connection or its credential.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};
use switchboard_runtime::problem::{Problem, method_not_allowed};

use super::{
    access::Visit,
    changes::{Change, Changes},
    era, listeners,
};
use crate::Gateway;

/// Less than what proxies close an idle connection after.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) async fn open(
    gateway: &Arc<Gateway>,
    visit: &Visit,
    uri: http::Uri,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    if era::is_modern_head(headers) {
        let refused = method_not_allowed(http::Method::GET, uri).await;
        return Err(refused.header(header::ALLOW, "POST"));
    }
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|types| types.to_str().ok());
    if !accept.is_some_and(|types| types.contains("text/event-stream")) {
        return Err(Problem::new(
            StatusCode::NOT_ACCEPTABLE,
            "not_acceptable",
            "Not acceptable",
            "A GET opens a stream of notifications: send Accept: text/event-stream.",
        ));
    }
    let listening = listeners::enter(gateway, &visit.caller, headers)?;
    let changes = Changes::follow(gateway, visit).await;
    let shutdown = gateway.mcp.shutdown.clone();
    let begin = (changes, listening, shutdown);
    let events = stream::unfold(begin, |(mut changes, listening, shutdown)| async move {
        let change = tokio::select! {
            change = changes.next() => change?,
            () = listening.over() => return None,
            () = shutdown.draining() => return None,
        };
        let told = stream::iter(notifications(change));
        Some((told, (changes, listening, shutdown)))
    });
    let events = events.flatten().map(Ok::<_, Infallible>);
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Sse::new(events).keep_alive(keep_alive).into_response())
}

/// A client of these revisions cannot say which resources it follows without a session: it is told of all.
fn notifications(change: Change) -> Vec<Event> {
    let list_changed =
        |what: &str| notification(&format!("notifications/{what}/list_changed"), None);
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
