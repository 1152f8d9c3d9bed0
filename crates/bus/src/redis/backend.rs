//! Redis as a backend: each operation as the commands it takes.
//! Never: more than one round trip where one would do.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use redis::{Pipeline, Value};
use switchboard_protocol::{
    access::VerifyingKey,
    id::{DeviceId, DeviceKey, OrgId, TokenId},
    schema::Digest,
};

use super::{
    link::Link,
    record::{self, Reader},
    script,
};
use crate::{
    backend::{Backend, Claimed, Condition, Entry, Presence, Release, Reply, TrustRecord},
    error::BusError,
    fact::{Fact, FactId},
    node::{Epoch, NodeId},
    trust::unix_now_s,
};

pub(super) struct RedisBackend {
    pub(super) link: Arc<Link>,
    pub(super) reader: Reader,
}

impl RedisBackend {
    async fn silent_of(&self, nodes: &[NodeId]) -> Result<Vec<NodeId>, BusError> {
        let mut ask = redis::cmd("PUBSUB");
        ask.arg("NUMSUB");
        for node in nodes {
            ask.arg(self.link.keys.inbox(node));
        }
        let listening: std::collections::HashMap<String, u64> = self.link.query(&ask).await?;
        let silent = nodes.iter().filter(|node| {
            listening
                .get(&self.link.keys.inbox(node))
                .is_none_or(|n| *n == 0)
        });
        Ok(silent.cloned().collect())
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
            entrust.arg(&keys).arg(unix_now_s());
            for (token, expires_at) in round {
                entrust.arg(token.to_string()).arg(*expires_at);
            }
            self.link.query::<Value>(&entrust).await?;
        }
        Ok(())
    }

    async fn trust_since(&self, known: u64) -> Result<Option<TrustRecord>, BusError> {
        let names = &self.link.keys;
        let version: Option<u64> = self
            .link
            .query(redis::cmd("GET").arg(names.trust_version()))
            .await?;
        let Some(version) = version.filter(|version| *version != known) else {
            return Ok(None);
        };
        let mut read = Pipeline::new();
        read.get(names.trust())
            .zrange_withscores(names.revoked(), 0, -1);
        let (keys, revoked): (Option<String>, Vec<(String, f64)>) =
            self.link.query_all(&read).await?;
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
        let entries = self.reader.read(consumer, max, wait).await?;
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

    fn flush(&self) {
        self.link.flush();
    }

    fn is_clear(&self) -> bool {
        self.link.is_clear()
    }

    fn clear(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.link.clear())
    }

    fn broadcast(&self, pack: Bytes) -> Reply<'_, ()> {
        Box::pin(async move {
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(self.link.keys.everybody()).arg(&pack[..]);
            self.link.query::<Value>(&publish).await.map(|_| ())
        })
    }

    fn silent<'a>(&'a self, nodes: &'a [NodeId]) -> Reply<'a, Vec<NodeId>> {
        Box::pin(self.silent_of(nodes))
    }

    fn claim<'a>(&'a self, device: &'a DeviceKey) -> Reply<'a, Claimed> {
        Box::pin(self.link.claim(device))
    }

    fn enter(&self, entries: Vec<Entry>) -> Reply<'_, Vec<Option<Epoch>>> {
        Box::pin(self.link.enter(entries))
    }

    fn release(&self, releases: Vec<Release>) -> Reply<'_, ()> {
        Box::pin(self.link.release(releases))
    }

    fn find<'a>(&'a self, org: OrgId, devices: &'a [DeviceId]) -> Reply<'a, Vec<Option<Presence>>> {
        Box::pin(self.link.find(org, devices))
    }

    fn list<'a>(
        &'a self,
        org: OrgId,
        after: Option<&'a str>,
        limit: usize,
    ) -> Reply<'a, Vec<(DeviceId, Presence)>> {
        Box::pin(self.link.list(org, after, limit))
    }

    fn services<'a>(&'a self, presence: &'a Presence) -> Reply<'a, Option<Bytes>> {
        Box::pin(async move {
            let Some(digest) = presence.digest else {
                return Ok(None);
            };
            let mut get = redis::cmd("HGET");
            get.arg(self.link.keys.shelf(&presence.node))
                .arg(digest.to_string());
            let json: Option<Vec<u8>> = self.link.query(&get).await?;
            Ok(json.map(Bytes::from))
        })
    }

    fn beat(&self) -> Reply<'_, Vec<(DeviceKey, Epoch)>> {
        Box::pin(self.link.beat())
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
        Box::pin(self.link.record(facts))
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
        Box::pin(async move {
            let ids: Vec<String> = ids.iter().map(|id| id.0.clone()).collect();
            self.link.acknowledge(&ids).await
        })
    }
}
