//! The stream of facts: written in batches, read by a group of consumers that share it.
//! Never: a fact struck out before its reader said that it is safe.

use redis::streams::StreamId;

use super::{
    keys::Keys,
    link::{Batch, Link},
    stream::Stream,
};
use crate::{
    error::BusError,
    fact::{FACT_PATIENCE, Fact, FactId},
};

/// The one group of consumers.
const GROUP: &str = "control";
/// The stream's length is bounded: protects Redis while no control plane runs.
const MAX_FACTS: usize = 100_000;

/// The stream, as its readers know it.
pub(super) fn stream(keys: &Keys) -> Stream {
    Stream {
        key: keys.facts(),
        group: GROUP,
        patience: FACT_PATIENCE,
    }
}

impl Link {
    pub(super) async fn record(&self, facts: Vec<Fact>) -> Result<(), BusError> {
        let stream = self.keys.facts();
        let mut commands = Batch::default();
        for fact in &facts {
            let mut add = redis::cmd("XADD");
            add.arg(&stream).arg("MAXLEN").arg("~").arg(MAX_FACTS);
            add.arg("*").arg("fact").arg(fact.to_json());
            commands.add(&stream, add);
        }
        self.query_all(commands).await.map(|_| ())
    }

    /// Acknowledged facts are deleted: an empty stream is the normal state.
    pub(super) async fn acknowledge(&self, ids: &[String]) -> Result<(), BusError> {
        self.strike(&self.keys.facts(), GROUP, ids).await
    }
}

/// Entries that no node of this version wrote: they are struck out, or they would come for ever.
pub(super) fn split(entries: Vec<StreamId>) -> (Vec<(FactId, Fact)>, Vec<String>) {
    let mut facts = Vec::with_capacity(entries.len());
    let mut unreadable = Vec::new();
    for entry in entries {
        let json: Option<Vec<u8>> = entry.get("fact");
        match json.and_then(|json| Fact::from_json(&json)) {
            Some(fact) => facts.push((FactId(entry.id), fact)),
            None => unreadable.push(entry.id),
        }
    }
    (facts, unreadable)
}
