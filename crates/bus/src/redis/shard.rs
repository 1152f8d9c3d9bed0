//! One node's connections to one server of Redis, supervised: built, verified, watched, rebuilt, for ever.
//!
//! What the driver does by itself is not enough: it never notices a black hole, and a
//! subscription that failed looks like one that nobody publishes to. So connections count only
//! after a message to this node itself came back, and silence is probed the same way.
//! Never: a command without our own time limit.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use redis::{AsyncConnectionConfig, ConnectionInfo, Pipeline, Value, aio::MultiplexedConnection};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    doubles::Doubles,
    ear::Ear,
    ears::Ears,
    live::{Live, verify_master},
    publisher::{Attempt, Channel, Publisher, Returned, Returns},
    script::Scripts,
    sentinels::Sentinels,
};
use crate::{
    backend::Inbox,
    envelope::{self, Envelope},
    error::BusError,
    metrics::Metrics,
    node::NodeId,
};

/// Connecting, subscribing and verifying together.
pub(super) const BUILD_LIMIT: Duration = Duration::from_secs(3);
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

/// Where the server is.
pub(super) enum Whereabouts {
    At(ConnectionInfo),
    /// Wherever these say that the master is.
    Sentinels(Sentinels),
}

/// What a node listens to at a server.
pub(super) enum Hearing {
    /// The one server: the node's inbox and these channels; and what is to be done there before the
    /// connection counts.
    Whole {
        others: Vec<String>,
        greeting: Pipeline,
    },
    /// One of several: to itself, and to what is asked for at its [`Ear`].
    Shard { echo: String },
}

/// Who is told what becomes of a server.
pub(super) trait Watcher: Sync {
    /// It was connected and verified.
    fn came(&self, shard: &Shard);
    /// It let this node hear something.
    fn heard(&self, shard: &Shard, at: Instant);
    /// It is gone, and nothing is known since then.
    fn went(&self, shard: &Shard, since: Instant);
    /// What a server refused to listen for.
    fn refused(&self, why: &str);
}

/// What every server of one node shares.
#[derive(Clone)]
pub(super) struct Household {
    pub(super) node: NodeId,
    /// The node's own.
    pub(super) inbox_channel: String,
    pub(super) scripts: Arc<Scripts>,
    pub(super) inbox: Arc<dyn Inbox>,
    pub(super) returns: Arc<dyn Returns>,
    pub(super) metrics: Metrics,
    /// Something changed in what is heard.
    pub(super) hearing: Arc<Notify>,
    pub(super) doubles: Arc<Doubles>,
}

pub(super) struct Shard {
    whereabouts: Whereabouts,
    hearing: Hearing,
    house: Household,
    live: ArcSwapOption<Live>,
}

impl Shard {
    pub(super) fn new(whereabouts: Whereabouts, hearing: Hearing, house: Household) -> Self {
        Self {
            whereabouts,
            hearing,
            house,
            live: ArcSwapOption::empty(),
        }
    }

    /// The verified connections, if there are any now.
    pub(super) fn live(&self) -> Option<Arc<Live>> {
        self.live.load_full()
    }

    /// Puts a pack on its way, if there is a way.
    pub(super) fn post(&self, channel: Channel<'_>, to: &NodeId, pack: Bytes, attempt: Attempt) {
        match &*self.live.load() {
            Some(live) => live.publisher.post(channel, to, pack, attempt),
            None => self
                .house
                .returns
                .returned(Returned::unsent(to, pack, attempt)),
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

    /// Where the server is now.
    async fn locate(&self) -> Result<ConnectionInfo, BusError> {
        match &self.whereabouts {
            Whereabouts::At(info) => Ok(info.clone()),
            Whereabouts::Sentinels(sentinels) => sentinels.master().await,
        }
    }

    /// Keeps verified connections for as long as the process lives.
    pub(super) async fn supervise(&self, watcher: &dyn Watcher) {
        let mut pause = BACKOFF_START;
        let mut told = false;
        loop {
            match timeout(BUILD_LIMIT, self.build(watcher)).await {
                Ok(Ok(live)) => {
                    (pause, told) = (BACKOFF_START, false);
                    self.live.store(Some(Arc::clone(&live)));
                    watcher.came(self);
                    let (reason, heard_last) = tokio::select! {
                        (why, heard_last) = self.watch(&live, watcher) => (why.to_owned(), heard_last),
                        broken = live.attend(watcher) => broken,
                        () = self.elsewhere(&live) => ("another server is the master".to_owned(), Instant::now()),
                    };
                    self.end();
                    watcher.went(self, heard_last);
                    let server = live.info.addr();
                    tracing::warn!(reason, %server, "lost the connection to Redis, building a new one");
                }
                failed => {
                    let error = failed.map_or(BusError::Timeout(BUILD_LIMIT), |built| {
                        built.err().unwrap_or(BusError::Unavailable)
                    });
                    if !std::mem::replace(&mut told, true) {
                        let server = self.name();
                        tracing::warn!(%error, server, "Redis can not be reached, trying until it can");
                    }
                }
            }
            sleep(rand::random_range(Duration::ZERO..=pause)).await;
            pause = (pause * 2).min(BACKOFF_CAP);
        }
    }

    fn name(&self) -> String {
        match &self.whereabouts {
            Whereabouts::At(info) => info.addr().to_string(),
            Whereabouts::Sentinels(_) => "the sentinels' master".to_owned(),
        }
    }

    /// Gives the connections up.
    pub(super) fn end(&self) {
        if let Some(live) = self.live.swap(None) {
            live.given_up.cancel();
            live.publisher.close();
        }
    }

    /// Has the one server's inbox heard no more, and takes what came there until then.
    pub(super) async fn close_inbox(&self) -> Result<(), BusError> {
        let live = self.live().ok_or(BusError::Unavailable)?;
        Ok(live.unsubscribe(&self.house.inbox_channel).await?)
    }

    /// Where this node hears itself.
    fn own_channel(&self) -> &str {
        match &self.hearing {
            Hearing::Whole { .. } => &self.house.inbox_channel,
            Hearing::Shard { echo } => echo,
        }
    }

    async fn elsewhere(&self, live: &Live) {
        match &self.whereabouts {
            Whereabouts::At(_) => std::future::pending().await,
            Whereabouts::Sentinels(sentinels) => sentinels.moved(&live.info).await,
        }
    }

    async fn build(&self, watcher: &dyn Watcher) -> Result<Arc<Live>, BusError> {
        let info = self.locate().await?;
        let ears = Arc::new(Ears::new(
            self.house.inbox_channel.clone(),
            self.own_channel().to_owned(),
            Arc::clone(&self.house.hearing),
            Arc::clone(&self.house.doubles),
            Arc::clone(&self.house.inbox),
            self.house.metrics.malformed.clone(),
        ));
        let connection = self.connect(&info, &ears).await?;
        let live = Arc::new(Live {
            publisher: Publisher::connect(
                &info,
                Arc::clone(&self.house.returns),
                self.house.metrics.commands.clone(),
            )
            .await?,
            ear: match &self.hearing {
                Hearing::Whole { .. } => None,
                Hearing::Shard { echo } => {
                    let ear = Ear::connect(&info).await?;
                    ear.ask("SUBSCRIBE", echo).await?;
                    Some(ear)
                }
            },
            info,
            connection,
            ears,
            given_up: CancellationToken::new(),
        });
        let verify = async {
            if live.ear.is_some() {
                live.ears.confirmed(self.own_channel(), true).await;
            }
            self.probe(&live, watcher).await
        };
        let heard = tokio::select! {
            heard = verify => heard,
            (broken, _) = live.attend(watcher) => return Err(BusError::Unexpected(broken)),
        };
        heard.then_some(live).ok_or(BusError::Timeout(PROBE_LIMIT))
    }

    /// The connection for commands; it also hears the channels of the one server.
    async fn connect(
        &self,
        info: &ConnectionInfo,
        ears: &Arc<Ears>,
    ) -> Result<MultiplexedConnection, BusError> {
        let listening = Arc::clone(ears);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PROBE_LIMIT))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(DRIVER_QUEUE)
            .set_push_sender(move |info| -> Result<(), redis::aio::SendError> {
                listening.take(info);
                Ok(())
            });
        let client = redis::Client::open(info.clone())?;
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let one = matches!(self.whereabouts, Whereabouts::At(_))
            && matches!(self.hearing, Hearing::Whole { .. });
        if !one {
            verify_master(&mut connection).await?;
        }
        if let Hearing::Whole { others, .. } = &self.hearing {
            let mut channels = vec![&self.house.inbox_channel];
            channels.extend(others);
            connection.subscribe(&channels[..]).await?;
        }
        let mut load = redis::pipe();
        for (_, code) in self.house.scripts.all() {
            load.cmd("SCRIPT").arg("LOAD").arg(code).ignore();
        }
        load.query_async::<()>(&mut connection).await?;
        if let Hearing::Whole { greeting, .. } = &self.hearing {
            greeting.query_async::<Value>(&mut connection).await?;
        }
        Ok(connection)
    }

    /// Returns why the connection is no good any more, and until when it was.
    async fn watch(&self, live: &Live, watcher: &dyn Watcher) -> (&'static str, Instant) {
        let mut heard = live.ears.heard();
        let mut silent_since = Instant::now();
        loop {
            let doubtful = tokio::select! {
                () = live.ears.gone.notified() => return ("closed", Instant::now()),
                () = live.ears.doubted.notified() => true,
                () = sleep(SILENCE_CHECK) => false,
            };
            let silent = live.ears.heard() == heard;
            if doubtful || (silent && silent_since.elapsed() >= PROBE_AFTER) {
                if let Some(why) = self.probe_often(live, watcher).await {
                    return (why, silent_since);
                }
            } else if silent {
                continue;
            }
            heard = live.ears.heard();
            silent_since = Instant::now();
            watcher.heard(self, silent_since);
        }
    }

    /// Probes until one comes back, or as often as is allowed.
    async fn probe_often(&self, live: &Live, watcher: &dyn Watcher) -> Option<&'static str> {
        for _ in 0..PROBES {
            let before = live.ears.heard();
            // Behind much else a probe may be late, where all that is heard.
            if self.probe(live, watcher).await || live.ears.heard() != before {
                return None;
            }
        }
        Some("no probe came back")
    }

    /// Sends a message to this node itself, the way that all messages go, and waits until that very one is heard there.
    async fn probe(&self, live: &Live, watcher: &dyn Watcher) -> bool {
        let node = &self.house.node;
        let mut pack = Vec::new();
        envelope::begin_pack(&mut pack, node);
        let nonce = rand::random();
        envelope::put(&mut pack, &Envelope::Probe { nonce });
        let pack = Bytes::from(pack);
        live.ears.expect(pack.clone());
        let channel = Channel {
            publish: "PUBLISH",
            name: self.own_channel(),
        };
        let sent = Instant::now();
        live.publisher.post(channel, node, pack, Attempt::first());
        live.publisher.flush();
        let came = timeout(PROBE_LIMIT, live.ears.came_back()).await.is_ok();
        if came {
            let now = Instant::now();
            let took = now.saturating_duration_since(sent);
            self.house.metrics.round_trip.observe(took.as_secs_f64());
            watcher.heard(self, now);
        }
        came
    }
}
