//! An answer as server-sent events: its pieces, and one event that says how it ended.
//! Never: a stream that ends without saying why.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    http::StatusCode,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;
use switchboard_protocol::id::{ConversationId, DeviceId};
use switchboard_runtime::problem::Problem;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::line::{Listener, Piece};

/// Between two signs of life while nothing is said.
const ALIVE: Duration = Duration::from_secs(15);

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Whole,
    /// It was said that there is none.
    NoAnswer,
    TooSlow,
    /// This process ends.
    Stopping,
}

/// An answer on its way to whoever listens.
pub(super) struct Events {
    heard: Listener,
    conversation: ConversationId,
    end: EndTeller,
    /// Whoever stops listening hangs up.
    listens: DropGuard,
}

/// Says how the answer ended; to be dropped after the last piece.
#[derive(Clone, Default)]
pub(super) struct EndTeller(Arc<Mutex<Option<Ended>>>);

impl EndTeller {
    pub(super) fn tell(&self, ended: Ended) {
        *self.0.lock() = Some(ended);
    }
}

#[derive(Serialize)]
struct Called<'a> {
    device_id: &'a DeviceId,
    tool: &'a str,
    params: &'a serde_json::Map<String, serde_json::Value>,
    result: &'a str,
}

impl Events {
    pub(super) fn new(
        heard: Listener,
        conversation: ConversationId,
        hung_up: CancellationToken,
    ) -> Self {
        Self {
            heard,
            conversation,
            end: EndTeller::default(),
            listens: hung_up.drop_guard(),
        }
    }

    pub(super) fn end(&self) -> EndTeller {
        self.end.clone()
    }

    async fn next(mut self) -> Option<(Result<Event, Infallible>, Option<Self>)> {
        let event = match self.heard.next().await {
            Some(piece) => event(&piece),
            None => return Some((Ok(self.last()), None)),
        };
        Some((Ok(event), Some(self)))
    }

    /// The pieces have ended, and what gave them with them.
    fn last(self) -> Event {
        let Self {
            conversation,
            end,
            listens,
            ..
        } = self;
        // The answer is over: nobody hangs up on it.
        let _ = listens.disarm();
        let ended = *end.0.lock();
        let problem = |slug, title, detail: &str| {
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, slug, title, detail);
            let problem = problem.with("conversation_id", conversation);
            Event::default()
                .event("error")
                .data(String::from_utf8_lossy(&problem.document()))
        };
        match ended {
            Some(Ended::Whole) => Event::default()
                .event("end")
                .data(json!({"conversation_id": conversation}).to_string()),
            Some(Ended::NoAnswer) => problem(
                "no_answer",
                "No answer",
                "There is no answer at the moment; the words before say why. A retry is safe unless a call came before.",
            ),
            Some(Ended::TooSlow) => problem(
                "too_slow",
                "Too slow",
                "The answer was not read as fast as it was given, and was stopped.",
            ),
            Some(Ended::Stopping) | None => problem(
                "interrupted",
                "Interrupted",
                "The answer was interrupted; what it called may have been done.",
            ),
        }
    }
}

fn event(piece: &Piece) -> Event {
    match piece {
        Piece::Text(text) => Event::default()
            .event("text")
            .data(json!({"text": text}).to_string()),
        Piece::Call(called) => {
            let called = Called {
                device_id: &called.device,
                tool: &called.tool,
                params: &called.params,
                result: &called.result,
            };
            let data = serde_json::to_string(&called).unwrap_or_default();
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
            .keep_alive(KeepAlive::new().interval(ALIVE))
            .into_response()
    }
}
