//! Redis as a backend: each operation as the commands it takes.
//! Never: more than one round trip where one would do.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use redis::{Cmd, Value};
use switchboard_protocol::{
    access::VerifyingKey,
    id::{DeviceId, DeviceKey, OrgId, TokenId},
    schema::Digest,
};
use switchboard_runtime::{clock::unix_time, metrics::Histograms};

use super::{
    link::{Batch, Link},
    record, script,
    stream::Reader,
};
use crate::{
    backend::{Backend, Claimed, Condition, Entry, Figures, Presence, Release, Reply, TrustRecord},
    conversations::{Conversation, ConversationKey, Keeping, NewVersion},
    error::BusError,
    fact::{Fact, FactId},
    metrics::Command,
    node::{Epoch, NodeId},
    turns::{Held, NewTurn, TakenTurn, TurnAt},
};

pub(super) struct RedisBackend {
    pub(super) link: Arc<Link>,
    pub(super) facts: Reader,
    pub(super) turns: Reader,
    pub(super) commands: Histograms<Command>,
}

impl RedisBackend {
    /// The same, with a note of how long it took, unless there was nobody to ask.
    fn timed<'a, T: 'a>(
        &'a self,
        command: Command,
        asked: impl Future<Output = Result<T, BusError>> + Send + 'a,
    ) -> Reply<'a, T> {
        Box::pin(async move {
            let began = Instant::now();
            let answer = asked.await;
            if !matches!(answer, Err(BusError::Unavailable)) {
                self.commands.observe(command, began.elapsed());
            }
            answer
        })
    }

    async fn entrust_with(
        &self,
        keys: Option<&[VerifyingKey]>,
        revoked: &[(TokenId, u64)],
    ) -> Result<(), BusError> {
        let names = &self.link.keys;
        let names = [names.trust(), names.revoked(), names.trust_version()];
        let keys = keys.map(serde_json::to_string).transpose();
        let keys = keys
            .map_err(|error| BusError::Unexpected(error.to_string()))?
            .unwrap_or_default();
        // Lua takes some thousands of arguments at a time, and there is always one round.
        let mut rounds: Vec<&[(TokenId, u64)]> = revoked.chunks(1000).collect();
        if rounds.is_empty() {
            rounds.push(&[]);
        }
        for round in rounds {
            let mut entrust = script::run(&self.link.scripts.entrust, &names);
            entrust.arg(&keys).arg(unix_time().as_secs());
            for (token, expires_at) in round {
                entrust.arg(token.to_string()).arg(*expires_at);
            }
            self.link.query::<Value>(&names[0], &entrust).await?;
        }
        Ok(())
    }

    async fn trust_since(&self, known: u64) -> Result<Option<TrustRecord>, BusError> {
        let names = &self.link.keys;
        let version = names.trust_version();
        let mut ask = redis::cmd("GET");
        ask.arg(&version);
        let version: Option<u64> = self.link.query(&version, &ask).await?;
        let Some(version) = version.filter(|version| *version != known) else {
            return Ok(None);
        };
        let (trust, revoked) = (names.trust(), names.revoked());
        let mut read = Batch::default();
        read.add(&trust, Cmd::get(&trust));
        read.add(&revoked, Cmd::zrange_withscores(&revoked, 0, -1));
        let read = Value::Array(self.link.query_all(read).await?);
        let (keys, revoked): (Option<String>, Vec<(String, f64)>) =
            redis::from_redis_value(read).map_err(redis::RedisError::from)?;
        let keys = keys.map_or_else(|| Ok(Vec::new()), |keys| serde_json::from_str(&keys));
        let keys = keys.map_err(|error| {
            BusError::Unexpected(format!("the public keys are not readable: {error}"))
        })?;
        let revoked = revoked
            .into_iter()
            .filter_map(|(token, expires_at)| Some((token.parse().ok()?, expires_at as u64)))
            .collect();
        Ok(Some(TrustRecord {
            version,
            keys,
            revoked,
        }))
    }

    async fn read_facts(
        &self,
        consumer: &str,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<(FactId, Fact)>, BusError> {
        let entries = self.facts.read(&self.link, consumer, max, wait).await?;
        let (facts, unreadable) = record::split(entries);
        if !unreadable.is_empty() {
            tracing::error!(
                entries = unreadable.len(),
                "struck out entries of the record that no known version wrote"
            );
            self.link.acknowledge(&unreadable).await?;
        }
        Ok(facts)
    }
}

impl Backend for RedisBackend {
    fn condition(&self) -> Condition {
        self.link.condition()
    }

    fn post(&self, to: &NodeId, pack: Bytes) {
        self.link.post(to, pack);
    }

    fn ways(&self) -> usize {
        self.link.ways()
    }

    fn way(&self, to: &NodeId) -> usize {
        self.link.way(to)
    }

    fn flush(&self, way: usize) {
        self.link.flush(way);
    }

    fn is_settled(&self) -> bool {
        self.link.is_settled()
    }

    fn is_clear(&self, way: usize) -> bool {
        self.link.is_clear(way)
    }

    fn clear(&self, way: usize) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.link.clear(way))
    }

    fn broadcast(&self, pack: Bytes) -> Reply<'_, ()> {
        Box::pin(async move {
            let everybody = self.link.keys.everybody();
            let mut publish = redis::cmd(self.link.keys.speech.publish);
            publish.arg(&everybody).arg(&pack[..]);
            let published = self.link.query::<Value>(&everybody, &publish).await;
            published.map(|_| ())
        })
    }

    fn silent<'a>(&'a self, nodes: &'a [NodeId]) -> Reply<'a, Vec<NodeId>> {
        Box::pin(self.link.silent(nodes))
    }

    fn claim<'a>(&'a self, device: &'a DeviceKey) -> Reply<'a, Claimed> {
        self.timed(Command::Claim, self.link.claim(device))
    }

    fn enter(&self, entries: Vec<Entry>) -> Reply<'_, Vec<Option<Epoch>>> {
        self.timed(Command::Enter, self.link.enter(entries))
    }

    fn release(&self, releases: Vec<Release>) -> Reply<'_, ()> {
        self.timed(Command::Enter, self.link.release(releases))
    }

    fn find<'a>(&'a self, org: OrgId, devices: &'a [DeviceId]) -> Reply<'a, Vec<Option<Presence>>> {
        self.timed(Command::Lookup, self.link.find(org, devices))
    }

    fn list<'a>(
        &'a self,
        org: OrgId,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(DeviceId, Presence)>> {
        self.timed(Command::Lookup, self.link.list(org, after, limit))
    }

    fn services<'a>(&'a self, presence: &'a Presence) -> Reply<'a, Option<Bytes>> {
        Box::pin(async move {
            let Some(digest) = presence.digest else {
                return Ok(None);
            };
            let shelf = self.link.keys.shelf(&presence.node);
            let mut get = redis::cmd("HGET");
            get.arg(&shelf).arg(digest.to_string());
            let json: Option<Vec<u8>> = self.link.query(&shelf, &get).await?;
            Ok(json.map(Bytes::from))
        })
    }

    fn beat(&self) -> Reply<'_, Vec<(DeviceKey, Epoch)>> {
        self.timed(Command::Renew, self.link.beat())
    }

    fn figures(&self) -> Reply<'_, Figures> {
        Box::pin(self.link.figures())
    }

    fn close_inbox(&self) -> Reply<'_, ()> {
        Box::pin(self.link.close_inbox())
    }

    fn leave(&self, clean: bool) -> Reply<'_, ()> {
        Box::pin(self.link.leave(clean))
    }

    fn shelve(&self, services: Vec<(Digest, Bytes)>) -> Reply<'_, ()> {
        Box::pin(self.link.shelve(services))
    }

    fn entered(&self) -> Reply<'_, Vec<(DeviceKey, Epoch)>> {
        Box::pin(self.link.entries_of(self.link.node.as_str()))
    }

    fn entrust<'a>(
        &'a self,
        keys: Option<&'a [VerifyingKey]>,
        revoked: &'a [(TokenId, u64)],
    ) -> Reply<'a, ()> {
        Box::pin(self.entrust_with(keys, revoked))
    }

    fn trust(&self, known: u64) -> Reply<'_, Option<TrustRecord>> {
        Box::pin(self.trust_since(known))
    }

    fn record(&self, facts: Vec<Fact>) -> Reply<'_, ()> {
        self.timed(Command::Stream, self.link.record(facts))
    }

    fn facts<'a>(
        &'a self,
        consumer: &'a str,
        max: usize,
        wait: Duration,
    ) -> Reply<'a, Vec<(FactId, Fact)>> {
        Box::pin(self.read_facts(consumer, max, wait))
    }

    fn acknowledge<'a>(&'a self, ids: &'a [FactId]) -> Reply<'a, ()> {
        let ids: Vec<String> = ids.iter().map(|id| id.0.clone()).collect();
        self.timed(
            Command::Stream,
            async move { self.link.acknowledge(&ids).await },
        )
    }

    fn begin_turn(&self, turn: NewTurn) -> Reply<'_, TurnAt> {
        self.timed(Command::Stream, self.link.begin_turn(turn))
    }

    fn withdraw_turns<'a>(&'a self, turns: &'a [TurnAt]) -> Reply<'a, ()> {
        Box::pin(self.link.withdraw_turns(turns))
    }

    fn take_turns(&self, most: usize, wait: Duration) -> Reply<'_, Vec<TakenTurn>> {
        Box::pin(self.link.take_turns(&self.turns, most, wait))
    }

    fn keep_turns<'a>(&'a self, turns: &'a [Held]) -> Reply<'a, Vec<Held>> {
        self.timed(Command::Stream, self.link.keep_turns(turns))
    }

    fn turn_acted(&self, turn: Held) -> Reply<'_, bool> {
        Box::pin(self.link.turn_acted(turn))
    }

    fn end_turn(&self, turn: Held) -> Reply<'_, ()> {
        self.timed(Command::Stream, self.link.end_turn(turn))
    }

    fn conversation<'a>(&'a self, key: &'a ConversationKey) -> Reply<'a, Option<Conversation>> {
        Box::pin(self.link.conversation(key))
    }

    fn keep_conversation<'a>(&'a self, new: NewVersion<'a>) -> Reply<'a, Keeping> {
        Box::pin(self.link.keep_conversation(new))
    }

    fn drop_conversation<'a>(&'a self, key: &'a ConversationKey, version: u64) -> Reply<'a, bool> {
        Box::pin(self.link.drop_conversation(key, version))
    }

    fn take_due_conversations(&self, most: usize, lease: Duration) -> Reply<'_, Vec<Conversation>> {
        Box::pin(self.link.take_due_conversations(most, lease))
    }
}
