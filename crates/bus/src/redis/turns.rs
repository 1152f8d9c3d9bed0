//! The stream of turns: one entry for each, claimed by one worker of a group, deleted when it is
//! completed.

use std::time::{Duration, Instant};

use redis::{Value, streams::StreamId};
use switchboard_protocol::id::DeviceKey;
use switchboard_runtime::trace::TraceContext;

use super::{
    client::{RedisClient, millis},
    keys::Keys,
    scripts,
    stream::StreamGroup,
};
use crate::{
    backend::{BackendFuture, TurnQueue},
    error::BusError,
    metrics::Command,
    node::{Epoch, NodeId},
    turns::{
        ClaimedTurn, Lease, MAX_TURNS, NewTurn, ReplyTarget, TURN_LEASE, TURN_TTL, TurnPosition,
    },
};

/// The only consumer group.
pub(super) const GROUP: &str = "chat";
/// Added to Redis's delivery count of a turn whose worker caused side effects. No turn is
/// delivered that often. The mark is stored there because it then moves with the stream.
const SIDE_EFFECTS: u32 = 1_000_000;
/// Entries in one script call: Lua accepts some thousands of arguments.
const ENTRIES_PER_CALL: usize = 1000;

pub(super) fn stream_group(keys: &Keys) -> StreamGroup {
    StreamGroup {
        key: keys.turns(),
        name: GROUP,
        lease: TURN_LEASE,
    }
}

/// Invariant: a worker whose lease was taken over renews, marks and completes nothing.
impl TurnQueue for RedisClient {
    fn enqueue_turn(&self, turn: NewTurn) -> BackendFuture<'_, TurnPosition> {
        self.timed(Command::Stream, async move {
            let NewTurn {
                target,
                node,
                text,
                trace,
            } = turn;
            let names = [self.keys.turns()];
            let mut add = scripts::call(&self.scripts.enqueue_turn, &names);
            add.arg(GROUP).arg(MAX_TURNS).arg(millis(TURN_TTL));
            add.arg("node").arg(node.as_str());
            add.arg("org").arg(target.device.org.to_string());
            add.arg("device").arg(target.device.device.as_str());
            add.arg("epoch").arg(target.epoch.0);
            add.arg("task").arg(&target.task[..]);
            add.arg("text").arg(text);
            if let Some(trace) = trace {
                let mut bytes = Vec::new();
                trace.encode(&mut bytes);
                add.arg("trace").arg(bytes);
            }
            let id: String = self.query(&names[0], &add).await?;
            if id.is_empty() {
                return Err(BusError::Overloaded);
            }
            TurnPosition::parse(&id)
                .ok_or_else(|| BusError::Unexpected(format!("{id} is not the id of an entry")))
        })
    }

    fn delete_turns<'a>(&'a self, turns: &'a [TurnPosition]) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            let ids: Vec<String> = turns.iter().map(TurnPosition::to_string).collect();
            self.delete_entries(&self.keys.turns(), GROUP, &ids).await
        })
    }

    fn claim_turns(&self, max: usize, wait: Duration) -> BackendFuture<'_, Vec<ClaimedTurn>> {
        Box::pin(async move {
            let reader = &self.turns;
            let deadline = Instant::now() + wait;
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                let wait = left.min(reader.scan_interval());
                let entries = reader.read(self, self.node.as_str(), max, wait).await?;
                let claimed = self.open_turns(entries).await?;
                if !claimed.is_empty() || left.is_zero() {
                    return Ok(claimed);
                }
            }
        })
    }

    fn renew_turns<'a>(&'a self, turns: &'a [Lease]) -> BackendFuture<'a, Vec<Lease>> {
        self.timed(Command::Stream, async move {
            if turns.is_empty() {
                return Ok(Vec::new());
            }
            let names = [self.keys.turns()];
            let mut renew = scripts::call(&self.scripts.renew_turns, &names);
            renew.arg(GROUP).arg(self.node.as_str()).arg(SIDE_EFFECTS);
            for (position, attempt) in turns {
                renew.arg(position.to_string()).arg(*attempt);
            }
            let renewed: Vec<usize> = self.query(&names[0], &renew).await?;
            let renewed = renewed.into_iter().filter_map(|index| turns.get(index));
            Ok(renewed.copied().collect())
        })
    }

    fn mark_side_effects(&self, (position, attempt): Lease) -> BackendFuture<'_, bool> {
        Box::pin(async move {
            let names = [self.keys.turns()];
            let mut mark = scripts::call(&self.scripts.mark_side_effects, &names);
            mark.arg(GROUP).arg(self.node.as_str()).arg(SIDE_EFFECTS);
            mark.arg(position.to_string()).arg(attempt);
            self.query(&names[0], &mark).await
        })
    }

    fn complete_turn(&self, (position, attempt): Lease) -> BackendFuture<'_, ()> {
        self.timed(Command::Stream, async move {
            let names = [self.keys.turns()];
            let mut complete = scripts::call(&self.scripts.complete_turn, &names);
            complete.arg(GROUP).arg(self.node.as_str());
            complete.arg(SIDE_EFFECTS);
            complete.arg(position.to_string()).arg(attempt);
            self.query::<Value>(&names[0], &complete).await.map(|_| ())
        })
    }
}

impl RedisClient {
    /// Acknowledges and deletes entries of a stream.
    pub(super) async fn delete_entries(
        &self,
        stream: &str,
        group: &str,
        ids: &[String],
    ) -> Result<(), BusError> {
        let names = [stream.to_owned()];
        for chunk in ids.chunks(ENTRIES_PER_CALL) {
            let mut delete = scripts::call(&self.scripts.delete_entries, &names);
            delete.arg(group).arg(chunk);
            self.query::<Value>(stream, &delete).await?;
        }
        Ok(())
    }

    /// Parses claimed entries, and deletes those that have expired or cannot be read.
    async fn open_turns(&self, entries: Vec<StreamId>) -> Result<Vec<ClaimedTurn>, BusError> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let names = [self.keys.turns()];
        let mut read = scripts::call(&self.scripts.count_deliveries, &names);
        read.arg(GROUP).arg(self.node.as_str());
        for entry in &entries {
            read.arg(&entry.id);
        }
        let (now_ms, deliveries): (u64, Vec<u32>) = self.query(&names[0], &read).await?;
        let mut claimed = Vec::with_capacity(entries.len());
        let mut expired = Vec::new();
        for (entry, count) in entries.iter().zip(deliveries) {
            let (attempts, has_side_effects) = (count % SIDE_EFFECTS, count > SIDE_EFFECTS);
            let waited = |at: TurnPosition| Duration::from_millis(now_ms.saturating_sub(at.ms));
            match parse_entry(entry) {
                // Deleted in the meantime.
                Some(_) if attempts == 0 => {}
                Some((position, turn)) if attempts > 1 || waited(position) < TURN_TTL => {
                    claimed.push(ClaimedTurn {
                        position,
                        turn,
                        attempts,
                        has_side_effects,
                        waited: waited(position),
                    });
                }
                _ => expired.push(entry.id.clone()),
            }
        }
        self.delete_entries(&names[0], GROUP, &expired).await?;
        Ok(claimed)
    }
}

fn parse_entry(entry: &StreamId) -> Option<(TurnPosition, NewTurn)> {
    let field = |name| entry.get::<String>(name);
    let device = DeviceKey {
        org: field("org")?.parse().ok()?,
        device: field("device")?.parse().ok()?,
    };
    let task = entry.get::<Vec<u8>>("task")?;
    let target = ReplyTarget {
        device,
        epoch: Epoch(entry.get("epoch")?),
        task: task.try_into().ok()?,
    };
    let turn = NewTurn {
        target,
        node: NodeId::from(&*field("node")?),
        text: field("text")?,
        // An unreadable context costs the trace, not the turn.
        trace: entry
            .get::<Vec<u8>>("trace")
            .and_then(|bytes| Some(TraceContext::decode(&bytes)?.0)),
    };
    Some((TurnPosition::parse(&entry.id)?, turn))
}
