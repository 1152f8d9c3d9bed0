//! Redis Cluster: batches and commands go to the shard that owns their slot, and follow a slot
//! that moves.

mod dedup;
mod redelivery;
mod routes;
pub(super) mod slots;
mod subscriptions;
mod topology;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use redis::{ConnectionInfo, FromRedisValue, Pipeline, RedisError, Value};
use switchboard_runtime::shutdown::Shutdown;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

pub(crate) use self::dedup::Deduplicator;
pub(super) use self::redelivery::Redelivery;
use self::{redelivery::QueuedBatch, routes::Routes, slots::slot};
use super::{
    address::{Seeds, host, host_and_port, with_address},
    client::{CommandGroup, Step},
    connection::{COMMAND_TIMEOUT, CommandError, Connection},
    health::ConnectionHealth,
    keys::Keys,
    publisher::{Attempt, Channel, FailedPublish, FailureSink},
    scripts,
    server::{ConnectionEvents, Server, SharedState},
};
use crate::{backend::DeliveryFailure, error::BusError, node::NodeId};

/// Routes of batches, each with its own flush cycle: a shard that does not respond delays the
/// batches of its own route only.
pub(super) const ROUTES: usize = 16;
/// The longest that a server is waited for that is queried about itself or the others.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);
/// Before a command is retried that its server could not execute yet.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// The shards of a cluster.
///
/// Every shard is a [`Server`], supervised like a single one, with an echo channel of its own for
/// probes. A node's inbox is a sharded channel, so batches of many nodes are spread over the
/// shards. While a slot moves, three mechanisms keep what concerns it going:
///
/// - a command that is answered with `MOVED`, `ASK` or `TRYAGAIN` was not executed, and is
///   retried at the right server for up to 2 s ([`Cluster::query`]);
/// - an undelivered batch goes to the new owner, in order ([`Redelivery`]);
/// - the inbox is subscribed at the new owner, and verified to be at a master (`subscriptions`).
///
/// Invariant: a batch that may have arrived, and a command that may have been executed, is not
/// sent again.
pub(super) struct Cluster {
    keys: Keys,
    shared: SharedState,
    health: Arc<ConnectionHealth>,
    pub(super) redelivery: Arc<Redelivery>,
    /// Channels that this node subscribes to.
    channels: Vec<String>,
    seeds: Seeds,
    shutdown: Shutdown,
    pub(super) routes: ArcSwap<Routes>,
    /// Serialises changes of the routes.
    updating: Mutex<()>,
    /// The routes may be wrong.
    routes_suspect: Notify,
    /// The last subscription error that was logged.
    logged_refusal: Mutex<Option<String>>,
}

/// What to do after an error.
enum Retry {
    Never,
    Later,
    /// Another server executes the command, this once.
    At(Redirect),
}

/// A server that is importing a slot.
struct Redirect {
    /// `host:port`.
    address: String,
    /// The command in the form that it is sent there, if it differs.
    command: Option<redis::Cmd>,
}

impl Cluster {
    pub(super) fn new(
        keys: Keys,
        shared: SharedState,
        health: Arc<ConnectionHealth>,
        redelivery: Arc<Redelivery>,
        seeds: Seeds,
        shutdown: Shutdown,
    ) -> Self {
        let mut channels = vec![shared.inbox_channel.clone(), keys.broadcast()];
        if shared.inbox.watches_catalog() {
            channels.extend(keys.catalog_channels());
        }
        Self {
            keys,
            shared,
            health,
            redelivery,
            channels,
            seeds,
            shutdown,
            routes: ArcSwap::from_pointee(Routes::empty()),
            updating: Mutex::new(()),
            routes_suspect: Notify::new(),
            logged_refusal: Mutex::default(),
        }
    }

    /// Keeps the routes and the subscriptions up to date.
    pub(super) async fn supervise(self: &Arc<Self>) {
        tokio::join!(self.refresh_routes(), self.keep_subscribed());
    }

    /// Sends undelivered batches again, also while this node shuts down.
    pub(super) async fn redeliver(self: &Arc<Self>) {
        tokio::join!(self.resend(), self.resolve_absences());
    }

    pub(super) fn disconnect(&self) {
        for server in self.routes.load().servers() {
            server.disconnect();
        }
    }

    fn owner_of(&self, slot: u16) -> Option<Arc<Connection>> {
        let routes = self.routes.load();
        routes.owner(slot).and_then(Server::connection)
    }

    /// Whether this node's inbox belongs to this server, and is subscribed there.
    fn has_inbox(&self, server: &Server) -> bool {
        let inbox = &self.shared.inbox_channel;
        let routes = self.routes.load();
        let owner = routes.owner(slot(inbox));
        let owns = owner.is_some_and(|owner| std::ptr::eq(owner, server));
        let connection = server.connection();
        owns && connection.is_some_and(|connection| connection.subscriber.is_subscribed(inbox))
    }

    pub(super) fn publish(&self, to: &NodeId, batch: Bytes) {
        let attempt = Attempt::first();
        if let Some(batch) = self.redelivery.queue_behind(to, batch, attempt) {
            self.publish_to_owner(to, batch, attempt);
        }
    }

    fn publish_to_owner(&self, to: &NodeId, batch: Bytes, attempt: Attempt) {
        let inbox = self.keys.inbox(to);
        let channel = Channel {
            publish: self.keys.pubsub.publish,
            name: &inbox,
        };
        match self.routes.load().owner(slot(&inbox)) {
            Some(server) => server.publish(channel, to, batch, attempt),
            None => {
                let failed = FailedPublish::not_sent(to, batch, attempt);
                self.redelivery.publish_failed(failed);
            }
        }
    }

    /// Sends batches again whose slot has moved.
    async fn resend(self: &Arc<Self>) {
        loop {
            let (moved, batches) = self.redelivery.take().await;
            for (slot, address) in moved {
                self.set_owner(slot, &address);
            }
            for QueuedBatch { to, batch, attempt } in batches {
                self.publish_to_owner(&to, batch, attempt);
            }
            self.redelivery.resent();
            for server in self.routes.load().servers() {
                if let Some(connection) = &*server.connection.load() {
                    connection.publisher.flush();
                }
            }
        }
    }

    /// Checks batches without a subscriber at their server: a server that has become a replica
    /// answers like a master, and has no subscribers left.
    async fn resolve_absences(&self) {
        loop {
            let mut roles: BTreeMap<Arc<str>, Option<bool>> = BTreeMap::new();
            for (QueuedBatch { to, batch, attempt }, server) in self.redelivery.absences().await {
                let slot = slot(&self.keys.inbox(&to));
                let owner = self.owner_of(slot);
                let Some(owner) = owner.filter(|owner| *owner.publisher.server == *server) else {
                    // The server that answered is no longer the owner.
                    self.redelivery.retry(&to, batch, attempt.with_doubt());
                    continue;
                };
                let is_master = match roles.get(&server) {
                    Some(known) => *known,
                    None => timeout(QUERY_TIMEOUT, owner.is_master())
                        .await
                        .ok()
                        .and_then(Result::ok),
                };
                roles.insert(server, is_master);
                match is_master {
                    Some(true) if self.redelivery.has_moved(slot) => {
                        self.redelivery.retry(&to, batch, attempt.with_doubt());
                    }
                    Some(true) if !attempt.may_have_arrived => {
                        let reason = DeliveryFailure::NoSubscriber;
                        self.redelivery.fail(&to, batch, reason);
                    }
                    Some(false) => {
                        self.clear_owner(slot);
                        self.redelivery.retry(&to, batch, attempt.with_doubt());
                    }
                    Some(true) | None => {
                        self.redelivery.fail(&to, batch, DeliveryFailure::Unknown);
                    }
                }
            }
            self.redelivery.absences_resolved();
        }
    }

    pub(super) fn route(&self, to: &NodeId) -> usize {
        let slot = slot(&self.keys.inbox(to));
        self.routes.load().index(slot).unwrap_or(0) % ROUTES
    }

    /// The connection of the shard that owns this key; waits for it after the slot has moved.
    pub(super) async fn owner(&self, key: &str) -> Result<Arc<Connection>, BusError> {
        let slot = slot(key);
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        loop {
            match self.owner_of(slot) {
                Some(connection) => return Ok(connection),
                None if self.redelivery.has_moved(slot) && Instant::now() < deadline => {
                    sleep(RETRY_DELAY).await;
                }
                None => return Err(BusError::Unavailable),
            }
        }
    }

    /// The server that an error redirects to, and whether it expects `ASKING` first.
    pub(super) fn redirection(
        self: &Arc<Self>,
        error: &RedisError,
        refused_by: &Connection,
    ) -> Option<(ConnectionInfo, bool)> {
        let (address, asking) = match self.retry_after_error(error, Some(refused_by)) {
            Retry::At(redirect) => (redirect.address, true),
            _ => (error.redirect_node()?.0.to_owned(), false),
        };
        let (host, port) = host_and_port(&address).filter(|(host, _)| !host.is_empty())?;
        Some((with_address(&self.seeds.0, host, port), asking))
    }

    pub(super) async fn query<T: FromRedisValue>(
        self: &Arc<Self>,
        key: &str,
        command: &redis::Cmd,
    ) -> Result<T, BusError> {
        let slot = slot(key);
        let deadline = Instant::now() + COMMAND_TIMEOUT;
        let mut redirect: Option<Redirect> = None;
        loop {
            let current = redirect.take();
            let connection = match &current {
                Some(redirect) => self.connection_to(&redirect.address),
                None => self.owner_of(slot),
            };
            let result = match (&connection, &current) {
                (None, None) if !self.redelivery.has_moved(slot) => {
                    return Err(BusError::Unavailable);
                }
                // The new owner is being connected.
                (None, _) => Err(CommandError::Closed),
                (Some(connection), None) => connection.query(command).await,
                (Some(connection), Some(redirect)) => {
                    let command = redirect.command.as_ref().unwrap_or(command);
                    connection.query_asking(command).await
                }
            };
            let error = match result {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let retry = match (&connection, &error) {
                (None, _) => Retry::Later,
                (Some(connection), CommandError::Refused(error)) => {
                    self.retry_after_error(error, Some(connection))
                }
                // The command may have been executed.
                (Some(_), CommandError::Timeout | CommandError::Closed) => Retry::Never,
            };
            let retry = match (retry, current) {
                (Retry::Later, Some(current)) if connection.is_some() => {
                    current.with_one_key(command)
                }
                (retry, _) => retry,
            };
            let is_late = Instant::now() + RETRY_DELAY > deadline;
            match retry {
                Retry::At(next) if !is_late => redirect = Some(next),
                Retry::Later if !is_late => sleep(RETRY_DELAY).await,
                _ => return Err(error.into()),
            }
        }
    }

    fn connection_to(self: &Arc<Self>, address: &str) -> Option<Arc<Connection>> {
        let routes = self.routes.load();
        let connection = routes.find(address).and_then(Server::connection);
        if connection.is_none() {
            // It is about to own a slot, and is usable when it is connected.
            self.add_server(address);
        }
        connection
    }

    fn retry_after_error(
        self: &Arc<Self>,
        error: &RedisError,
        refused_by: Option<&Connection>,
    ) -> Retry {
        match (error.code(), error.redirect_node()) {
            (Some("ASK"), Some((address, _))) => Retry::At(Redirect {
                // Redis omits the host when it is the host of the server itself.
                address: match refused_by.and_then(|connection| host(&connection.info)) {
                    Some(host) if address.starts_with(':') => format!("{host}{address}"),
                    _ => address.to_owned(),
                },
                command: None,
            }),
            (Some("MOVED"), Some((address, slot))) => {
                self.set_owner(slot, address);
                Retry::Later
            }
            (Some("TRYAGAIN"), _) => Retry::Later,
            _ => Retry::Never,
        }
    }

    pub(super) async fn query_all(
        self: &Arc<Self>,
        group: CommandGroup,
    ) -> Result<Vec<Value>, BusError> {
        let CommandGroup { steps, first } = group;
        let mut values = vec![Value::Nil; steps.len()];
        let (before, after) = steps.split_at(first.min(steps.len()));
        for (stage, offset) in [(before, 0), (after, before.len())] {
            for (_, indexes) in self.group_by_owner(stage) {
                for (index, value) in self.query_shard(stage, &indexes).await? {
                    if let Some(target) = values.get_mut(offset + index) {
                        *target = value;
                    }
                }
            }
        }
        Ok(values)
    }

    /// The indexes of the steps for each shard.
    fn group_by_owner(&self, steps: &[Step]) -> BTreeMap<Option<usize>, Vec<usize>> {
        let routes = self.routes.load();
        let mut groups: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
        for (index, step) in steps.iter().enumerate() {
            let owner = routes.index(slot(&step.key));
            groups.entry(owner).or_default().push(index);
        }
        groups
    }

    /// Runs the steps of one shard in one round trip. A step that the shard redirects is run
    /// alone.
    async fn query_shard(
        self: &Arc<Self>,
        steps: &[Step],
        indexes: &[usize],
    ) -> Result<Vec<(usize, Value)>, BusError> {
        let chosen: Vec<(usize, &Step)> = indexes
            .iter()
            .filter_map(|index| Some((*index, steps.get(*index)?)))
            .collect();
        let connection = chosen
            .first()
            .and_then(|(_, step)| self.owner_of(slot(&step.key)));
        let mut pipeline = Pipeline::new();
        for (_, step) in &chosen {
            pipeline.add_command(step.command.clone());
        }
        let mut replies = match &connection {
            Some(connection) if chosen.len() > 1 => connection.query_each(&pipeline).await?,
            _ => Vec::new(),
        }
        .into_iter();
        let mut values = Vec::with_capacity(chosen.len());
        for (index, step) in chosen {
            let value = match replies.next().map(Value::extract_error) {
                Some(Ok(value)) => value,
                Some(Err(error)) => {
                    let retry = self.retry_after_error(&error, connection.as_deref());
                    if let (Retry::Never, Some(connection)) = (retry, &connection) {
                        connection.check_error(&error);
                        return Err(error.into());
                    }
                    self.query(&step.key, &step.command).await?
                }
                None => self.query(&step.key, &step.command).await?,
            };
            values.push((index, value));
        }
        Ok(values)
    }

    pub(super) async fn find_unsubscribed(
        self: &Arc<Self>,
        nodes: &[NodeId],
    ) -> Result<Vec<NodeId>, BusError> {
        let mut unsubscribed = self.find_unsubscribed_at_owners(nodes).await?;
        if !unsubscribed.is_empty() {
            // Their inboxes may have moved without this node knowing.
            self.query_topology().await?;
            unsubscribed = self.find_unsubscribed_at_owners(&unsubscribed).await?;
        }
        unsubscribed.retain(|node| !self.redelivery.has_moved(slot(&self.keys.inbox(node))));
        Ok(unsubscribed)
    }

    async fn find_unsubscribed_at_owners(&self, nodes: &[NodeId]) -> Result<Vec<NodeId>, BusError> {
        let mut by_owner: BTreeMap<usize, Vec<(&NodeId, String)>> = BTreeMap::new();
        let routes = self.routes.load_full();
        for node in nodes {
            let inbox = self.keys.inbox(node);
            if let Some(index) = routes.index(slot(&inbox)) {
                by_owner.entry(index).or_default().push((node, inbox));
            }
        }
        let mut unsubscribed = Vec::new();
        for (index, nodes) in by_owner {
            // Nothing is known of a shard that is unavailable.
            if let Some(connection) = routes.server(index).and_then(Server::connection) {
                let found = connection.find_unsubscribed(self.keys.pubsub, nodes);
                unsubscribed.extend(found.await?);
            }
        }
        Ok(unsubscribed)
    }
}

impl Redirect {
    /// The former owner has none of the keys, and the new one lacks some: those do not exist.
    fn with_one_key(self, command: &redis::Cmd) -> Retry {
        match scripts::with_one_key(command) {
            Some(command) if self.command.is_none() => Retry::At(Self {
                command: Some(command),
                ..self
            }),
            _ => Retry::Later,
        }
    }
}

impl ConnectionEvents for Arc<Cluster> {
    fn connected(&self, _: &Server) {
        *self.logged_refusal.lock() = None;
        self.shared.subscriptions_changed.notify_one();
        self.health.shard_reconnected();
    }

    fn activity(&self, server: &Server, at: Instant) {
        if self.has_inbox(server) && self.health.status().disconnected_for.is_none() {
            self.health.activity(at);
        }
    }

    fn disconnected(&self, _: &Server, _: Instant) {
        self.shared.subscriptions_changed.notify_one();
        self.routes_suspect.notify_one();
    }

    fn subscription_refused(&self, error: &str) {
        match routes::parse_moved(error) {
            Some((slot, address)) => self.set_owner(slot, address),
            // Subscriptions are retried; the error is logged once.
            None if self
                .logged_refusal
                .lock()
                .replace(error.to_owned())
                .as_deref()
                != Some(error) =>
            {
                tracing::warn!(error, "a Redis shard refused a subscription");
            }
            None => {}
        }
    }
}
