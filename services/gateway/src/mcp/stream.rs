//! `GET` on an endpoint: the notifications of the older revisions, which have no `subscriptions/listen`.
//! Never: a session; a stream tells what its own endpoint offers anew, and ends with its connection.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_util::stream;
use http::{HeaderMap, StatusCode, header};
use serde_json::json;
use switchboard_runtime::problem::{Problem, method_not_allowed};

use super::{
    access::Visit,
    changes::{Change, Changes},
    era,
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
    let changes = Changes::follow(gateway, visit).await;
    let shutdown = gateway.mcp.shutdown.clone();
    let events = stream::unfold((changes, shutdown), |(mut changes, shutdown)| async move {
        let change = tokio::select! {
            change = changes.next() => change,
            () = shutdown.draining() => return None,
        };
        Some((
            Ok::<_, Infallible>(notification(&change)),
            (changes, shutdown),
        ))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Sse::new(events).keep_alive(keep_alive).into_response())
}

fn notification(change: &Change) -> Event {
    let message = match change {
        Change::Tools => json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
    };
    Event::default().event("message").data(message.to_string())
}
