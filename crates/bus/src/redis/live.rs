//! Verified connections to one server of Redis, and commands on them.
//! Never: a command without our own time limit.

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

use super::{ear::Ear, ears::Ears, keys::Speech, publisher::Publisher, shard::Watcher};
use crate::{error::BusError, node::NodeId};

/// No command waits longer.
pub(super) const COMMAND_LIMIT: Duration = Duration::from_secs(2);

/// Verified connections.
pub(super) struct Live {
    pub(super) info: ConnectionInfo,
    pub(super) connection: MultiplexedConnection,
    pub(super) publisher: Publisher,
    pub(super) ears: Arc<Ears>,
    /// Only in a cluster.
    pub(super) ear: Option<Ear>,
    /// Ends what still waits for an answer when the connection is given up.
    pub(super) given_up: CancellationToken,
}

/// Why a command has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("{0}")]
    Refused(#[from] RedisError),
    #[error("no answer in time")]
    Late,
    #[error("the connection ended")]
    Ended,
}

impl From<Fault> for BusError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(error) => error.into(),
            Fault::Late => Self::Timeout(COMMAND_LIMIT),
            Fault::Ended => Self::Unavailable,
        }
    }
}

impl Live {
    /// Runs one command under our own time limit.
    pub(super) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Fault> {
        self.run(|mut connection| async move { command.query_async(&mut connection).await })
            .await
    }

    /// Runs one command at a server that is about to own its slot.
    pub(super) async fn query_asking<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Fault> {
        self.run(|mut connection| async move { ask_there(&mut connection, command).await })
            .await
    }

    /// Runs several commands in one go under our own time limit.
    pub(super) async fn query_all<T: FromRedisValue>(
        &self,
        commands: &Pipeline,
    ) -> Result<T, Fault> {
        self.run(|mut connection| async move { commands.query_async(&mut connection).await })
            .await
    }

    /// The same, and what each of them came to.
    pub(super) async fn query_each(&self, commands: &Pipeline) -> Result<Vec<Value>, Fault> {
        let mut commands = commands.clone();
        commands.ignore_errors();
        self.query_all(&commands).await
    }

    /// Whether the server is a master, and not the replica of one.
    pub(super) async fn is_master(&self) -> Result<bool, Fault> {
        let role: Vec<Value> = self.query(&redis::cmd("ROLE")).await?;
        Ok(says_master(&role))
    }

    /// Which of these nodes' inboxes nobody listens to here.
    pub(super) async fn silent(
        &self,
        speech: &Speech,
        nodes: Vec<(&NodeId, String)>,
    ) -> Result<Vec<NodeId>, Fault> {
        let mut ask = redis::cmd("PUBSUB");
        ask.arg(speech.listeners);
        for (_, inbox) in &nodes {
            ask.arg(inbox);
        }
        let listening: HashMap<String, u64> = self.query(&ask).await?;
        let silent = nodes
            .into_iter()
            .filter(|(_, inbox)| listening.get(inbox).is_none_or(|count| *count == 0));
        Ok(silent.map(|(node, _)| node.clone()).collect())
    }

    /// Hears nothing more at a channel of the connection for commands; what came there before has been taken then.
    pub(super) async fn unsubscribe(&self, channel: &str) -> Result<(), Fault> {
        self.run(|mut connection| async move { connection.unsubscribe(channel).await })
            .await
    }

    async fn run<T, F>(&self, query: impl FnOnce(MultiplexedConnection) -> F) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, RedisError>>,
    {
        let answer = tokio::select! {
            answer = timeout(COMMAND_LIMIT, query(self.connection.clone())) => answer,
            () = self.given_up.cancelled() => return Err(Fault::Ended),
        };
        let Ok(answer) = answer else {
            self.ears.doubted.notify_one();
            return Err(Fault::Late);
        };
        answer.map_err(|error| {
            self.judge(&error);
            Fault::Refused(error)
        })
    }

    /// A Redis that lost our scripts was replaced behind the connection, and one that takes
    /// nothing is no master any more: build it anew.
    pub(super) fn judge(&self, error: &RedisError) {
        if matches!(error.code(), Some("NOSCRIPT" | "READONLY")) || error.is_connection_dropped() {
            self.ears.gone.notify_one();
        }
    }

    /// Looks after what is sent and what is heard. Ends when one of them does: why, and since when.
    pub(super) async fn attend(&self, watcher: &dyn Watcher) -> (String, Instant) {
        let Some(ear) = &self.ear else {
            return self.publisher.attend().await;
        };
        tokio::select! {
            broken = self.publisher.attend() => broken,
            why = ear.listen(&self.ears, |why| watcher.refused(why)) => (why, Instant::now()),
        }
    }
}

/// Runs one command at a server that is about to own its slot.
pub(super) async fn ask_there<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
) -> Result<T, RedisError> {
    let mut asking = redis::pipe();
    asking.cmd("ASKING").add_command(command.clone());
    asking.ignore_errors();
    let said: Vec<Value> = asking.query_async(connection).await?;
    let last = said.into_iter().last().unwrap_or(Value::Nil);
    Ok(redis::from_redis_value(last.extract_error()?)?)
}

/// Whoever is not the master, or not any more, keeps nothing for others and is heard by nobody.
pub(super) async fn verify_master(connection: &mut MultiplexedConnection) -> Result<(), BusError> {
    let role: Vec<Value> = redis::cmd("ROLE").query_async(connection).await?;
    if says_master(&role) {
        return Ok(());
    }
    let why = "this server is a replica now, not the master";
    Err(BusError::Unexpected(why.to_owned()))
}

fn says_master(role: &[Value]) -> bool {
    matches!(role.first(), Some(Value::BulkString(role)) if role == b"master")
}
