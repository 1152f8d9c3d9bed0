//! The stream of turns: one entry for each, claimed by one worker of a group, deleted when it is
//! completed.

use std::time::{Duration, Instant};

use redis::{Value, streams::StreamId};
use switchboard_protocol::{
    id::{DeviceKey, OrgId},
    message::Picture,
};
use switchboard_runtime::trace::TraceContext;

use super::{
    client::{RedisClient, millis},
    keys::Keys,
    scripts,
    stream::StreamGroup,
};
use crate::{
    backend::{BackendFuture, TurnQueue},
    clock::unix_now_ms,
    error::BusError,
    metrics::Command,
    node::{Epoch, NodeId},
    turns::{
        ClaimedTurn, Lease, MAX_ORG_TURNS, MAX_TURNS, NewMessage, NewTurn, OrgRoom, Played,
        Recording, ReplyTarget, Rooms, TURN_LEASE, TURN_TTL, TurnPosition,
    },
};

/// The only consumer group.
pub(super) const GROUP: &str = "chat";
/// Added to Redis's delivery count of a turn whose worker caused side effects. No turn is
/// delivered that often. The mark is stored there because it then moves with the stream.
const SIDE_EFFECTS: u32 = 1_000_000;
/// The greatest age of a turn that is opened without a look at the queue, by the clocks of Redis and
/// of the node.
const MAX_SOLE_AGE: Duration = Duration::from_millis(500);
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
                message,
                is_alone,
                trace,
            } = turn;
            let names = [self.keys.turns()];
            let mut add = scripts::call(&self.scripts.enqueue_turn, &names);
            let org = target.device.org.to_string();
            add.arg(GROUP).arg(MAX_TURNS).arg(MAX_ORG_TURNS);
            add.arg(millis(TURN_TTL)).arg(&org);
            if let Some((max, max_of_org)) = message.max_pictures() {
                add.arg(max).arg(max_of_org);
            } else {
                add.arg("").arg("");
            }
            add.arg("node").arg(node.as_str());
            add.arg("org").arg(&org);
            add.arg("device").arg(target.device.device.as_str());
            add.arg("epoch").arg(target.epoch.0);
            add.arg("task").arg(&target.task[..]);
            add.arg("text").arg(message.text);
            if message.is_spoken {
                add.arg("spoken").arg(1);
            }
            if let Some(played) = message.played {
                add.arg("played").arg(played.words);
                add.arg("played_message").arg(played.message);
            }
            if let Some(picture) = message.picture {
                add.arg("picture").arg(&picture.payload()[..]);
            }
            if message.audio_ms > 0 {
                add.arg("audio_ms").arg(message.audio_ms);
            }
            if let Some(recording) = message.recording {
                add.arg("recording").arg(&recording.file[..]);
                add.arg("recording_ms").arg(recording.ms);
            }
            if let Some(locale) = message.locale {
                add.arg("locale").arg(locale);
            }
            if let Some(registration) = message.registration {
                add.arg("registration").arg(registration.to_string());
            }
            if is_alone {
                add.arg("alone").arg(1);
            }
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

    fn delete_turns<'a>(&'a self, org: OrgId, turns: &'a [TurnPosition]) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            let org = org.to_string();
            let ids = turns.iter().map(|turn| (turn.to_string(), org.clone()));
            self.delete_turn_entries(&ids.collect::<Vec<_>>()).await
        })
    }

    fn claim_turns<'a>(
        &'a self,
        max: usize,
        wait: Duration,
        room: &'a OrgRoom<'a>,
    ) -> BackendFuture<'a, Vec<ClaimedTurn>> {
        Box::pin(async move {
            let deadline = Instant::now() + wait;
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                let (mut entries, new) = self.read_turns(max, left, room).await?;
                let claimed = match open_sole(&new, room) {
                    Some(sole) if entries.is_empty() => sole,
                    _ => {
                        entries.extend(new);
                        self.open_turns(entries, room).await?
                    }
                };
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

    fn complete_turn(&self, org: OrgId, (position, attempt): Lease) -> BackendFuture<'_, ()> {
        self.timed(Command::Stream, async move {
            let names = [self.keys.turns()];
            let mut complete = scripts::call(&self.scripts.complete_turn, &names);
            complete.arg(GROUP).arg(self.node.as_str());
            complete.arg(SIDE_EFFECTS);
            complete.arg(position.to_string()).arg(attempt);
            complete.arg(org.to_string());
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

    /// Deletes turns, each given with its organisation.
    async fn delete_turn_entries(&self, turns: &[(String, String)]) -> Result<(), BusError> {
        let names = [self.keys.turns()];
        for chunk in turns.chunks(ENTRIES_PER_CALL) {
            let mut delete = scripts::call(&self.scripts.delete_turns, &names);
            delete.arg(GROUP);
            for (turn, org) in chunk {
                delete.arg(turn).arg(org);
            }
            self.query::<Value>(&names[0], &delete).await?;
        }
        Ok(())
    }

    /// Reads postponed turns whose organisation has room again, and abandoned or new ones. Waits
    /// for these if there is none of the former. Returns the new ones apart.
    async fn read_turns(
        &self,
        max: usize,
        wait: Duration,
        room: &OrgRoom<'_>,
    ) -> Result<(Vec<StreamId>, Vec<StreamId>), BusError> {
        let mut entries = self.claim_postponed(max, room).await?;
        let more = max.saturating_sub(entries.len());
        if more == 0 {
            return Ok((entries, Vec::new()));
        }
        let wait = if entries.is_empty() {
            let wait = wait.min(self.turns.scan_interval());
            wait.min(self.postponed.wait())
        } else {
            Duration::ZERO
        };
        let read = self.turns.read(self, self.node.as_str(), more, wait);
        match read.await {
            Ok(read) if read.are_new => return Ok((entries, read.entries)),
            Ok(abandoned) => entries.extend(abandoned.entries),
            Err(error) if entries.is_empty() => return Err(error),
            // The next read reports it. The claimed turns must not wait for that.
            Err(_) => {}
        }
        Ok((entries, Vec::new()))
    }

    /// Parses claimed entries, and deletes those that have expired or cannot be read. Postpones
    /// those whose organisation has no room.
    async fn open_turns(
        &self,
        entries: Vec<StreamId>,
        room: &OrgRoom<'_>,
    ) -> Result<Vec<ClaimedTurn>, BusError> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let names = [self.keys.turns()];
        let mut rooms = Rooms::new(room);
        let mut admit = scripts::call(&self.scripts.admit_turns, &names);
        admit.arg(GROUP).arg(self.node.as_str());
        for entry in &entries {
            let org = field(entry, "org").unwrap_or_default();
            // An entry that cannot be read is admitted, and deleted below.
            let has_room = org.parse().map_or(true, |org| rooms.take(org));
            admit.arg(&entry.id).arg(org).arg(u8::from(has_room));
        }
        let (now_ms, deliveries): (u64, Vec<u32>) = self.query(&names[0], &admit).await?;
        if deliveries.contains(&0) {
            self.postponed.postponed();
        }
        let mut claimed = Vec::with_capacity(entries.len());
        let mut expired = Vec::new();
        for (entry, count) in entries.iter().zip(deliveries) {
            let (attempts, has_side_effects) = (count % SIDE_EFFECTS, count > SIDE_EFFECTS);
            let waited = |at: TurnPosition| Duration::from_millis(now_ms.saturating_sub(at.ms));
            match parse_entry(entry) {
                // Postponed, or deleted in the meantime.
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
                _ => {
                    let org = field(entry, "org").unwrap_or_default();
                    expired.push((entry.id.clone(), org));
                }
            }
        }
        self.delete_turn_entries(&expired).await?;
        Ok(claimed)
    }
}

/// Opens new turns without a look at the queue, if each was the only one of its organisation when it
/// was enqueued, so it is not behind a postponed one. `None` if one was not, if there is no room, and
/// for one that may have waited for long, which also concerns a node whose clock differs from that of
/// Redis.
fn open_sole(entries: &[StreamId], room: &OrgRoom<'_>) -> Option<Vec<ClaimedTurn>> {
    let mut rooms = Rooms::new(room);
    let opened = entries.iter().map(|entry| {
        field(entry, "sole")?;
        let (position, turn) = parse_entry(entry)?;
        let waited = Duration::from_millis(position.ms.abs_diff(unix_now_ms()));
        let is_admitted = waited < MAX_SOLE_AGE && rooms.take(turn.target.device.org);
        is_admitted.then_some(ClaimedTurn {
            position,
            turn,
            attempts: 1,
            has_side_effects: false,
            waited,
        })
    });
    opened.collect()
}

fn field(entry: &StreamId, name: &str) -> Option<String> {
    entry.get(name)
}

fn parse_entry(entry: &StreamId) -> Option<(TurnPosition, NewTurn)> {
    let field = |name| field(entry, name);
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
        message: NewMessage {
            text: field("text")?,
            is_spoken: field("spoken").is_some(),
            played: field("played_message").map(|message| Played {
                message,
                words: field("played").unwrap_or_default(),
            }),
            // An unreadable picture costs the picture, not the turn.
            picture: entry
                .get::<Vec<u8>>("picture")
                .and_then(|bytes| Picture::parse(bytes.into())),
            // An edge of an earlier release does not count it.
            audio_ms: entry.get("audio_ms").unwrap_or_default(),
            recording: entry.get::<Vec<u8>>("recording").map(|file| Recording {
                file: file.into(),
                ms: entry.get("recording_ms").unwrap_or_default(),
            }),
            locale: field("locale"),
            registration: field("registration").and_then(|digest| digest.parse().ok()),
        },
        // An edge of an earlier release does not know it.
        is_alone: field("alone").is_some(),
        // An unreadable context costs the trace, not the turn.
        trace: entry
            .get::<Vec<u8>>("trace")
            .and_then(|bytes| Some(TraceContext::decode(&bytes)?.0)),
    };
    Some((TurnPosition::parse(&entry.id)?, turn))
}
