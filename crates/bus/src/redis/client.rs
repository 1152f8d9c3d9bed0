//! One node's access to Redis, whether that is a single server or a cluster.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use bytes::Bytes;
use redis::{Cmd, ConnectionInfo, FromRedisValue, Pipeline, RedisError, Value};
use switchboard_runtime::metrics::Histograms;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    cluster::{Cluster, ROUTES},
    connection::Connection,
    health::ConnectionHealth,
    keys::Keys,
    postponed_turns::PostponedSchedule,
    publisher::{Attempt, Channel, FailedPublish, FailureSink, Publisher},
    scripts::Scripts,
    server::{ConnectionEvents, Server},
    stream::StreamReader,
};
use crate::{
    backend::{BackendFuture, ConnectionStatus, Inbox, Transport},
    error::BusError,
    metrics::Command,
    node::NodeId,
};

/// A single server has one route.
const SINGLE_ROUTE: usize = 0;

/// The Redis backend of one node.
///
/// It implements the traits of [`crate::backend`]: [`Transport`] here, the others in the module
/// of their subject. Commands go through [`query`](Self::query) and
/// [`query_all`](Self::query_all), each with a timeout of its own. Batches go straight to the
/// [`Publisher`] of the server that has the receiver's inbox.
///
/// ```text
///   RedisClient ─ Topology ─┬─ Single:  Server ─ Connection ─┬─ Publisher    (batches out)
///                           │                                ├─ driver       (commands, pushes in)
///                           └─ Cluster: Routes ─ Server…     └─ ShardSubscriber (cluster only)
/// ```
///
/// Invariant: callers need not know which of the two topologies is in use.
pub(super) struct RedisClient {
    pub(super) keys: Keys,
    pub(super) node: NodeId,
    pub(super) scripts: Arc<Scripts>,
    pub(super) health: Arc<ConnectionHealth>,
    pub(super) topology: Topology,
    /// Held by the task that supervises the connections.
    pub(super) supervising: Mutex<()>,
    pub(super) closed: CancellationToken,
    pub(super) events: StreamReader,
    pub(super) turns: StreamReader,
    pub(super) postponed: PostponedSchedule,
    pub(super) timings: Histograms<Command>,
    /// The greatest epoch that this node has been given, in case the clock steps back.
    pub(super) last_epoch: AtomicU64,
}

#[expect(
    clippy::large_enum_variant,
    reason = "a node has one of these, and a batch to a single server takes no indirection"
)]
pub(super) enum Topology {
    Single(Server),
    Cluster(Arc<Cluster>),
}

/// Commands that are sent together, in one round trip for each server that they concern.
#[derive(Default)]
pub(super) struct CommandGroup {
    pub(super) steps: Vec<Step>,
    /// How many of the steps complete before the others begin.
    pub(super) first: usize,
}

/// A command, and a key in the slot that it concerns.
#[derive(Clone)]
pub(super) struct Step {
    pub(super) key: String,
    pub(super) command: Cmd,
}

impl CommandGroup {
    pub(super) fn add(&mut self, key: impl Into<String>, command: Cmd) {
        let key = key.into();
        self.steps.push(Step { key, command });
    }

    /// Steps that are added from now on begin when all earlier ones have completed.
    pub(super) fn barrier(&mut self) {
        self.first = self.steps.len();
    }

    pub(super) fn into_pipeline(self) -> Pipeline {
        let mut commands = Pipeline::new();
        for step in self.steps {
            commands.add_command(step.command);
        }
        commands
    }
}

impl RedisClient {
    /// Builds and rebuilds the connections for as long as the process lives.
    pub(super) async fn supervise(&self) {
        let _supervising = self.supervising.lock().await;
        match &self.topology {
            Topology::Single(server) => server.supervise(self).await,
            Topology::Cluster(cluster) => cluster.supervise().await,
        }
    }

    /// Sends undelivered batches of a cluster again, until this client is closed.
    pub(super) async fn redeliver(&self) {
        if let Topology::Cluster(cluster) = &self.topology {
            self.closed.run_until_cancelled(cluster.redeliver()).await;
        }
    }

    /// Closes all connections.
    pub(super) fn close(&self) {
        self.health.disconnected(Instant::now());
        self.closed.cancel();
        match &self.topology {
            Topology::Single(server) => server.disconnect(),
            Topology::Cluster(cluster) => cluster.disconnect(),
        }
    }

    /// Runs one command that concerns this key or channel.
    pub(super) async fn query<T: FromRedisValue>(
        &self,
        key: &str,
        command: &Cmd,
    ) -> Result<T, BusError> {
        match &self.topology {
            Topology::Single(server) => {
                let connection = server.connection().ok_or(BusError::Unavailable)?;
                Ok(connection.query(command).await?)
            }
            Topology::Cluster(cluster) => cluster.query(key, command).await,
        }
    }

    /// Runs several commands. Returns one value for each.
    pub(super) async fn query_all(&self, group: CommandGroup) -> Result<Vec<Value>, BusError> {
        match &self.topology {
            Topology::Single(server) => {
                let connection = server.connection().ok_or(BusError::Unavailable)?;
                Ok(connection.query_all(&group.into_pipeline()).await?)
            }
            Topology::Cluster(cluster) => cluster.query_all(group).await,
        }
    }

    /// Measures how long a command takes, unless there was no server to send it to.
    pub(super) fn timed<'a, T: 'a>(
        &'a self,
        command: Command,
        query: impl Future<Output = Result<T, BusError>> + Send + 'a,
    ) -> BackendFuture<'a, T> {
        Box::pin(async move {
            let started = Instant::now();
            let result = query.await;
            if !matches!(result, Err(BusError::Unavailable)) {
                self.timings.observe(command, started.elapsed());
            }
            result
        })
    }

    /// The connection to the server that owns this key.
    pub(super) async fn owner(&self, key: &str) -> Result<Arc<Connection>, BusError> {
        match &self.topology {
            Topology::Single(server) => server.connection().ok_or(BusError::Unavailable),
            Topology::Cluster(cluster) => cluster.owner(key).await,
        }
    }

    /// The server that a refused command is redirected to, for readers with a connection of their
    /// own, and whether that server expects `ASKING` first.
    pub(super) fn redirection(
        &self,
        error: &RedisError,
        refused_by: &Connection,
    ) -> Option<(ConnectionInfo, bool)> {
        match &self.topology {
            Topology::Single(_) => None,
            Topology::Cluster(cluster) => cluster.redirection(error, refused_by),
        }
    }

    /// Whether one script can read every key.
    pub(super) const fn is_single(&self) -> bool {
        matches!(self.topology, Topology::Single(_))
    }

    /// Visits the publisher of each connected server of a route.
    fn for_each_publisher(&self, route: usize, mut visit: impl FnMut(&Publisher)) {
        let mut visit = |server: &Server| {
            if let Some(connection) = &*server.connection.load() {
                visit(&connection.publisher);
            }
        };
        match &self.topology {
            Topology::Single(server) => visit(server),
            Topology::Cluster(cluster) => cluster.routes.load().by_route(route).for_each(visit),
        }
    }
}

impl Transport for RedisClient {
    fn status(&self) -> ConnectionStatus {
        self.health.status()
    }

    fn publish(&self, to: &NodeId, batch: Bytes) {
        match &self.topology {
            Topology::Single(server) => {
                let channel = Channel {
                    publish: self.keys.pubsub.publish,
                    name: &self.keys.inbox(to),
                };
                server.publish(channel, to, batch, Attempt::first());
            }
            Topology::Cluster(cluster) => cluster.publish(to, batch),
        }
    }

    fn route_count(&self) -> usize {
        match &self.topology {
            Topology::Single(_) => 1,
            Topology::Cluster(_) => ROUTES,
        }
    }

    fn route(&self, to: &NodeId) -> usize {
        match &self.topology {
            Topology::Single(_) => SINGLE_ROUTE,
            Topology::Cluster(cluster) => cluster.route(to),
        }
    }

    fn flush(&self, route: usize) {
        self.for_each_publisher(route, Publisher::flush);
    }

    fn is_idle(&self, route: usize) -> bool {
        let mut is_idle = true;
        self.for_each_publisher(route, |publisher| is_idle &= publisher.is_idle());
        is_idle
    }

    fn wait_idle(&self, route: usize) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            match &self.topology {
                Topology::Single(server) => server.wait_idle().await,
                Topology::Cluster(cluster) => {
                    let routes = cluster.routes.load_full();
                    for server in routes.by_route(route) {
                        server.wait_idle().await;
                    }
                }
            }
        })
    }

    fn is_redelivering(&self) -> bool {
        match &self.topology {
            Topology::Single(_) => false,
            Topology::Cluster(cluster) => !cluster.redelivery.is_empty(),
        }
    }

    fn broadcast(&self, batch: Bytes) -> BackendFuture<'_, ()> {
        Box::pin(async move {
            let channel = self.keys.broadcast();
            let mut publish = redis::cmd(self.keys.pubsub.publish);
            publish.arg(&channel).arg(&batch[..]);
            let published = self.query::<Value>(&channel, &publish).await;
            published.map(|_| ())
        })
    }

    fn find_unsubscribed<'a>(&'a self, nodes: &'a [NodeId]) -> BackendFuture<'a, Vec<NodeId>> {
        Box::pin(async move {
            match &self.topology {
                Topology::Single(server) => {
                    let connection = server.connection().ok_or(BusError::Unavailable)?;
                    let inboxes = nodes.iter().map(|node| (node, self.keys.inbox(node)));
                    let inboxes = inboxes.collect();
                    Ok(connection
                        .find_unsubscribed(self.keys.pubsub, inboxes)
                        .await?)
                }
                Topology::Cluster(cluster) => cluster.find_unsubscribed(nodes).await,
            }
        })
    }

    fn close_inbox(&self) -> BackendFuture<'_, ()> {
        Box::pin(async move {
            // The supervising task would subscribe again.
            let _supervising = self.supervising.lock().await;
            match &self.topology {
                Topology::Single(server) => server.close_inbox().await,
                Topology::Cluster(cluster) => cluster.close_inbox().await,
            }
        })
    }

    fn leave(&self, release_lease: bool) -> BackendFuture<'_, ()> {
        Box::pin(async move {
            let left = if release_lease {
                self.delete_node(&self.node).await
            } else {
                Ok(())
            };
            self.close();
            left
        })
    }
}

impl ConnectionEvents for RedisClient {
    fn connected(&self, _: &Server) {
        self.health.connected();
    }

    fn activity(&self, _: &Server, at: Instant) {
        self.health.activity(at);
    }

    fn disconnected(&self, _: &Server, since: Instant) {
        self.health.disconnected(since);
    }

    fn subscription_refused(&self, _: &str) {}
}

/// Reports a batch that did not arrive at a single server: there is no other to try.
pub(super) struct ReportFailures(pub(super) Arc<dyn Inbox>);

impl FailureSink for ReportFailures {
    fn publish_failed(&self, failed: FailedPublish) {
        let FailedPublish {
            to, batch, reason, ..
        } = failed;
        self.0.undelivered(&to, batch, reason);
    }
}

/// A duration as scripts expect it.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
