//! Reads a stream of Redis as one of a group of consumers that share it.
//! Never: an entry struck out here; whoever took it says when it is done with.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use redis::{
    AsyncConnectionConfig, Cmd, ConnectionInfo, FromRedisValue, RedisError,
    aio::MultiplexedConnection,
    streams::{
        StreamAutoClaimReply, StreamId, StreamInfoConsumer, StreamInfoConsumersReply,
        StreamReadReply,
    },
};
use tokio::{sync::Mutex, time::timeout};

use super::{
    link::{Link, millis},
    live::{COMMAND_LIMIT, Live, ask_there},
};
use crate::error::BusError;

/// Steps of one look for what was abandoned, each through ten times as many entries as are wanted.
/// Protects whoever waits for new ones: a look that is not at its end goes on with the next read.
const STEPS: usize = 64;
/// How often one read follows the stream to another server.
const REDIRECTIONS: usize = 3;
/// Where a look begins, and what Redis answers at its end.
const BOUND: &str = "0-0";
/// A consumer that did nothing for so long belongs to a process that ended.
const IDLE_CONSUMER: Duration = Duration::from_secs(3600);

/// Which stream, and how it is shared.
pub(super) struct Stream {
    pub(super) key: String,
    /// The one group of consumers.
    pub(super) group: &'static str,
    /// Whoever keeps an entry for so long is taken for dead.
    pub(super) patience: Duration,
}

/// Reads on a connection of its own, because reading blocks it.
pub(super) struct Reader {
    stream: Stream,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    way: Option<Way>,
    /// Whose stream is read: what other commands about it go to.
    owner: Weak<Live>,
    /// When the last look for what was abandoned came to its end.
    looked: Option<Instant>,
    /// Where one that did not goes on.
    from: Option<String>,
}

/// A connection to read on.
#[derive(Clone)]
struct Way {
    connection: MultiplexedConnection,
    /// The stream is on its way there, so each command has to say that it was sent there.
    asking: bool,
}

/// What one reader wants.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    consumer: &'a str,
    max: usize,
    until: Instant,
}

impl State {
    fn has_to_look(&self, every: Duration) -> bool {
        self.from.is_some() || self.looked.is_none_or(|looked| looked.elapsed() > every)
    }

    /// The stream may be another since it belongs to another server, or to the same after it was away.
    fn read_at(&mut self, owner: &Arc<Live>) {
        if !std::ptr::eq(self.owner.as_ptr(), Arc::as_ptr(owner)) {
            self.owner = Arc::downgrade(owner);
            (self.way, self.looked, self.from) = (None, None, None);
        }
    }
}

impl Way {
    async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, RedisError> {
        if self.asking {
            ask_there(&mut self.connection, command).await
        } else {
            command.query_async(&mut self.connection).await
        }
    }
}

impl Reader {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            state: Mutex::new(State::default()),
        }
    }

    /// How often what others abandoned is looked for; who waits for longer looks in between.
    pub(super) fn look(&self) -> Duration {
        self.stream.patience / 4
    }

    /// What comes next, or what a consumer took and did not strike out in time.
    pub(super) async fn read(
        &self,
        link: &Link,
        consumer: &str,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<StreamId>, BusError> {
        let mut state = self.state.lock().await;
        let owner = link.owner(&self.stream.key).await?;
        state.read_at(&owner);
        let limit = wait + COMMAND_LIMIT;
        let wanted = Wanted {
            consumer,
            max,
            until: Instant::now() + wait,
        };
        let read = self.read_wherever(link, &owner, &mut state, wanted);
        let result = tokio::select! {
            result = timeout(limit, read) => result.unwrap_or(Err(BusError::Timeout(limit))),
            // Where it is next is known when the way is open again.
            () = owner.given_up.cancelled() => Err(BusError::Unavailable),
        };
        if result.is_err() {
            // Whatever was wrong with the connection or the group, both are made anew.
            state.way = None;
        }
        result
    }

    /// Goes after the stream when it is on its way from one shard to another, or was a moment ago.
    async fn read_wherever(
        &self,
        link: &Link,
        owner: &Live,
        state: &mut State,
        wanted: Wanted<'_>,
    ) -> Result<Vec<StreamId>, BusError> {
        let mut to = (owner.info.clone(), false);
        let mut redirections = 0;
        loop {
            let error = match self.read_from(&to, state, wanted).await {
                Ok(entries) => return Ok(entries),
                Err(error) => error,
            };
            state.way = None;
            redirections += 1;
            match link.redirected(&error, owner) {
                Some(next) if redirections <= REDIRECTIONS => to = next,
                _ => return Err(error.into()),
            }
        }
    }

    async fn read_from(
        &self,
        (info, asking): &(ConnectionInfo, bool),
        state: &mut State,
        wanted: Wanted<'_>,
    ) -> Result<Vec<StreamId>, RedisError> {
        let mut way = match &state.way {
            Some(way) => way.clone(),
            None => self.open(info, *asking).await?,
        };
        state.way = Some(way.clone());
        if state.has_to_look(self.look()) {
            let abandoned = self.claim_abandoned(state, &mut way, wanted).await?;
            if !abandoned.is_empty() {
                return Ok(abandoned);
            }
        }
        let is_looking = state.from.is_some();
        let left = wanted.until.saturating_duration_since(Instant::now());
        let wait = if is_looking { Duration::ZERO } else { left };
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(self.stream.group);
        read.arg(wanted.consumer).arg("COUNT").arg(wanted.max);
        read.arg("BLOCK").arg(millis(wait).max(1));
        read.arg("STREAMS").arg(&self.stream.key).arg(">");
        let reply: Option<StreamReadReply> = way.query(&read).await?;
        let entries = reply
            .into_iter()
            .flat_map(|reply| reply.keys)
            .flat_map(|stream| stream.ids);
        Ok(entries.collect())
    }

    async fn open(&self, info: &ConnectionInfo, asking: bool) -> Result<Way, RedisError> {
        let client = redis::Client::open(info.clone())?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(COMMAND_LIMIT))
            .set_response_timeout(None);
        let connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let mut way = Way { connection, asking };
        let mut create = redis::cmd("XGROUP");
        create.arg("CREATE").arg(&self.stream.key);
        create.arg(self.stream.group).arg("0").arg("MKSTREAM");
        match way.query::<()>(&create).await {
            Err(error) if error.code() != Some("BUSYGROUP") => Err(error),
            _ => {
                self.dismiss_idle(&mut way).await?;
                Ok(way)
            }
        }
    }

    /// Consumers of processes that ended long ago, with nothing left to hand on.
    async fn dismiss_idle(&self, way: &mut Way) -> Result<(), RedisError> {
        let mut ask = redis::cmd("XINFO");
        ask.arg("CONSUMERS")
            .arg(&self.stream.key)
            .arg(self.stream.group);
        let known: StreamInfoConsumersReply = way.query(&ask).await?;
        let idle = |consumer: &&StreamInfoConsumer| {
            consumer.pending == 0 && consumer.idle as u128 > IDLE_CONSUMER.as_millis()
        };
        for consumer in known.consumers.iter().filter(idle) {
            let mut dismiss = redis::cmd("XGROUP");
            dismiss
                .arg("DELCONSUMER")
                .arg(&self.stream.key)
                .arg(self.stream.group);
            dismiss.arg(&consumer.name);
            way.query::<()>(&dismiss).await?;
        }
        Ok(())
    }

    /// What a consumer took and did not acknowledge: it died, or could not write it. Looks through
    /// everything that consumers hold, from where the last look stopped.
    async fn claim_abandoned(
        &self,
        state: &mut State,
        way: &mut Way,
        wanted: Wanted<'_>,
    ) -> Result<Vec<StreamId>, RedisError> {
        for _ in 0..STEPS {
            let mut claim = redis::cmd("XAUTOCLAIM");
            claim
                .arg(&self.stream.key)
                .arg(self.stream.group)
                .arg(wanted.consumer);
            claim.arg(millis(self.stream.patience));
            claim.arg(state.from.as_deref().unwrap_or(BOUND));
            claim.arg("COUNT").arg(wanted.max);
            let reply: StreamAutoClaimReply = way.query(&claim).await?;
            state.from = (reply.next_stream_id != BOUND).then_some(reply.next_stream_id);
            if state.from.is_none() {
                state.looked = Some(Instant::now());
            }
            if state.from.is_none() || !reply.claimed.is_empty() {
                return Ok(reply.claimed);
            }
        }
        Ok(Vec::new())
    }
}
