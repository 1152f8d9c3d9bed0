//! A synchronous call whose response is a stream of events: what the device reports about the call
//! in flight, and at last its outcome.
//!
//! Invariant: the last event is `result`, and the call is cancelled when its caller disconnects.
#![expect(
    deprecated,
    reason = "logging left the newest revision of MCP, and clients of the older ones still use it"
)]

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    http::{HeaderMap, HeaderValue, header},
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::{StreamExt as _, stream};
use rmcp::model::LoggingLevel;
use serde::Serialize;
use serde_json::Value;
use switchboard_bus::{Notification, NotificationKind};
use switchboard_runtime::{
    budget::{Budget, Budgets, Kind, Owner, Permit},
    idempotency::mark_replayed,
    problem::{Problem, ProblemKind},
};
use switchboard_store::CallKey;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    Attempt, idempotency,
    notification::{Log, Progress},
    response::CallResponse,
};
use crate::Gateway;

/// Notifications queued for a slow caller; further ones are dropped and counted by the bus.
/// Protects memory.
pub(super) const QUEUE_LEN: usize = 8;
/// The most bytes of a notification, as the edge limits them by default.
const MAX_NOTIFICATION_BYTES: usize = 16 * 1024;
/// Less than the idle timeout of common proxies.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The media types that the caller of a call accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accepted {
    /// Anything but a stream of events.
    Json,
    /// A stream of events, and JSON where there is no stream.
    StreamOrJson,
    /// A stream of events only.
    Stream,
}

impl Accepted {
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        let kinds = || crate::media_types(headers, &header::ACCEPT);
        let lists = |wanted: &str| kinds().any(|kind| kind.eq_ignore_ascii_case(wanted));
        if !lists("text/event-stream") {
            return Self::Json;
        }
        match lists("application/json") || lists("application/*") || lists("*/*") {
            true => Self::StreamOrJson,
            false => Self::Stream,
        }
    }
}

/// The slots of calls whose response is a stream.
pub(crate) fn budget(streams: usize, budgets: &Budgets) -> Budget {
    const NAME: &str = "call_streams";
    budgets.reserve(NAME, streams * QUEUE_LEN * MAX_NOTIFICATION_BYTES);
    budgets.slots(NAME, streams, Kind::quarter_of(streams))
}

/// The problem of a call that is not synchronous, whose caller reads streams only.
pub(super) fn not_acceptable() -> Problem {
    Problem::new(
        ProblemKind::NotAcceptable,
        "Only a call with the mode `sync` has a stream of events; accept `application/json` as \
         well, or send `\"mode\": \"sync\"`.",
    )
}

#[derive(Serialize)]
struct LogData {
    level: LoggingLevel,
    data: Value,
}

/// The events of one call.
struct CallStream {
    notifications: mpsc::Receiver<Notification>,
    end: oneshot::Receiver<CallResponse>,
    /// The last event if the call is not concluded, because the process stops.
    interrupted: CallResponse,
    /// Dropping the stream cancels the call.
    _disconnect: DropGuard,
    _permit: Permit,
}

/// Makes the call. What refuses it before it is sent has its usual status; afterwards the status is
/// 200, and the event `result` has the outcome.
pub(super) async fn respond(
    gateway: &Arc<Gateway>,
    attempt: Attempt,
    key: Option<CallKey>,
) -> Result<Response, Problem> {
    let owner = Owner::Org(attempt.device.org.uuid());
    let permit = gateway.call_streams.try_acquire(owner, 1);
    let permit = permit.map_err(|exhausted| attempt.not_sent(exhausted.into()))?;
    if let Some(key) = &key
        && let Some(existing) = idempotency::begin(gateway, &attempt, key).await?
    {
        let result = stream::iter([Ok::<_, Infallible>(result(&existing))]);
        return Ok(mark_replayed(streamed(Sse::new(result).into_response())));
    }
    let (sender, notifications) = mpsc::channel(QUEUE_LEN);
    let (concluded, end) = oneshot::channel();
    let disconnected = CancellationToken::new();
    let call = CallStream {
        notifications,
        end,
        interrupted: CallResponse::lost(attempt.id, attempt.started.elapsed()),
        _disconnect: disconnected.clone().drop_guard(),
        _permit: permit,
    };
    let shutdown = gateway.async_calls.shutdown.clone();
    let (gateway, stop) = (Arc::clone(gateway), shutdown.clone());
    // A task of its own: the call ends in time, however slowly the caller reads.
    shutdown.spawn(async move {
        tokio::select! {
            response = conclude(&gateway, &attempt, key.as_ref(), sender) => {
                // The caller may have disconnected.
                let _ = concluded.send(response);
            }
            () = disconnected.cancelled() => {}
            () = stop.stopping() => {}
        }
    });
    let events = stream::unfold(Some(call), CallStream::next).map(Ok::<_, Infallible>);
    let events = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL));
    Ok(streamed(events.into_response()))
}

async fn conclude(
    gateway: &Gateway,
    attempt: &Attempt,
    key: Option<&CallKey>,
    notifications: mpsc::Sender<Notification>,
) -> CallResponse {
    let notifications = Some(notifications);
    let ended = match key {
        Some(key) => idempotency::finish(gateway, attempt, key, notifications).await,
        None => {
            let responded = attempt.respond(gateway, notifications).await;
            responded.map(|(_, response)| response)
        }
    };
    ended.unwrap_or_else(CallResponse::from_problem)
}

/// Proxies that buffer responses would hold back the stream until its end.
pub(crate) fn streamed(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl CallStream {
    async fn next(call: Option<Self>) -> Option<(Event, Option<Self>)> {
        let mut call = call?;
        while let Some(notification) = call.notifications.recv().await {
            if let Some(event) = event(&notification) {
                return Some((event, Some(call)));
            }
        }
        // The channel closes when the call has ended.
        let ended = (&mut call.end).await.unwrap_or(call.interrupted);
        Some((result(&ended), None))
    }
}

/// The event of a notification; `None` if the device sent something else than is documented.
fn event(notification: &Notification) -> Option<Event> {
    let (name, data) = match notification.kind {
        NotificationKind::Progress => {
            let progress: Progress = serde_json::from_slice(&notification.data).ok()?;
            ("progress", serde_json::to_string(&progress).ok()?)
        }
        NotificationKind::Log => {
            let log: Log = serde_json::from_slice(&notification.data).ok()?;
            let data = LogData {
                level: log.level(),
                data: log.message.unwrap_or_default(),
            };
            ("log", serde_json::to_string(&data).ok()?)
        }
    };
    Some(Event::default().event(name).data(data))
}

/// The last event: the body of the response that a caller without a stream receives, on one line.
/// The result of a device may have line breaks between its tokens, where they mean nothing.
fn result(response: &CallResponse) -> Event {
    let body = String::from_utf8_lossy(&response.body);
    let line = body.replace(['\r', '\n'], " ");
    Event::default().event("result").data(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_sent_only_to_callers_that_accept_it() {
        fn check(accept: Option<&'static str>, expected: Accepted) {
            let accept = accept.map(|accept| (header::ACCEPT, HeaderValue::from_static(accept)));
            let headers = accept.into_iter().collect();
            assert_eq!(Accepted::from_headers(&headers), expected);
        }
        check(None, Accepted::Json);
        check(Some("*/*"), Accepted::Json);
        check(Some("text/*, application/json"), Accepted::Json);
        check(Some("text/event-stream"), Accepted::Stream);
        check(Some("Text/Event-Stream; q=0.9"), Accepted::Stream);
        check(
            Some("application/json, text/event-stream"),
            Accepted::StreamOrJson,
        );
        check(Some("text/event-stream, */*;q=0.1"), Accepted::StreamOrJson);
    }
}
