//! A verified connection to one Redis server, and commands on it.

use std::{
    collections::HashMap,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{
    Cmd, ConnectionInfo, FromRedisValue, Pipeline, RedisError, Value, aio::MultiplexedConnection,
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    connector::Driver, keys::PubSubCommands, publisher::Publisher, server::ConnectionEvents,
    shard_subscriber::ShardSubscriber, subscriber::Subscriber,
};
use crate::{error::BusError, node::NodeId};

/// The longest that a command waits for its reply.
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);

/// The sockets of one connection. They are built and closed together.
pub(super) struct Connection {
    pub(super) info: ConnectionInfo,
    pub(super) driver: Driver,
    pub(super) publisher: Publisher,
    pub(super) subscriber: Arc<Subscriber>,
    /// Only in a cluster.
    pub(super) shard_subscriber: Option<ShardSubscriber>,
    /// Fails commands in flight when the connection is closed.
    pub(super) closed: CancellationToken,
}

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error("{0}")]
    Refused(#[from] RedisError),
    #[error("no reply in time")]
    Timeout,
    #[error("the connection was closed")]
    Closed,
}

impl From<CommandError> for BusError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Refused(error) => error.into(),
            CommandError::Timeout => Self::Timeout(COMMAND_TIMEOUT),
            CommandError::Closed => Self::Unavailable,
        }
    }
}

impl Connection {
    pub(super) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, CommandError> {
        self.run_command(|mut driver| async move { command.query_async(&mut driver).await })
            .await
    }

    /// Runs a command at a server that is importing its slot.
    pub(super) async fn query_asking<T: FromRedisValue>(
        &self,
        command: &Cmd,
    ) -> Result<T, CommandError> {
        self.run_command(|mut driver| async move { query_asking(&mut driver, command).await })
            .await
    }

    /// Runs several commands in one round trip.
    pub(super) async fn query_all<T: FromRedisValue>(
        &self,
        commands: &Pipeline,
    ) -> Result<T, CommandError> {
        self.run_command(|mut driver| async move { commands.query_async(&mut driver).await })
            .await
    }

    /// Runs several commands in one round trip. Returns the value or the error of each.
    pub(super) async fn query_each(&self, commands: &Pipeline) -> Result<Vec<Value>, CommandError> {
        let mut commands = commands.clone();
        commands.ignore_errors();
        self.query_all(&commands).await
    }

    /// Whether the server is a master, and not a replica.
    pub(super) async fn is_master(&self) -> Result<bool, CommandError> {
        let role: Vec<Value> = self.query(&redis::cmd("ROLE")).await?;
        Ok(is_master_role(&role))
    }

    /// Which of these nodes' inboxes have no subscriber at this server.
    pub(super) async fn find_unsubscribed(
        &self,
        pubsub: &PubSubCommands,
        nodes: Vec<(&NodeId, String)>,
    ) -> Result<Vec<NodeId>, CommandError> {
        let mut command = redis::cmd("PUBSUB");
        command.arg(pubsub.count_subscribers);
        for (_, inbox) in &nodes {
            command.arg(inbox);
        }
        let counts: HashMap<String, u64> = self.query(&command).await?;
        let unsubscribed = nodes
            .into_iter()
            .filter(|(_, inbox)| counts.get(inbox).is_none_or(|count| *count == 0));
        Ok(unsubscribed.map(|(node, _)| node.clone()).collect())
    }

    /// Ends a subscription of the driver. Everything published before has been received
    /// then.
    pub(super) async fn unsubscribe(&self, channel: &str) -> Result<(), CommandError> {
        self.run_command(|mut driver| async move { driver.unsubscribe(channel).await })
            .await
    }

    async fn run_command<T, F>(
        &self,
        query: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, CommandError>
    where
        F: Future<Output = Result<T, RedisError>>,
    {
        let reply = tokio::select! {
            reply = timeout(COMMAND_TIMEOUT, query(self.driver.commands.clone())) => reply,
            () = self.closed.cancelled() => return Err(CommandError::Closed),
        };
        let Ok(reply) = reply else {
            self.subscriber.suspect.notify_one();
            return Err(CommandError::Timeout);
        };
        reply.map_err(|error| {
            self.check_error(&error);
            CommandError::Refused(error)
        })
    }

    /// Reconnects after an error that concerns the server: one that lost our scripts was replaced
    /// behind the connection, and one that refuses writes is no longer a master.
    pub(super) fn check_error(&self, error: &RedisError) {
        if matches!(error.code(), Some("NOSCRIPT" | "READONLY")) || error.is_connection_dropped() {
            self.subscriber.disconnected.notify_one();
        }
    }

    /// Runs the publisher and the subscriptions until one of them fails. Returns the reason, and
    /// since when nothing is known.
    pub(super) async fn run(&self, events: &dyn ConnectionEvents) -> (String, Instant) {
        let Some(shard_subscriber) = &self.shard_subscriber else {
            return self.publisher.run().await;
        };
        let on_error = |error: &str| events.subscription_refused(error);
        tokio::select! {
            failed = self.publisher.run() => failed,
            reason = shard_subscriber.run(&self.subscriber, on_error) => (reason, Instant::now()),
        }
    }
}

/// Runs a command at a server that is importing its slot.
pub(super) async fn query_asking<T: FromRedisValue>(
    driver: &mut MultiplexedConnection,
    command: &Cmd,
) -> Result<T, RedisError> {
    let mut asking = redis::pipe();
    asking.cmd("ASKING").add_command(command.clone());
    asking.ignore_errors();
    let values: Vec<Value> = asking.query_async(driver).await?;
    let last = values.into_iter().last().unwrap_or(Value::Nil);
    Ok(redis::from_redis_value(last.extract_error()?)?)
}

/// Fails unless the server is a master: a replica refuses writes, and what is published at it
/// reaches no subscriber of the master.
pub(super) async fn verify_master(driver: &mut MultiplexedConnection) -> Result<(), BusError> {
    let role: Vec<Value> = redis::cmd("ROLE").query_async(driver).await?;
    if is_master_role(&role) {
        return Ok(());
    }
    let error = "this server is a replica, not the master";
    Err(BusError::Unexpected(error.to_owned()))
}

fn is_master_role(role: &[Value]) -> bool {
    matches!(role.first(), Some(Value::BulkString(role)) if role == b"master")
}
