//! The stream of device events: appended in batches, read by a group of consumers.

use std::time::Duration;

use redis::{RedisError, Value, streams::StreamId};

use super::{
    client::{CommandGroup, RedisClient},
    keys::Keys,
    scripts,
    stream::StreamGroup,
};
use crate::{
    backend::{BackendFuture, EventStream},
    events::{DeviceEvent, EVENT_ACK_TIMEOUT, EventId, MAX_EVENT_BYTES, MAX_ORG_EVENT_BYTES},
    metrics::Command,
};

/// The only consumer group.
const GROUP: &str = "control";
/// Events that one script appends: Redis does nothing else meanwhile.
const APPENDED_PER_CALL: usize = 128;
/// Events that are deleted in one script call: Lua accepts some thousands of arguments.
const DELETED_PER_CALL: usize = 1000;

pub(super) fn stream_group(keys: &Keys) -> StreamGroup {
    StreamGroup {
        key: keys.events(),
        name: GROUP,
        lease: EVENT_ACK_TIMEOUT,
    }
}

impl EventStream for RedisClient {
    fn append_events<'a>(&'a self, events: &'a [DeviceEvent]) -> BackendFuture<'a, Vec<usize>> {
        self.timed(Command::Stream, async move {
            let names = self.event_keys();
            let mut commands = CommandGroup::default();
            for chunk in events.chunks(APPENDED_PER_CALL) {
                let mut append = scripts::call(&self.scripts.append_events, &names);
                append.arg(MAX_ORG_EVENT_BYTES).arg(MAX_EVENT_BYTES);
                for event in chunk {
                    append.arg(event.device().org.to_string());
                    append.arg(event.to_json());
                }
                commands.add(&names[0], append);
            }
            let mut refused = Vec::new();
            for (chunk, answer) in self.query_all(commands).await?.into_iter().enumerate() {
                let numbers: Vec<usize> =
                    redis::from_redis_value(answer).map_err(RedisError::from)?;
                let first = chunk * APPENDED_PER_CALL;
                refused.extend(numbers.iter().map(|number| first + number - 1));
            }
            Ok(refused)
        })
    }

    fn read_events<'a>(
        &'a self,
        consumer: &'a str,
        max: usize,
        wait: Duration,
    ) -> BackendFuture<'a, Vec<(EventId, DeviceEvent)>> {
        Box::pin(async move {
            let read = self.events.read(self, consumer, max, wait).await?;
            let (events, unreadable) = parse_entries(read.entries);
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
        self.timed(Command::Stream, async move {
            let names = self.event_keys();
            for chunk in ids.chunks(DELETED_PER_CALL) {
                let mut delete = scripts::call(&self.scripts.delete_events, &names);
                delete.arg(GROUP);
                for EventId { entry, org, bytes } in chunk {
                    delete.arg(entry).arg(org.to_string()).arg(*bytes);
                }
                self.query::<Value>(&names[0], &delete).await?;
            }
            Ok(())
        })
    }
}

impl RedisClient {
    fn event_keys(&self) -> [String; 2] {
        [self.keys.events(), self.keys.event_bytes()]
    }
}

/// Separates events from the ids of entries that cannot be read. Those are deleted, or they would
/// be delivered for ever.
fn parse_entries(entries: Vec<StreamId>) -> (Vec<(EventId, DeviceEvent)>, Vec<String>) {
    let mut events = Vec::with_capacity(entries.len());
    let mut unreadable = Vec::new();
    for entry in entries {
        let json: Option<Vec<u8>> = entry.get("fact");
        let bytes = json.as_ref().map_or(0, Vec::len);
        match json.and_then(|json| DeviceEvent::from_json(&json)) {
            Some(event) => {
                let org = event.device().org;
                let id = EventId {
                    entry: entry.id,
                    org,
                    bytes,
                };
                events.push((id, event));
            }
            None => unreadable.push(entry.id),
        }
    }
    (events, unreadable)
}
