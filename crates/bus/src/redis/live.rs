//! The logs of live events in Redis.

use redis::{FromRedisValue, Value};
use switchboard_protocol::id::OrgId;

use super::{
    client::{RedisClient, millis},
    scripts,
};
use crate::{
    backend::BackendFuture,
    error::BusError,
    live::{KeptLog, LOG_TTL, LiveLog, LivePosition, LogPage, MAX_LOG_ENTRIES, StoredEvent},
    metrics::Command,
};

/// An entry of the stream, with its fields and their values in turn.
type StreamEntry = (String, Vec<String>);

impl LiveLog for RedisClient {
    fn keep_log(&self, org: OrgId) -> BackendFuture<'_, KeptLog> {
        self.timed(Command::Stream, async move {
            let names = [self.keys.live_log(org)];
            let mut keep = scripts::call(&self.scripts.keep_log, &names);
            keep.arg(millis(LOG_TTL));
            let (end, has_begun): (String, bool) = self.query(&names[0], &keep).await?;
            Ok(KeptLog {
                end: parse_position(&end)?,
                has_begun,
            })
        })
    }

    fn append_log<'a>(&'a self, org: OrgId, events: &'a [StoredEvent]) -> BackendFuture<'a, ()> {
        self.timed(Command::Stream, async move {
            let names = [self.keys.live_log(org)];
            let mut append = scripts::call(&self.scripts.append_log, &names);
            append.arg(MAX_LOG_ENTRIES);
            for StoredEvent { name, at_ms, data } in events {
                append.arg(&**name).arg(*at_ms).arg(&**data);
            }
            self.query::<Value>(&names[0], &append).await.map(drop)
        })
    }

    fn read_log(&self, org: OrgId, after: LivePosition, max: usize) -> BackendFuture<'_, LogPage> {
        self.timed(Command::Stream, async move {
            let names = [self.keys.live_log(org)];
            let mut read = scripts::call(&self.scripts.read_log, &names);
            read.arg(after.to_string()).arg(max);
            let page: Vec<Value> = self.query(&names[0], &read).await?;
            let mut page = page.into_iter();
            let (Some(end), Some(entries)) = (page.next(), page.next()) else {
                return Ok(LogPage {
                    end: None,
                    entries: Vec::new(),
                });
            };
            let end: String = parse(end)?;
            let entries: Vec<StreamEntry> = parse(entries)?;
            let entries = entries.into_iter().map(parse_entry);
            Ok(LogPage {
                end: Some(parse_position(&end)?),
                entries: entries.collect::<Result<_, _>>()?,
            })
        })
    }
}

fn parse<T: FromRedisValue>(value: Value) -> Result<T, BusError> {
    Ok(redis::from_redis_value(value).map_err(redis::RedisError::from)?)
}

fn parse_position(id: &str) -> Result<LivePosition, BusError> {
    let position = id.parse();
    position.map_err(|error| BusError::Unexpected(format!("the id {id} of a live event: {error}")))
}

fn parse_entry((id, fields): StreamEntry) -> Result<(LivePosition, StoredEvent), BusError> {
    let field = |name: &str| {
        let mut fields = fields.chunks_exact(2);
        let found = fields.find_map(|field| match field {
            [field, value] if field == name => Some(value.as_str()),
            _ => None,
        });
        found.unwrap_or_default()
    };
    let event = StoredEvent {
        name: field("type").into(),
        at_ms: field("at").parse().unwrap_or_default(),
        data: field("data").into(),
    };
    Ok((parse_position(&id)?, event))
}
