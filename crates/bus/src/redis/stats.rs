//! Totals of what all nodes share in Redis.
//!
//! Invariant: one node at a time counts the directory, and no command takes time in proportion to
//! the number of devices.

use std::time::Duration;

use redis::{Cmd, RedisError, Value, streams::StreamPendingReply};
use switchboard_protocol::id::OrgId;

use super::{
    client::{CommandGroup, RedisClient, millis},
    keys::PARTS,
    postponed_turns, turns,
};
use crate::{backend::Stats, error::BusError};

/// No other node counts the directory within this time.
const COUNT_INTERVAL: Duration = Duration::from_secs(60);
/// How long a count stays available when no node counts again.
const COUNT_TTL: Duration = Duration::from_secs(300);
/// Organisations that are counted in one round trip.
const COUNT_BATCH: usize = 512;

impl RedisClient {
    pub(super) async fn read_stats(&self) -> Result<Stats, BusError> {
        if self.acquire_count().await? {
            let devices = self.count_devices().await?;
            let key = self.keys.device_count();
            let mut set = Cmd::set(&key, devices);
            set.arg("PX").arg(millis(COUNT_TTL));
            self.query::<Value>(&key, &set).await?;
        }
        let (count, events, turns) = (
            self.keys.device_count(),
            self.keys.events(),
            self.keys.turns(),
        );
        let mut read = CommandGroup::default();
        read.add(&count, Cmd::get(&count));
        for stream in [&events, &turns] {
            let mut length = redis::cmd("XLEN");
            length.arg(stream);
            read.add(stream, length);
        }
        let bytes = self.keys.event_bytes();
        read.add(&bytes, Cmd::hget(&bytes, "total"));
        let sizes = self.keys.conversation_sizes();
        read.add(&sizes, Cmd::zscore(&sizes, "~"));
        let values = Value::Array(self.query_all(read).await?);
        type Read = (Option<i64>, i64, i64, Option<i64>, Option<i64>);
        let (devices, events, turn_places, event_bytes, conversation_bytes): Read =
            redis::from_redis_value(values).map_err(RedisError::from)?;
        // Claimed turns are on the stream as well; postponed ones wait.
        let claimed = if turn_places > 0 {
            self.count_claimed(&turns).await?
        } else {
            0
        };
        Ok(Stats {
            devices: devices.unwrap_or_default(),
            events,
            event_bytes: event_bytes.unwrap_or_default(),
            turns: (turn_places - claimed).max(0),
            turn_places,
            conversation_bytes: conversation_bytes.unwrap_or_default(),
        })
    }

    /// Whether this node is the one that counts for all.
    async fn acquire_count(&self) -> Result<bool, BusError> {
        let key = self.keys.count_lock();
        let mut set = Cmd::set(&key, self.node.as_str());
        set.arg("NX").arg("PX").arg(millis(COUNT_INTERVAL));
        let acquired: Option<String> = self.query(&key, &set).await?;
        Ok(acquired.is_some())
    }

    async fn count_devices(&self) -> Result<i64, BusError> {
        let mut devices = 0;
        for orgs in self.list_orgs().await?.chunks(COUNT_BATCH) {
            let mut count = CommandGroup::default();
            for org in orgs {
                let directory = self.keys.directory(*org);
                count.add(&directory, Cmd::hlen(&directory));
            }
            let lengths = Value::Array(self.query_all(count).await?);
            let lengths: Vec<i64> = redis::from_redis_value(lengths).map_err(RedisError::from)?;
            devices += lengths.iter().sum::<i64>();
        }
        Ok(devices)
    }

    /// Every organisation with live devices.
    pub(super) async fn list_orgs(&self) -> Result<Vec<OrgId>, BusError> {
        let mut read = CommandGroup::default();
        for part in 0..PARTS {
            let orgs = self.keys.orgs(part);
            read.add(&orgs, Cmd::smembers(&orgs));
        }
        let orgs = Value::Array(self.query_all(read).await?);
        let orgs: Vec<Vec<String>> = redis::from_redis_value(orgs).map_err(RedisError::from)?;
        let orgs = orgs.iter().flatten().filter_map(|org| org.parse().ok());
        Ok(orgs.collect())
    }

    async fn count_claimed(&self, stream: &str) -> Result<i64, BusError> {
        let mut pending = redis::cmd("XPENDING");
        pending.arg(stream).arg(turns::GROUP);
        // Without a group no turn was claimed yet.
        let reply: Result<StreamPendingReply, BusError> = self.query(stream, &pending).await;
        let Ok(StreamPendingReply::Data(pending)) = reply else {
            return Ok(0);
        };
        let consumers = pending.consumers.iter();
        let workers = consumers
            .filter(|consumer| !consumer.name.starts_with(postponed_turns::CONSUMER_PREFIX));
        let claimed = workers.map(|worker| worker.pending).sum::<usize>();
        Ok(i64::try_from(claimed).unwrap_or(i64::MAX))
    }
}
