//! The stream of device events: appended in batches, read by a group of consumers.

use std::time::Duration;

use redis::streams::StreamId;

use super::{
    client::{CommandGroup, RedisClient},
    keys::Keys,
    stream::StreamGroup,
};
use crate::{
    backend::{BackendFuture, EventStream},
    events::{DeviceEvent, EVENT_ACK_TIMEOUT, EventId},
    metrics::Command,
};

/// The only consumer group.
const GROUP: &str = "control";
/// The approximate length of the stream. Protects Redis while no control plane runs.
const MAX_EVENTS: usize = 100_000;

pub(super) fn stream_group(keys: &Keys) -> StreamGroup {
    StreamGroup {
        key: keys.events(),
        name: GROUP,
        lease: EVENT_ACK_TIMEOUT,
    }
}

impl EventStream for RedisClient {
    fn append_events(&self, events: Vec<DeviceEvent>) -> BackendFuture<'_, ()> {
        self.timed(Command::Stream, async move {
            let stream = self.keys.events();
            let mut commands = CommandGroup::default();
            for event in &events {
                let mut add = redis::cmd("XADD");
                add.arg(&stream).arg("MAXLEN").arg("~").arg(MAX_EVENTS);
                add.arg("*").arg("fact").arg(event.to_json());
                commands.add(&stream, add);
            }
            self.query_all(commands).await.map(|_| ())
        })
    }

    fn read_events<'a>(
        &'a self,
        consumer: &'a str,
        max: usize,
        wait: Duration,
    ) -> BackendFuture<'a, Vec<(EventId, DeviceEvent)>> {
        Box::pin(async move {
            let entries = self.events.read(self, consumer, max, wait).await?;
            let (events, unreadable) = parse_entries(entries);
            if !unreadable.is_empty() {
                tracing::error!(
                    entries = unreadable.len(),
                    "deleted device events that no known version wrote"
                );
                self.delete_entries(&self.keys.events(), GROUP, &unreadable)
                    .await?;
            }
            Ok(events)
        })
    }

    /// Acknowledged events are deleted, so the stream is normally empty.
    fn ack_events<'a>(&'a self, ids: &'a [EventId]) -> BackendFuture<'a, ()> {
        let ids: Vec<String> = ids.iter().map(|id| id.0.clone()).collect();
        self.timed(Command::Stream, async move {
            self.delete_entries(&self.keys.events(), GROUP, &ids).await
        })
    }
}

/// Separates events from the ids of entries that cannot be read. Those are deleted, or they would
/// be delivered for ever.
fn parse_entries(entries: Vec<StreamId>) -> (Vec<(EventId, DeviceEvent)>, Vec<String>) {
    let mut events = Vec::with_capacity(entries.len());
    let mut unreadable = Vec::new();
    for entry in entries {
        let json: Option<Vec<u8>> = entry.get("fact");
        match json.and_then(|json| DeviceEvent::from_json(&json)) {
            Some(event) => events.push((EventId(entry.id), event)),
            None => unreadable.push(entry.id),
        }
    }
    (events, unreadable)
}
