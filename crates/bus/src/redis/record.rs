//! The stream of facts: written in batches, read by a group of consumers that share it.
//! Never: a fact struck out before its reader said that it is safe.

use std::time::{Duration, Instant};

use redis::{
    AsyncConnectionConfig, Pipeline, RedisError,
    aio::MultiplexedConnection,
    streams::{
        StreamAutoClaimReply, StreamId, StreamInfoConsumer, StreamInfoConsumersReply,
        StreamReadReply,
    },
};
use tokio::{sync::Mutex, time::timeout};

use super::{
    Keys,
    link::{COMMAND_LIMIT, Link},
};
use crate::{
    error::BusError,
    fact::{FACT_PATIENCE, Fact, FactId},
};

/// The one group of consumers.
const GROUP: &str = "control";
/// A consumer that did nothing for so long belongs to a process that ended.
const IDLE_CONSUMER: Duration = Duration::from_secs(3600);
/// The stream's length is bounded: protects Redis while no control plane runs.
const MAX_FACTS: usize = 100_000;

impl Link {
    pub(super) async fn record(&self, facts: Vec<Fact>) -> Result<(), BusError> {
        let mut commands = Pipeline::new();
        for fact in &facts {
            commands
                .cmd("XADD")
                .arg(self.keys.facts())
                .arg("MAXLEN")
                .arg("~")
                .arg(MAX_FACTS)
                .arg("*")
                .arg("fact")
                .arg(fact.to_json())
                .ignore();
        }
        self.query_all(&commands).await
    }

    /// Acknowledged facts are deleted: an empty stream is the normal state.
    pub(super) async fn acknowledge(&self, ids: &[String]) -> Result<(), BusError> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut commands = Pipeline::new();
        commands
            .cmd("XACK")
            .arg(self.keys.facts())
            .arg(GROUP)
            .arg(ids)
            .ignore();
        commands
            .cmd("XDEL")
            .arg(self.keys.facts())
            .arg(ids)
            .ignore();
        self.query_all(&commands).await
    }
}

/// Reads on a connection of its own, because reading blocks it.
pub(super) struct Reader {
    client: redis::Client,
    keys: Keys,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<MultiplexedConnection>,
    claimed: Option<Instant>,
}

impl Reader {
    pub(super) fn new(client: redis::Client, keys: Keys) -> Self {
        Self {
            client,
            keys,
            state: Mutex::new(State::default()),
        }
    }

    pub(super) async fn read(
        &self,
        consumer: &str,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<(String, Option<Fact>)>, BusError> {
        let mut state = self.state.lock().await;
        let limit = wait + COMMAND_LIMIT;
        let read = timeout(limit, self.read_on(&mut state, consumer, max, wait)).await;
        let result = match read {
            Ok(read) => read.map_err(BusError::from),
            Err(_) => Err(BusError::Timeout(limit)),
        };
        if result.is_err() {
            // Whatever was wrong with the connection or the group, both are made anew.
            state.connection = None;
        }
        result
    }

    async fn read_on(
        &self,
        state: &mut State,
        consumer: &str,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<(String, Option<Fact>)>, RedisError> {
        let mut connection = match &state.connection {
            Some(connection) => connection.clone(),
            None => self.open().await?,
        };
        state.connection = Some(connection.clone());
        if state
            .claimed
            .is_none_or(|claimed| claimed.elapsed() > FACT_PATIENCE / 2)
        {
            let abandoned = self.claim_abandoned(&mut connection, consumer, max).await?;
            if !abandoned.is_empty() {
                return Ok(abandoned);
            }
            state.claimed = Some(Instant::now());
        }
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP")
            .arg(GROUP)
            .arg(consumer)
            .arg("COUNT")
            .arg(max);
        read.arg("BLOCK")
            .arg(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1));
        read.arg("STREAMS").arg(self.keys.facts()).arg(">");
        let reply: Option<StreamReadReply> = read.query_async(&mut connection).await?;
        let entries = reply
            .into_iter()
            .flat_map(|reply| reply.keys)
            .flat_map(|stream| stream.ids);
        Ok(entries.map(open_entry).collect())
    }

    async fn open(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(COMMAND_LIMIT))
            .set_response_timeout(None);
        let mut connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let mut create = redis::cmd("XGROUP");
        create
            .arg("CREATE")
            .arg(self.keys.facts())
            .arg(GROUP)
            .arg("0")
            .arg("MKSTREAM");
        match create.query_async::<()>(&mut connection).await {
            Err(error) if error.code() != Some("BUSYGROUP") => Err(error),
            _ => {
                self.dismiss_idle(&mut connection).await?;
                Ok(connection)
            }
        }
    }

    /// Consumers of processes that ended long ago, with nothing left to hand on.
    async fn dismiss_idle(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        let mut ask = redis::cmd("XINFO");
        ask.arg("CONSUMERS").arg(self.keys.facts()).arg(GROUP);
        let known: StreamInfoConsumersReply = ask.query_async(connection).await?;
        let idle = |consumer: &&StreamInfoConsumer| {
            consumer.pending == 0 && consumer.idle as u128 > IDLE_CONSUMER.as_millis()
        };
        for consumer in known.consumers.iter().filter(idle) {
            let mut dismiss = redis::cmd("XGROUP");
            dismiss.arg("DELCONSUMER").arg(self.keys.facts()).arg(GROUP);
            dismiss
                .arg(&consumer.name)
                .query_async::<()>(connection)
                .await?;
        }
        Ok(())
    }

    /// What a consumer took and did not acknowledge: it died, or could not write it.
    async fn claim_abandoned(
        &self,
        connection: &mut MultiplexedConnection,
        consumer: &str,
        max: usize,
    ) -> Result<Vec<(String, Option<Fact>)>, RedisError> {
        let mut claim = redis::cmd("XAUTOCLAIM");
        claim.arg(self.keys.facts()).arg(GROUP).arg(consumer);
        claim.arg(u64::try_from(FACT_PATIENCE.as_millis()).unwrap_or(u64::MAX));
        claim.arg("0").arg("COUNT").arg(max);
        let reply: StreamAutoClaimReply = claim.query_async(connection).await?;
        Ok(reply.claimed.into_iter().map(open_entry).collect())
    }
}

fn open_entry(entry: StreamId) -> (String, Option<Fact>) {
    let json: Option<Vec<u8>> = entry.get("fact");
    let fact = json.and_then(|json| Fact::from_json(&json));
    (entry.id, fact)
}

/// Entries that no node of this version wrote: they are struck out, or they would come for ever.
pub(super) fn split(entries: Vec<(String, Option<Fact>)>) -> (Vec<(FactId, Fact)>, Vec<String>) {
    let mut facts = Vec::with_capacity(entries.len());
    let mut unreadable = Vec::new();
    for (id, fact) in entries {
        match fact {
            Some(fact) => facts.push((FactId(id), fact)),
            None => unreadable.push(id),
        }
    }
    (facts, unreadable)
}
