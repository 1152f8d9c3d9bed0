//! Reads a Redis stream as one of a group of consumers.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use redis::{
    AsyncConnectionConfig, Cmd, ConnectionInfo, FromRedisValue, RedisError,
    streams::{
        StreamAutoClaimReply, StreamId, StreamInfoConsumer, StreamInfoConsumersReply,
        StreamReadReply,
    },
};
use tokio::{sync::Mutex, time::timeout};

use super::{
    client::{RedisClient, millis},
    connection::{COMMAND_TIMEOUT, Connection, query_asking},
    connector::{Connector, Driver},
    postponed_turns,
};
use crate::error::BusError;

/// Steps of one scan for abandoned entries; each reads ten times as many entries as are wanted.
/// Bounds the delay of new entries: an unfinished scan continues with the next read.
const MAX_SCAN_STEPS: usize = 64;
/// How often one read follows the stream to another server.
const MAX_REDIRECTIONS: usize = 3;
/// Where a scan begins, and the cursor that Redis returns at its end.
const SCAN_START: &str = "0-0";
/// A consumer that was idle for this long belongs to a process that ended.
const CONSUMER_TTL: Duration = Duration::from_secs(3600);

/// A stream and its consumer group.
pub(super) struct StreamGroup {
    pub(super) key: String,
    pub(super) name: &'static str,
    /// An entry that was not renewed or deleted for this long is delivered again.
    pub(super) lease: Duration,
}

/// Reads a stream on a connection of its own, because a read blocks the connection.
///
/// Entries are not deleted here: the consumer deletes them when it has processed them.
pub(super) struct StreamReader {
    group: StreamGroup,
    connector: Connector,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    reader: Option<ReaderConnection>,
    /// The connection of the server that has the stream.
    owner: Weak<Connection>,
    /// When the last scan for abandoned entries was completed.
    scanned_at: Option<Instant>,
    /// Where an unfinished scan continues.
    cursor: Option<String>,
    /// The last read returned abandoned entries. The next one reads new entries, so that many
    /// abandoned ones do not delay them.
    has_claimed: bool,
}

#[derive(Clone)]
struct ReaderConnection {
    driver: Driver,
    /// The server is importing the stream, so every command is preceded by `ASKING`.
    asking: bool,
}

/// The result of one read.
pub(super) struct Delivery {
    pub(super) entries: Vec<StreamId>,
    /// No consumer had them before.
    pub(super) are_new: bool,
}

/// The parameters of one read.
#[derive(Clone, Copy)]
struct ReadRequest<'a> {
    consumer: &'a str,
    max: usize,
    deadline: Instant,
}

impl State {
    fn is_scan_due(&self, interval: Duration) -> bool {
        self.cursor.is_some() || self.scanned_at.is_none_or(|at| at.elapsed() > interval)
    }

    /// Resets the state when the stream has another owner, or the same one after a reconnect:
    /// the stream may have other contents.
    fn set_owner(&mut self, owner: &Arc<Connection>) {
        if !std::ptr::eq(self.owner.as_ptr(), Arc::as_ptr(owner)) {
            self.owner = Arc::downgrade(owner);
            (self.reader, self.scanned_at, self.cursor) = (None, None, None);
            self.has_claimed = false;
        }
    }
}

impl ReaderConnection {
    async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, RedisError> {
        if self.asking {
            query_asking(&mut self.driver.commands, command).await
        } else {
            command.query_async(&mut self.driver.commands).await
        }
    }
}

impl StreamReader {
    pub(super) fn new(group: StreamGroup, connector: &Connector) -> Self {
        Self {
            group,
            connector: connector.clone(),
            state: Mutex::new(State::default()),
        }
    }

    /// How often abandoned entries are scanned for. A longer read is interrupted for it.
    pub(super) fn scan_interval(&self) -> Duration {
        self.group.lease / 4
    }

    /// Returns abandoned entries if there are any, else waits for new ones.
    pub(super) async fn read(
        &self,
        client: &RedisClient,
        consumer: &str,
        max: usize,
        wait: Duration,
    ) -> Result<Delivery, BusError> {
        let mut state = self.state.lock().await;
        let owner = client.owner(&self.group.key).await?;
        state.set_owner(&owner);
        let limit = wait + COMMAND_TIMEOUT;
        let request = ReadRequest {
            consumer,
            max,
            deadline: Instant::now() + wait,
        };
        let read = self.read_redirected(client, &owner, &mut state, request);
        let result = tokio::select! {
            result = timeout(limit, read) => result.unwrap_or(Err(BusError::Timeout(limit))),
            // The next owner is known after the reconnect.
            () = owner.closed.cancelled() => Err(BusError::Unavailable),
        };
        if result.is_err() {
            // The connection or the group may be at fault; both are created again.
            state.reader = None;
        }
        result
    }

    /// Follows the stream while it moves from one shard to another.
    async fn read_redirected(
        &self,
        client: &RedisClient,
        owner: &Connection,
        state: &mut State,
        request: ReadRequest<'_>,
    ) -> Result<Delivery, BusError> {
        let mut server = (owner.info.clone(), false);
        let mut redirections = 0;
        loop {
            let error = match self.read_from(&server, state, request).await {
                Ok(delivery) => return Ok(delivery),
                Err(error) => error,
            };
            state.reader = None;
            redirections += 1;
            match client.redirection(&error, owner) {
                Some(next) if redirections <= MAX_REDIRECTIONS => server = next,
                _ => return Err(error.into()),
            }
        }
    }

    async fn read_from(
        &self,
        (info, asking): &(ConnectionInfo, bool),
        state: &mut State,
        request: ReadRequest<'_>,
    ) -> Result<Delivery, RedisError> {
        let mut reader = match &state.reader {
            Some(reader) => reader.clone(),
            None => self.connect(info, *asking).await?,
        };
        state.reader = Some(reader.clone());
        let has_claimed = std::mem::take(&mut state.has_claimed);
        if !has_claimed && state.is_scan_due(self.scan_interval()) {
            let abandoned = self.claim_abandoned(state, &mut reader, request).await?;
            if !abandoned.is_empty() {
                state.has_claimed = true;
                return Ok(Delivery {
                    entries: abandoned,
                    are_new: false,
                });
            }
        }
        let is_scanning = state.cursor.is_some();
        let left = request.deadline.saturating_duration_since(Instant::now());
        let wait = if is_scanning { Duration::ZERO } else { left };
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(self.group.name);
        read.arg(request.consumer).arg("COUNT").arg(request.max);
        read.arg("BLOCK").arg(millis(wait).max(1));
        read.arg("STREAMS").arg(&self.group.key).arg(">");
        let reply: Option<StreamReadReply> = reader.query(&read).await?;
        let entries = reply
            .into_iter()
            .flat_map(|reply| reply.keys)
            .flat_map(|stream| stream.ids);
        Ok(Delivery {
            entries: entries.collect(),
            are_new: true,
        })
    }

    /// Connects, and creates the group unless it exists.
    async fn connect(
        &self,
        info: &ConnectionInfo,
        asking: bool,
    ) -> Result<ReaderConnection, RedisError> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let driver = self
            .connector
            .connect_driver(info, &config, COMMAND_TIMEOUT)
            .await?;
        let mut reader = ReaderConnection { driver, asking };
        let mut create = redis::cmd("XGROUP");
        create.arg("CREATE").arg(&self.group.key);
        create.arg(self.group.name).arg("0").arg("MKSTREAM");
        match reader.query::<()>(&create).await {
            Err(error) if error.code() != Some("BUSYGROUP") => Err(error),
            _ => {
                self.delete_idle_consumers(&mut reader).await?;
                Ok(reader)
            }
        }
    }

    /// Deletes consumers of processes that ended long ago, if no entry is pending for them. A turn
    /// can become pending for a consumer of postponed turns at any time, so these are not deleted
    /// here.
    async fn delete_idle_consumers(&self, reader: &mut ReaderConnection) -> Result<(), RedisError> {
        let mut info = redis::cmd("XINFO");
        info.arg("CONSUMERS")
            .arg(&self.group.key)
            .arg(self.group.name);
        let known: StreamInfoConsumersReply = reader.query(&info).await?;
        let is_idle = |consumer: &&StreamInfoConsumer| {
            consumer.pending == 0
                && consumer.idle as u128 > CONSUMER_TTL.as_millis()
                && !consumer.name.starts_with(postponed_turns::CONSUMER_PREFIX)
        };
        for consumer in known.consumers.iter().filter(is_idle) {
            let mut delete = redis::cmd("XGROUP");
            delete
                .arg("DELCONSUMER")
                .arg(&self.group.key)
                .arg(self.group.name);
            delete.arg(&consumer.name);
            reader.query::<()>(&delete).await?;
        }
        Ok(())
    }

    /// Claims entries whose consumer neither renewed nor deleted them in time. Scans all pending
    /// entries, from where the last scan stopped.
    async fn claim_abandoned(
        &self,
        state: &mut State,
        reader: &mut ReaderConnection,
        request: ReadRequest<'_>,
    ) -> Result<Vec<StreamId>, RedisError> {
        for _ in 0..MAX_SCAN_STEPS {
            let mut claim = redis::cmd("XAUTOCLAIM");
            claim
                .arg(&self.group.key)
                .arg(self.group.name)
                .arg(request.consumer);
            claim.arg(millis(self.group.lease));
            claim.arg(state.cursor.as_deref().unwrap_or(SCAN_START));
            claim.arg("COUNT").arg(request.max);
            let reply: StreamAutoClaimReply = reader.query(&claim).await?;
            state.cursor = (reply.next_stream_id != SCAN_START).then_some(reply.next_stream_id);
            if state.cursor.is_none() {
                state.scanned_at = Some(Instant::now());
            }
            if state.cursor.is_none() || !reply.claimed.is_empty() {
                return Ok(reply.claimed);
            }
        }
        Ok(Vec::new())
    }
}
