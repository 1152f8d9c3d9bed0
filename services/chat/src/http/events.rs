//! An answer as server-sent events. The last event states how the answer ended.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_util::stream;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;
use switchboard_protocol::id::{ConversationId, DeviceId};
use switchboard_runtime::problem::{Problem, ProblemKind};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    answer::retrieval::Source,
    http::channel::{SseReceiver, StreamItem},
};

/// Interval of keep-alive comments.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The end of an answer.
#[derive(Debug, PartialEq)]
pub(super) enum StreamEnd {
    /// With what the answer is based on.
    Complete(Vec<Source>),
    /// An apology was sent.
    NoAnswer,
    TooSlow,
    /// The process is stopping.
    Stopping,
}

/// The stream of an answer.
pub(super) struct Events {
    items: SseReceiver,
    conversation: ConversationId,
    end: EndSlot,
    /// Dropping the stream stops the answer.
    disconnect: DropGuard,
}

/// Where the producer sets the end of the answer, before it drops the sender.
#[derive(Clone, Default)]
pub(super) struct EndSlot(Arc<Mutex<Option<StreamEnd>>>);

impl EndSlot {
    pub(super) fn set(&self, end: StreamEnd) {
        *self.0.lock() = Some(end);
    }
}

#[derive(Serialize)]
struct CallData<'a> {
    device_id: &'a DeviceId,
    tool: &'a str,
    params: &'a serde_json::Map<String, serde_json::Value>,
    result: &'a str,
}

impl Events {
    pub(super) fn new(
        items: SseReceiver,
        conversation: ConversationId,
        disconnected: CancellationToken,
    ) -> Self {
        Self {
            items,
            conversation,
            end: EndSlot::default(),
            disconnect: disconnected.drop_guard(),
        }
    }

    pub(super) fn end(&self) -> EndSlot {
        self.end.clone()
    }

    async fn next(mut self) -> Option<(Result<Event, Infallible>, Option<Self>)> {
        let event = match self.items.next().await {
            Some(item) => event(&item),
            None => return Some((Ok(self.last_event()), None)),
        };
        Some((Ok(event), Some(self)))
    }

    /// The event after the last item.
    fn last_event(self) -> Event {
        let Self {
            conversation,
            end,
            disconnect,
            ..
        } = self;
        // The answer has ended; there is nothing to stop.
        let _ = disconnect.disarm();
        let end = end.0.lock().take();
        let problem = |kind, detail: &str| {
            let problem = Problem::new(kind, detail);
            let problem = problem.with("conversation_id", conversation);
            Event::default()
                .event("error")
                .data(String::from_utf8_lossy(&problem.document()))
        };
        match end {
            Some(StreamEnd::Complete(sources)) => {
                let data = json!({"conversation_id": conversation, "sources": sources});
                Event::default().event("end").data(data.to_string())
            }
            Some(StreamEnd::NoAnswer) => problem(
                ProblemKind::NoAnswer,
                "There is no answer at the moment; the text before states why. A retry is safe unless a call came before.",
            ),
            Some(StreamEnd::TooSlow) => problem(
                ProblemKind::TooSlow,
                "The client read too slowly; the answer was stopped.",
            ),
            Some(StreamEnd::Stopping) | None => problem(
                ProblemKind::Interrupted,
                "The answer was interrupted; its calls may have been executed.",
            ),
        }
    }
}

fn event(item: &StreamItem) -> Event {
    match item {
        StreamItem::Text(text) => Event::default()
            .event("text")
            .data(json!({"text": text}).to_string()),
        StreamItem::Call(call) => {
            let data = CallData {
                device_id: &call.device,
                tool: &call.tool,
                params: &call.params,
                result: &call.result,
            };
            let data = serde_json::to_string(&data).unwrap_or_default();
            Event::default().event("call").data(data)
        }
    }
}

impl IntoResponse for Events {
    fn into_response(self) -> Response {
        let events = stream::unfold(Some(self), async |events| match events {
            Some(events) => events.next().await,
            None => None,
        });
        Sse::new(events)
            .keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL))
            .into_response()
    }
}
