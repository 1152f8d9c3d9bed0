//! One node's connection to Redis, supervised: built, verified, watched, rebuilt, for ever.
//!
//! What the driver does by itself is not enough: it never notices a black hole, and a
//! subscription that failed looks like one that nobody publishes to. So a connection counts only
//! after a message to the node's own inbox came back, and silence is probed the same way.
//! Never: a command without our own time limit.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use parking_lot::Mutex;
use prometheus::IntCounter;
use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, Pipeline, PushInfo, PushKind, RedisError, Value,
    aio::MultiplexedConnection,
};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    Keys,
    publisher::Publisher,
    script::{self, LEASE_MS, Scripts},
};
use crate::{
    backend::{Condition, Inbox, Undelivered},
    envelope::{self, Envelope},
    error::BusError,
    metrics::Metrics,
    node::NodeId,
    offers::OfferChange,
};

/// No command waits longer.
pub(super) const COMMAND_LIMIT: Duration = Duration::from_secs(2);
/// Connecting, subscribing and verifying together.
const BUILD_LIMIT: Duration = Duration::from_secs(3);
/// Silence after which the inbox is probed, and how long a probe may take. Two missed probes
/// rebuild the connection: 4 s after the last sign of life.
const PROBE_AFTER: Duration = Duration::from_secs(2);
const SILENCE_CHECK: Duration = Duration::from_millis(250);
const PROBE_LIMIT: Duration = Duration::from_secs(1);
const PROBES: u32 = 2;
/// Pauses between attempts are drawn from 0 to this at most.
const BACKOFF_CAP: Duration = Duration::from_secs(1);
const BACKOFF_START: Duration = Duration::from_millis(25);
/// Commands that may wait in the driver before their senders wait.
const DRIVER_QUEUE: usize = 1024;

pub(super) struct Link {
    client: redis::Client,
    pub(super) keys: Keys,
    pub(super) node: NodeId,
    pub(super) scripts: Scripts,
    inbox: Arc<dyn Inbox>,
    metrics: Metrics,
    live: ArcSwapOption<Live>,
    generation: AtomicU64,
    /// Means something while there is no live connection.
    deaf_since: Mutex<Instant>,
}

/// A verified connection.
struct Live {
    connection: MultiplexedConnection,
    publisher: Publisher,
    ears: Arc<Ears>,
    /// Ends what still waits for an answer when the connection is given up.
    given_up: CancellationToken,
}

/// What the driver tells us of one connection.
struct Ears {
    heard: AtomicU64,
    hearing: Notify,
    gone: Notify,
    /// A command got no answer: others may hear us no more.
    doubted: Notify,
    /// The channel that counts.
    inbox: String,
    registered: String,
    malformed: IntCounter,
}

impl Link {
    pub(super) fn new(
        client: redis::Client,
        keys: Keys,
        node: NodeId,
        inbox: Arc<dyn Inbox>,
        metrics: Metrics,
    ) -> Self {
        Self {
            client,
            keys,
            node,
            scripts: Scripts::new(),
            inbox,
            metrics,
            live: ArcSwapOption::empty(),
            generation: AtomicU64::new(0),
            deaf_since: Mutex::new(Instant::now()),
        }
    }

    pub(super) fn condition(&self) -> Condition {
        let deaf_for = match &*self.live.load() {
            Some(_) => None,
            None => Some(self.deaf_since.lock().elapsed()),
        };
        Condition {
            generation: self.generation.load(Ordering::Acquire),
            deaf_for,
        }
    }

    /// Keeps a verified connection for as long as the process lives.
    pub(super) async fn supervise(&self) {
        let mut pause = BACKOFF_START;
        let mut told = false;
        loop {
            match timeout(BUILD_LIMIT, self.build()).await {
                Ok(Ok(live)) => {
                    (pause, told) = (BACKOFF_START, false);
                    self.enter_service(&live);
                    let (reason, heard_last) = tokio::select! {
                        (why, heard_last) = self.watch(&live) => (why.to_owned(), heard_last),
                        broken = live.publisher.attend() => broken,
                    };
                    self.leave_service(heard_last);
                    tracing::warn!(reason, "lost the connection to Redis, building a new one");
                }
                failed => {
                    let error = failed.map_or(BusError::Timeout(BUILD_LIMIT), |built| {
                        built.err().unwrap_or(BusError::Unavailable)
                    });
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(%error, "Redis can not be reached, trying until it can");
                    }
                }
            }
            sleep(rand::random_range(Duration::ZERO..=pause)).await;
            pause = (pause * 2).min(BACKOFF_CAP);
        }
    }

    fn enter_service(&self, live: &Arc<Live>) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.live.store(Some(Arc::clone(live)));
        self.metrics.up.set(1);
        self.metrics.reconnects.inc();
        tracing::info!(node.id = %self.node, "connected to Redis, inbox verified");
        self.inbox.healed();
    }

    /// The connection held, and yet others took this node for dead: to it, that is as if the bus had been away.
    pub(super) fn lease_lapsed(&self) {
        tracing::warn!(node.id = %self.node, "this node's lease had ended");
        self.inbox.healed();
    }

    /// Deaf since nothing was heard any more, which is before that was noticed.
    pub(super) fn leave_service(&self, heard_last: Instant) {
        *self.deaf_since.lock() = heard_last;
        self.metrics.up.set(0);
        if let Some(live) = self.live.swap(None) {
            live.given_up.cancel();
            live.publisher.close();
        }
    }

    /// Puts a pack on its way, if there is a way.
    pub(super) fn post(&self, to: &NodeId, pack: Bytes) {
        match &*self.live.load() {
            Some(live) => live.publisher.post(&self.keys.inbox(to), to, pack),
            None => self.inbox.undelivered(to, pack, Undelivered::Unsent),
        }
    }

    pub(super) fn flush(&self) {
        if let Some(live) = &*self.live.load() {
            live.publisher.flush();
        }
    }

    pub(super) fn is_clear(&self) -> bool {
        self.live
            .load()
            .as_ref()
            .is_none_or(|live| live.publisher.is_clear())
    }

    pub(super) async fn clear(&self) {
        if let Some(live) = self.live.load_full() {
            live.publisher.clear().await;
        }
    }

    async fn build(&self) -> Result<Arc<Live>, BusError> {
        let ears = Arc::new(Ears {
            heard: AtomicU64::new(0),
            hearing: Notify::new(),
            gone: Notify::new(),
            doubted: Notify::new(),
            inbox: self.keys.inbox(&self.node),
            registered: self.keys.registered(),
            malformed: self.metrics.malformed.clone(),
        });
        let (listening, inbox) = (Arc::clone(&ears), Arc::clone(&self.inbox));
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PROBE_LIMIT))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(DRIVER_QUEUE)
            .set_push_sender(move |info| -> Result<(), redis::aio::SendError> {
                listening.take(info, &*inbox);
                Ok(())
            });
        let mut connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let mut channels = vec![self.keys.inbox(&self.node), self.keys.everybody()];
        if self.inbox.follows() {
            channels.push(self.keys.registered());
        }
        connection.subscribe(&channels[..]).await?;
        let mut load = redis::pipe();
        for (_, code) in self.scripts.all() {
            load.cmd("SCRIPT").arg("LOAD").arg(code).ignore();
        }
        load.query_async::<()>(&mut connection).await?;
        // The lease stands before the first device is entered under it.
        self.beat_command()
            .query_async::<Value>(&mut connection)
            .await?;
        let info = self.client.get_connection_info();
        let live = Arc::new(Live {
            connection,
            publisher: Publisher::connect(info, Arc::clone(&self.inbox)).await?,
            ears,
            given_up: CancellationToken::new(),
        });
        let heard = tokio::select! {
            heard = self.probe(&live) => heard,
            (broken, _) = live.publisher.attend() => return Err(BusError::Unexpected(broken)),
        };
        heard.then_some(live).ok_or(BusError::Timeout(PROBE_LIMIT))
    }

    pub(super) fn beat_command(&self) -> Cmd {
        let mut beat = script::run(
            &self.scripts.beat,
            &[self.keys.nodes(), self.keys.shelf(&self.node)],
        );
        beat.arg(LEASE_MS)
            .arg(self.node.as_str())
            .arg(self.keys.registered());
        beat
    }

    /// Returns why the connection is no good any more, and until when it was.
    async fn watch(&self, live: &Live) -> (&'static str, Instant) {
        let mut heard = live.ears.heard.load(Ordering::Acquire);
        let mut silent_since = Instant::now();
        loop {
            let doubtful = tokio::select! {
                () = live.ears.gone.notified() => return ("closed", Instant::now()),
                () = live.ears.doubted.notified() => true,
                () = sleep(SILENCE_CHECK) => false,
            };
            let silent = live.ears.heard.load(Ordering::Acquire) == heard;
            if doubtful || (silent && silent_since.elapsed() >= PROBE_AFTER) {
                if let Some(why) = self.probe_often(live).await {
                    return (why, silent_since);
                }
            } else if silent {
                continue;
            }
            heard = live.ears.heard.load(Ordering::Acquire);
            silent_since = Instant::now();
        }
    }

    /// Probes until one comes back, or as often as is allowed.
    async fn probe_often(&self, live: &Live) -> Option<&'static str> {
        for _ in 0..PROBES {
            if self.probe(live).await {
                return None;
            }
        }
        Some("no probe came back")
    }

    /// Sends a message to this node's own inbox, the way that all messages go, and waits until
    /// anything is heard there.
    async fn probe(&self, live: &Live) -> bool {
        let mut pack = Vec::new();
        envelope::begin_pack(&mut pack, &self.node);
        let nonce = rand::random();
        envelope::put(&mut pack, &Envelope::Probe { nonce });
        let heard = live.ears.heard.load(Ordering::Acquire);
        let inbox = &live.ears.inbox;
        live.publisher.post(inbox, &self.node, pack.into());
        live.publisher.flush();
        let round_trip = async {
            loop {
                let hearing = live.ears.hearing.notified();
                if live.ears.heard.load(Ordering::Acquire) != heard {
                    return;
                }
                hearing.await;
            }
        };
        timeout(PROBE_LIMIT, round_trip).await.is_ok()
    }

    /// Runs one command under our own time limit.
    pub(super) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, BusError> {
        self.run(|mut connection| async move { command.query_async(&mut connection).await })
            .await
    }

    /// Runs several commands in one go under our own time limit.
    pub(super) async fn query_all<T: FromRedisValue>(
        &self,
        commands: &Pipeline,
    ) -> Result<T, BusError> {
        self.run(|mut connection| async move { commands.query_async(&mut connection).await })
            .await
    }

    async fn run<T, F>(&self, query: impl FnOnce(MultiplexedConnection) -> F) -> Result<T, BusError>
    where
        F: Future<Output = Result<T, RedisError>>,
    {
        let live = self.live.load_full().ok_or(BusError::Unavailable)?;
        let answer = tokio::select! {
            answer = timeout(COMMAND_LIMIT, query(live.connection.clone())) => answer,
            () = live.given_up.cancelled() => return Err(BusError::Unavailable),
        };
        live.judge(answer.map_err(|_| {
            live.ears.doubted.notify_one();
            BusError::Timeout(COMMAND_LIMIT)
        })?)
    }
}

impl Live {
    /// A Redis that lost our scripts was replaced behind the connection: build it anew.
    fn judge<T>(&self, answer: Result<T, RedisError>) -> Result<T, BusError> {
        answer.map_err(|error| {
            if error.code() == Some("NOSCRIPT") || error.is_connection_dropped() {
                self.ears.gone.notify_one();
            }
            BusError::from(error)
        })
    }
}

impl Ears {
    /// Runs on the driver's task for every push: must not block.
    fn take(&self, info: PushInfo, inbox: &dyn Inbox) {
        match info.kind {
            PushKind::Message => {
                let mut data = info.data.into_iter();
                let (channel, pack) = (data.next(), data.next());
                let (Some(Value::BulkString(channel)), Some(Value::BulkString(pack))) =
                    (channel, pack)
                else {
                    return;
                };
                if channel == self.registered.as_bytes() {
                    match OfferChange::parse(&pack) {
                        Some(event) => inbox.offer_changed(&event),
                        None => self.malformed.inc(),
                    }
                    return;
                }
                if channel == self.inbox.as_bytes() {
                    self.heard.fetch_add(1, Ordering::AcqRel);
                    self.hearing.notify_waiters();
                }
                inbox.receive(Bytes::from(pack));
            }
            PushKind::Disconnection => self.gone.notify_one(),
            _ => {}
        }
    }
}
