//! A group call whose response is a stream of events: each item as its call ends, and at last the sums.
//!
//! Invariant: the calls in flight are cancelled when the caller disconnects.

use std::{collections::VecDeque, convert::Infallible, sync::Arc};

use axum::response::{
    IntoResponse as _, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use serde_json::json;
use switchboard_runtime::budget::Permit;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    Group, Tally,
    item::{DeviceProgress, Progresses},
};
use crate::{
    Gateway,
    calls::stream::{KEEP_ALIVE_INTERVAL, streamed},
};

/// Progresses queued for a slow caller; further ones are dropped. Protects memory.
const QUEUE_LEN: usize = 8;

/// The events of one group.
struct GroupStream {
    /// The first one.
    started: Option<Event>,
    events: mpsc::Receiver<Event>,
    /// Closed when the group has ended.
    progresses: mpsc::Receiver<DeviceProgress>,
    /// Dropping the stream cancels the calls.
    _disconnect: DropGuard,
    _permit: Permit,
}

/// Makes the calls.
pub(super) fn respond(gateway: &Arc<Gateway>, group: Group, permit: Permit) -> Response {
    let (sender, events) = mpsc::channel(QUEUE_LEN);
    let (progress, progresses) = mpsc::channel(QUEUE_LEN);
    let disconnected = CancellationToken::new();
    let started = event("started", &json!({"devices": group.devices.len()}));
    let events = GroupStream {
        started: Some(started),
        events,
        progresses,
        _disconnect: disconnected.clone().drop_guard(),
        _permit: permit,
    };
    let shutdown = gateway.async_calls.shutdown.clone();
    let (gateway, stop) = (Arc::clone(gateway), shutdown.clone());
    shutdown.spawn(async move {
        tokio::select! {
            () = make(&gateway, &group, Progresses::to(progress), sender) => {}
            () = disconnected.cancelled() => {}
            () = stop.stopping() => {}
        }
    });
    let events = stream::unfold(events, GroupStream::next).map(Ok::<_, Infallible>);
    let events = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL));
    streamed(events.into_response())
}

async fn make(
    gateway: &Gateway,
    group: &Group,
    progresses: Progresses,
    events: mpsc::Sender<Event>,
) {
    let mut tally = Tally::new(gateway, group.owner());
    let mut items = std::pin::pin!(group.items(gateway, &progresses).fuse());
    // Items wait here for a slow caller, so that each call ends in time. The tally bounds them.
    let mut waiting = VecDeque::new();
    let mut is_running = true;
    while is_running || !waiting.is_empty() {
        tokio::select! {
            item = items.next(), if is_running => match item {
                Some((_, item)) => waiting.push_back(event("item", &tally.add(item))),
                None => {
                    waiting.push_back(event("ended", &tally.sums));
                    is_running = false;
                }
            },
            room = events.reserve(), if !waiting.is_empty() => match (room, waiting.pop_front()) {
                (Ok(room), Some(event)) => room.send(event),
                // The caller has disconnected.
                _ => return,
            },
        }
    }
}

impl GroupStream {
    /// The next event. Progress precedes the item of its device.
    async fn next(mut self) -> Option<(Event, Self)> {
        if let Some(started) = self.started.take() {
            return Some((started, self));
        }
        let event = tokio::select! {
            biased;
            Some(progress) = self.progresses.recv() => event("progress", &progress),
            next = self.events.recv() => next?,
        };
        Some((event, self))
    }
}

/// An event on one line. The result of a device may have line breaks between its tokens, where they mean
/// nothing.
fn event(name: &str, data: &impl Serialize) -> Event {
    let data = serde_json::to_string(data).unwrap_or_default();
    Event::default()
        .event(name)
        .data(data.replace(['\r', '\n'], " "))
}
