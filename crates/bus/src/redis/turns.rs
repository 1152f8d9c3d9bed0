//! The stream of turns: one entry for each, taken by one of a group, struck out when it is answered.
//! Never: a turn kept, noted or struck out for a taker that has lost it to another.

use std::time::{Duration, Instant};

use redis::{Value, streams::StreamId};
use switchboard_protocol::id::DeviceKey;
use switchboard_runtime::trace::TraceContext;

use super::{
    keys::Keys,
    link::Link,
    script,
    stream::{Reader, Stream},
};
use crate::{
    error::BusError,
    node::{Epoch, NodeId},
    turns::{Held, MAX_TURNS, NewTurn, Place, TURN_LEASE, TURN_PATIENCE, TakenTurn, TurnAt},
};

/// The one group of takers.
pub(super) const GROUP: &str = "chat";
/// Added to Redis's count of how often a turn was delivered once a taker acted; none is delivered so often.
const ACTED: u32 = 1_000_000;

/// The stream, as its readers know it.
pub(super) fn stream(keys: &Keys) -> Stream {
    Stream {
        key: keys.turns(),
        group: GROUP,
        patience: TURN_LEASE,
    }
}

impl Link {
    pub(super) async fn begin_turn(&self, turn: NewTurn) -> Result<TurnAt, BusError> {
        let NewTurn {
            place,
            node,
            text,
            trace,
        } = turn;
        let names = [self.keys.turns()];
        let mut add = script::run(&self.scripts.begin, &names);
        add.arg(GROUP).arg(MAX_TURNS);
        add.arg(u64::try_from(TURN_PATIENCE.as_millis()).unwrap_or(u64::MAX));
        add.arg("node").arg(node.as_str());
        add.arg("org").arg(place.device.org.to_string());
        add.arg("device").arg(place.device.device.as_str());
        add.arg("epoch").arg(place.epoch.0);
        add.arg("task").arg(&place.task[..]);
        add.arg("text").arg(text);
        if let Some(trace) = trace {
            let mut bytes = Vec::new();
            trace.put(&mut bytes);
            add.arg("trace").arg(bytes);
        }
        let id: String = self.query(&names[0], &add).await?;
        if id.is_empty() {
            return Err(BusError::Overloaded);
        }
        TurnAt::parse(&id).ok_or_else(|| BusError::Unexpected(format!("{id} is no entry's id")))
    }

    pub(super) async fn withdraw_turns(&self, turns: &[TurnAt]) -> Result<(), BusError> {
        if turns.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = turns.iter().map(TurnAt::to_string).collect();
        self.strike(&self.keys.turns(), GROUP, &ids).await
    }

    /// Takes entries out of a stream and its group's list of what is held.
    pub(super) async fn strike(
        &self,
        stream: &str,
        group: &str,
        ids: &[String],
    ) -> Result<(), BusError> {
        let names = [stream.to_owned()];
        // Lua takes some thousands of arguments at a time.
        for round in ids.chunks(1000) {
            let mut strike = script::run(&self.scripts.strike, &names);
            strike.arg(group).arg(round);
            self.query::<Value>(stream, &strike).await?;
        }
        Ok(())
    }

    pub(super) async fn take_turns(
        &self,
        reader: &Reader,
        most: usize,
        wait: Duration,
    ) -> Result<Vec<TakenTurn>, BusError> {
        let deadline = Instant::now() + wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = left.min(reader.look());
            let entries = reader.read(self, self.node.as_str(), most, wait).await?;
            let taken = self.open_turns(entries).await?;
            if !taken.is_empty() || left.is_zero() {
                return Ok(taken);
            }
        }
    }

    /// Reads what was taken, and strikes out what is not worth an answer any more.
    async fn open_turns(&self, entries: Vec<StreamId>) -> Result<Vec<TakenTurn>, BusError> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let names = [self.keys.turns()];
        let mut look = script::run(&self.scripts.taken, &names);
        look.arg(GROUP).arg(self.node.as_str());
        for entry in &entries {
            look.arg(&entry.id);
        }
        let (now_ms, known): (u64, Vec<u32>) = self.query(&names[0], &look).await?;
        let mut taken = Vec::with_capacity(entries.len());
        let mut struck = Vec::new();
        for (entry, count) in entries.iter().zip(known) {
            let (attempts, acted) = (count % ACTED, count > ACTED);
            let waited = |at: TurnAt| Duration::from_millis(now_ms.saturating_sub(at.ms));
            match open(entry) {
                // Withdrawn in between.
                Some(_) if attempts == 0 => {}
                Some((at, turn)) if attempts > 1 || waited(at) < TURN_PATIENCE => {
                    taken.push(TakenTurn {
                        at,
                        turn,
                        attempts,
                        acted,
                        waited: waited(at),
                    });
                }
                _ => struck.push(entry.id.clone()),
            }
        }
        self.strike(&names[0], GROUP, &struck).await?;
        Ok(taken)
    }

    pub(super) async fn keep_turns(&self, turns: &[Held]) -> Result<Vec<Held>, BusError> {
        if turns.is_empty() {
            return Ok(Vec::new());
        }
        let names = [self.keys.turns()];
        let mut keep = script::run(&self.scripts.keep, &names);
        keep.arg(GROUP).arg(self.node.as_str()).arg(ACTED);
        for (at, attempt) in turns {
            keep.arg(at.to_string()).arg(*attempt);
        }
        let kept: Vec<usize> = self.query(&names[0], &keep).await?;
        let kept = kept.into_iter().filter_map(|index| turns.get(index));
        Ok(kept.copied().collect())
    }

    pub(super) async fn turn_acted(&self, (at, attempt): Held) -> Result<bool, BusError> {
        let names = [self.keys.turns()];
        let mut note = script::run(&self.scripts.acted, &names);
        note.arg(GROUP).arg(self.node.as_str()).arg(ACTED);
        note.arg(at.to_string()).arg(attempt);
        self.query(&names[0], &note).await
    }

    pub(super) async fn end_turn(&self, (at, attempt): Held) -> Result<(), BusError> {
        let names = [self.keys.turns()];
        let mut end = script::run(&self.scripts.end, &names);
        end.arg(GROUP).arg(self.node.as_str()).arg(ACTED);
        end.arg(at.to_string()).arg(attempt);
        self.query::<Value>(&names[0], &end).await.map(|_| ())
    }
}

fn open(entry: &StreamId) -> Option<(TurnAt, NewTurn)> {
    let field = |name| entry.get::<String>(name);
    let device = DeviceKey {
        org: field("org")?.parse().ok()?,
        device: field("device")?.parse().ok()?,
    };
    let task = entry.get::<Vec<u8>>("task")?;
    let place = Place {
        device,
        epoch: Epoch(entry.get("epoch")?),
        task: task.try_into().ok()?,
    };
    let turn = NewTurn {
        place,
        node: NodeId::from(&*field("node")?),
        text: field("text")?,
        // One that cannot be read costs the trace, not the turn.
        trace: entry
            .get::<Vec<u8>>("trace")
            .and_then(|bytes| Some(TraceContext::take(&bytes)?.0)),
    };
    Some((TurnAt::parse(&entry.id)?, turn))
}
