//! How much there is in Redis of what all nodes share.
//! Never: a count of the directory by more than one node at a time, or a step in Redis that takes as long as there are devices.

use redis::{Cmd, RedisError, Value};
use switchboard_protocol::id::OrgId;

use super::{
    keys::PARTS,
    link::{Batch, Link, millis},
    turns,
};
use crate::{backend::Figures, error::BusError};

/// For so long nobody else counts the directory.
const COUNTED_FOR: std::time::Duration = std::time::Duration::from_secs(60);
/// How long a count is good for when nobody counts any more.
const KNOWN_FOR: std::time::Duration = std::time::Duration::from_secs(300);
/// Organisations that are asked about in one go.
const AT_ONCE: usize = 512;

impl Link {
    pub(super) async fn figures(&self) -> Result<Figures, BusError> {
        if self.may_count().await? {
            let devices = self.count_devices().await?;
            let key = self.keys.counted();
            let mut keep = Cmd::set(&key, devices);
            keep.arg("PX").arg(millis(KNOWN_FOR));
            self.query::<Value>(&key, &keep).await?;
        }
        let (counted, facts, turns) = (self.keys.counted(), self.keys.facts(), self.keys.turns());
        let mut ask = Batch::default();
        ask.add(&counted, Cmd::get(&counted));
        let mut length = |stream: &String| {
            let mut command = redis::cmd("XLEN");
            command.arg(stream);
            ask.add(stream, command);
        };
        length(&facts);
        length(&turns);
        let said = Value::Array(self.query_all(ask).await?);
        let (devices, facts, all): (Option<i64>, i64, i64) =
            redis::from_redis_value(said).map_err(RedisError::from)?;
        // Those that are being answered are on the stream as well.
        let taken = if all > 0 {
            self.taken(&turns).await?
        } else {
            0
        };
        Ok(Figures {
            devices: devices.unwrap_or_default(),
            facts,
            turns: (all - taken).max(0),
        })
    }

    /// Whether it is this node's turn to count for all.
    async fn may_count(&self) -> Result<bool, BusError> {
        let key = self.keys.counting();
        let mut take = Cmd::set(&key, self.node.as_str());
        take.arg("NX").arg("PX").arg(millis(COUNTED_FOR));
        let taken: Option<String> = self.query(&key, &take).await?;
        Ok(taken.is_some())
    }

    async fn count_devices(&self) -> Result<i64, BusError> {
        let mut ask = Batch::default();
        for part in 0..PARTS {
            let orgs = self.keys.orgs(part);
            ask.add(&orgs, Cmd::smembers(&orgs));
        }
        let orgs = Value::Array(self.query_all(ask).await?);
        let orgs: Vec<Vec<String>> = redis::from_redis_value(orgs).map_err(RedisError::from)?;
        let orgs: Vec<OrgId> = orgs
            .iter()
            .flatten()
            .filter_map(|org| org.parse().ok())
            .collect();
        let mut devices = 0;
        for some in orgs.chunks(AT_ONCE) {
            let mut ask = Batch::default();
            for org in some {
                let directory = self.keys.directory(*org);
                ask.add(&directory, Cmd::hlen(&directory));
            }
            let lengths = Value::Array(self.query_all(ask).await?);
            let lengths: Vec<i64> = redis::from_redis_value(lengths).map_err(RedisError::from)?;
            devices += lengths.iter().sum::<i64>();
        }
        Ok(devices)
    }

    /// How many turns somebody has taken and not ended.
    async fn taken(&self, stream: &str) -> Result<i64, BusError> {
        let mut ask = redis::cmd("XPENDING");
        ask.arg(stream).arg(turns::GROUP);
        // Without a group nobody has taken any.
        let said: Result<Vec<Value>, BusError> = self.query(stream, &ask).await;
        match said.ok().as_deref().and_then(<[Value]>::first) {
            Some(Value::Int(taken)) => Ok(*taken),
            _ => Ok(0),
        }
    }
}
