//! Supervises one node's connections to one Redis server: builds, verifies, probes and rebuilds
//! them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use redis::{AsyncConnectionConfig, ConnectionInfo, Pipeline, Value};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    cluster::Deduplicator,
    connection::{Connection, verify_master},
    connector::{Connector, Driver},
    publisher::{Attempt, Channel, FailedPublish, FailureSink, Publisher},
    scripts::Scripts,
    sentinel::Sentinels,
    shard_subscriber::ShardSubscriber,
    subscriber::Subscriber,
};
use crate::{
    backend::Inbox,
    error::BusError,
    metrics::Metrics,
    node::NodeId,
    transport::{Message, codec},
};

/// Connecting, subscribing and verifying together.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Silence after which the inbox is probed. Two missed probes rebuild the connection: 4 s after
/// the last activity.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
const SILENCE_CHECK_INTERVAL: Duration = Duration::from_millis(250);
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_PROBES: u32 = 2;
/// Delays between attempts are drawn from 0 to the current backoff.
const MAX_BACKOFF: Duration = Duration::from_secs(1);
const INITIAL_BACKOFF: Duration = Duration::from_millis(25);
/// Commands that may wait in the driver before their senders wait.
const DRIVER_QUEUE: usize = 1024;

/// Where a server is.
pub(super) enum Endpoint {
    Fixed(ConnectionInfo),
    /// At the address that the sentinels report as the master's.
    Sentinels(Sentinels),
}

/// What a node subscribes to at a server.
pub(super) enum Subscriptions {
    /// A single server: the node's inbox and these channels; and commands that run there before
    /// the connection counts.
    Single {
        channels: Vec<String>,
        setup: Pipeline,
    },
    /// A shard of a cluster: a channel of this node's own, and what is requested through the
    /// [`ShardSubscriber`].
    Shard { echo: String },
}

/// Receives the state changes of a server.
pub(super) trait ConnectionEvents: Sync {
    fn connected(&self, server: &Server);
    /// Something was received.
    fn activity(&self, server: &Server, at: Instant);
    /// The connection is lost, and nothing is known since then.
    fn disconnected(&self, server: &Server, since: Instant);
    fn subscription_refused(&self, error: &str);
}

/// What every server of one node shares.
#[derive(Clone)]
pub(super) struct SharedState {
    pub(super) connector: Connector,
    pub(super) node: NodeId,
    /// The channel of the node's own inbox.
    pub(super) inbox_channel: String,
    pub(super) scripts: Arc<Scripts>,
    pub(super) inbox: Arc<dyn Inbox>,
    pub(super) failures: Arc<dyn FailureSink>,
    pub(super) metrics: Metrics,
    /// The set of subscriptions changed.
    pub(super) subscriptions_changed: Arc<Notify>,
    pub(super) deduplicator: Arc<Deduplicator>,
}

/// One node's connections to one server.
///
/// The driver alone is not enough: it does not detect a peer that stopped answering, and a
/// failed subscription looks like a channel without traffic. So a connection counts only after a
/// message of this node to itself was received, out through the publisher and in through the
/// subscription. Silence is probed in the same way.
///
/// ```text
///   connecting ──probe received───► connected ──silent for 2 s, or a timeout──► probing
///       ▲                            │     ▲                                    │    │
///       │                            │     └─────────── probe received ─────────┘    │
///       │                            ▼                                               │
///       └─ jittered backoff ◄─ closed, publish failed, master moved ◄─ two missed ───┘
/// ```
pub(super) struct Server {
    endpoint: Endpoint,
    subscriptions: Subscriptions,
    shared: SharedState,
    /// The verified connection, if there is one now.
    pub(super) connection: ArcSwapOption<Connection>,
}

impl Server {
    pub(super) fn new(
        endpoint: Endpoint,
        subscriptions: Subscriptions,
        shared: SharedState,
    ) -> Self {
        Self {
            endpoint,
            subscriptions,
            shared,
            connection: ArcSwapOption::empty(),
        }
    }

    pub(super) fn connection(&self) -> Option<Arc<Connection>> {
        self.connection.load_full()
    }

    /// Passes a batch to the publisher. Without a connection the batch has failed.
    pub(super) fn publish(
        &self,
        channel: Channel<'_>,
        to: &NodeId,
        batch: Bytes,
        attempt: Attempt,
    ) {
        match &*self.connection.load() {
            Some(connection) => connection.publisher.publish(channel, to, batch, attempt),
            None => {
                let failed = FailedPublish::not_sent(to, batch, attempt);
                self.shared.failures.publish_failed(failed);
            }
        }
    }

    /// Waits until no batch is in flight.
    pub(super) async fn wait_idle(&self) {
        if let Some(connection) = self.connection() {
            connection.publisher.wait_idle().await;
        }
    }

    async fn locate(&self) -> Result<ConnectionInfo, BusError> {
        match &self.endpoint {
            Endpoint::Fixed(info) => Ok(info.clone()),
            Endpoint::Sentinels(sentinels) => sentinels.master().await,
        }
    }

    /// Keeps a verified connection for as long as the process lives.
    pub(super) async fn supervise(&self, events: &dyn ConnectionEvents) {
        let mut backoff = INITIAL_BACKOFF;
        let mut logged = false;
        loop {
            match timeout(CONNECT_TIMEOUT, self.build(events)).await {
                Ok(Ok(connection)) => {
                    (backoff, logged) = (INITIAL_BACKOFF, false);
                    self.connection.store(Some(Arc::clone(&connection)));
                    events.connected(self);
                    let (reason, last_activity) = self.run(&connection, events).await;
                    self.disconnect();
                    events.disconnected(self, last_activity);
                    let server = connection.info.addr();
                    tracing::warn!(reason, %server, "lost the connection to Redis, reconnecting");
                }
                failed => {
                    let error = failed.map_or(BusError::Timeout(CONNECT_TIMEOUT), |built| {
                        built.err().unwrap_or(BusError::Unavailable)
                    });
                    if !std::mem::replace(&mut logged, true) {
                        let server = self.name();
                        tracing::warn!(%error, server, "cannot connect to Redis, retrying");
                    }
                }
            }
            sleep(rand::random_range(Duration::ZERO..=backoff)).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    /// Runs a connection until it fails. Returns the reason, and until when it worked.
    async fn run(
        &self,
        connection: &Connection,
        events: &dyn ConnectionEvents,
    ) -> (String, Instant) {
        tokio::select! {
            (reason, last_activity) = self.monitor(connection, events) => {
                (reason.to_owned(), last_activity)
            }
            failed = connection.run(events) => failed,
            () = self.master_moved(connection) => {
                ("another server is the master".to_owned(), Instant::now())
            }
        }
    }

    fn name(&self) -> String {
        match &self.endpoint {
            Endpoint::Fixed(info) => info.addr().to_string(),
            Endpoint::Sentinels(_) => "the sentinels' master".to_owned(),
        }
    }

    pub(super) fn disconnect(&self) {
        if let Some(connection) = self.connection.swap(None) {
            connection.closed.cancel();
            connection.publisher.close();
        }
    }

    /// Unsubscribes the inbox of a single server. Everything published before has been received then.
    pub(super) async fn close_inbox(&self) -> Result<(), BusError> {
        let connection = self.connection().ok_or(BusError::Unavailable)?;
        Ok(connection.unsubscribe(&self.shared.inbox_channel).await?)
    }

    /// The channel that probes go through.
    fn probe_channel(&self) -> &str {
        match &self.subscriptions {
            Subscriptions::Single { .. } => &self.shared.inbox_channel,
            Subscriptions::Shard { echo } => echo,
        }
    }

    async fn master_moved(&self, connection: &Connection) {
        match &self.endpoint {
            Endpoint::Fixed(_) => std::future::pending().await,
            Endpoint::Sentinels(sentinels) => sentinels.master_moved(&connection.info).await,
        }
    }

    async fn build(&self, events: &dyn ConnectionEvents) -> Result<Arc<Connection>, BusError> {
        let info = self.locate().await?;
        let subscriber = Arc::new(Subscriber::new(
            self.shared.inbox_channel.clone(),
            self.probe_channel().to_owned(),
            Arc::clone(&self.shared.subscriptions_changed),
            Arc::clone(&self.shared.deduplicator),
            Arc::clone(&self.shared.inbox),
            self.shared.metrics.malformed.clone(),
        ));
        let connector = &self.shared.connector;
        let driver = self.connect_driver(&info, &subscriber).await?;
        let failures = Arc::clone(&self.shared.failures);
        let timings = self.shared.metrics.commands.clone();
        let connection = Arc::new(Connection {
            publisher: Publisher::connect(connector, &info, failures, timings).await?,
            shard_subscriber: match &self.subscriptions {
                Subscriptions::Single { .. } => None,
                Subscriptions::Shard { echo } => {
                    let shard_subscriber = ShardSubscriber::connect(connector, &info).await?;
                    shard_subscriber.send("SUBSCRIBE", echo).await?;
                    Some(shard_subscriber)
                }
            },
            info,
            driver,
            subscriber,
            closed: CancellationToken::new(),
        });
        let verify = async {
            if connection.shard_subscriber.is_some() {
                let confirmed = connection.subscriber.confirmed(self.probe_channel(), true);
                confirmed.await;
            }
            self.probe(&connection, events).await
        };
        let verified = tokio::select! {
            verified = verify => verified,
            (reason, _) = connection.run(events) => return Err(BusError::Unexpected(reason)),
        };
        verified
            .then_some(connection)
            .ok_or(BusError::Timeout(PROBE_TIMEOUT))
    }

    /// Connects the driver, which carries commands and, at a single server, subscriptions.
    async fn connect_driver(
        &self,
        info: &ConnectionInfo,
        subscriber: &Arc<Subscriber>,
    ) -> Result<Driver, BusError> {
        let pushes = Arc::clone(subscriber);
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(DRIVER_QUEUE)
            .set_push_sender(move |info| -> Result<(), redis::aio::SendError> {
                pushes.handle_push(info);
                Ok(())
            });
        let connector = &self.shared.connector;
        let connected = connector.connect_driver(info, &config, PROBE_TIMEOUT);
        let mut connected = connected.await?;
        let driver = &mut connected.commands;
        let is_fixed_single = matches!(self.endpoint, Endpoint::Fixed(_))
            && matches!(self.subscriptions, Subscriptions::Single { .. });
        if !is_fixed_single {
            verify_master(driver).await?;
        }
        if let Subscriptions::Single { channels, .. } = &self.subscriptions {
            let mut all = vec![&self.shared.inbox_channel];
            all.extend(channels);
            driver.subscribe(&all[..]).await?;
        }
        let mut load = redis::pipe();
        for (_, code) in self.shared.scripts.all() {
            load.cmd("SCRIPT").arg("LOAD").arg(code).ignore();
        }
        load.query_async::<()>(driver).await?;
        if let Subscriptions::Single { setup, .. } = &self.subscriptions {
            setup.query_async::<Value>(driver).await?;
        }
        Ok(connected)
    }

    /// Probes a silent connection. Returns why it failed, and until when it worked.
    async fn monitor(
        &self,
        connection: &Connection,
        events: &dyn ConnectionEvents,
    ) -> (&'static str, Instant) {
        let subscriber = &connection.subscriber;
        let mut seen = subscriber.activity();
        let mut silent_since = Instant::now();
        loop {
            let suspect = tokio::select! {
                () = subscriber.disconnected.notified() => return ("closed", Instant::now()),
                () = subscriber.suspect.notified() => true,
                () = sleep(SILENCE_CHECK_INTERVAL) => false,
            };
            let silent = subscriber.activity() == seen;
            if suspect || (silent && silent_since.elapsed() >= PROBE_INTERVAL) {
                if !self.probe_repeatedly(connection, events).await {
                    return ("no probe came back", silent_since);
                }
            } else if silent {
                continue;
            }
            seen = subscriber.activity();
            silent_since = Instant::now();
            events.activity(self, silent_since);
        }
    }

    /// Probes until one probe is received; false when all of them are missed.
    async fn probe_repeatedly(
        &self,
        connection: &Connection,
        events: &dyn ConnectionEvents,
    ) -> bool {
        for _ in 0..MAX_PROBES {
            let before = connection.subscriber.activity();
            // A probe may be late behind other traffic, which is activity as well.
            if self.probe(connection, events).await || connection.subscriber.activity() != before {
                return true;
            }
        }
        false
    }

    /// Publishes a message to this node itself, and waits until that very message is received.
    async fn probe(&self, connection: &Connection, events: &dyn ConnectionEvents) -> bool {
        let node = &self.shared.node;
        let nonce = rand::random();
        let batch = codec::encode_batch(node, &Message::Probe { nonce });
        connection.subscriber.expect_probe(batch.clone());
        let channel = Channel {
            publish: "PUBLISH",
            name: self.probe_channel(),
        };
        let sent_at = Instant::now();
        let publisher = &connection.publisher;
        publisher.publish(channel, node, batch, Attempt::first());
        publisher.flush();
        let returned = timeout(PROBE_TIMEOUT, connection.subscriber.probe_returned()).await;
        if returned.is_err() {
            return false;
        }
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(sent_at);
        let round_trip = &self.shared.metrics.round_trip;
        round_trip.observe(elapsed.as_secs_f64());
        events.activity(self, now);
        true
    }
}
