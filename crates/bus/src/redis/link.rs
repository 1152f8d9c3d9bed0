//! One node's way to Redis, whether that is one server or many: packs, commands, and how well it is connected.
//! Never: a difference between the two that callers have to know of.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use redis::{Cmd, ConnectionInfo, FromRedisValue, Pipeline, RedisError, Value};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    cluster::{Cluster, WAYS},
    keys::Keys,
    live::Live,
    publisher::{Attempt, Channel, Returned, Returns},
    script::Scripts,
    shard::{Shard, Watcher},
    standing::Standing,
};
use crate::{
    backend::{Condition, Inbox},
    error::BusError,
    node::NodeId,
};

/// At one server, all packs leave by one way.
const ONE_WAY: usize = 0;

pub(super) struct Link {
    pub(super) keys: Keys,
    pub(super) node: NodeId,
    pub(super) scripts: Arc<Scripts>,
    pub(super) standing: Arc<Standing>,
    pub(super) reach: Reach,
    /// Held by whoever supervises.
    pub(super) supervised: Mutex<()>,
    pub(super) ended: CancellationToken,
}

/// How many servers there are.
#[expect(
    clippy::large_enum_variant,
    reason = "a node has one of these, and packs to one server shall not go a longer way"
)]
pub(super) enum Reach {
    One(Shard),
    Many(Arc<Cluster>),
}

/// Commands that go in one round trip where one server has all they are about.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) steps: Vec<Step>,
    /// How many are to be done before the others begin.
    pub(super) first: usize,
}

/// A command, and a name in the slot that it is about.
#[derive(Clone)]
pub(super) struct Step {
    pub(super) about: String,
    pub(super) command: Cmd,
}

impl Batch {
    pub(super) fn add(&mut self, about: impl Into<String>, command: Cmd) {
        let about = about.into();
        self.steps.push(Step { about, command });
    }

    /// What is added from now on begins when everything before is done.
    pub(super) fn then(&mut self) {
        self.first = self.steps.len();
    }

    /// All of it in one go.
    pub(super) fn into_pipeline(self) -> Pipeline {
        let mut commands = Pipeline::new();
        for step in self.steps {
            commands.add_command(step.command);
        }
        commands
    }
}

impl Link {
    pub(super) fn condition(&self) -> Condition {
        self.standing.condition()
    }

    /// Keeps the way open for as long as the process lives.
    pub(super) async fn supervise(&self) {
        let _supervised = self.supervised.lock().await;
        match &self.reach {
            Reach::One(shard) => shard.supervise(self).await,
            Reach::Many(cluster) => cluster.supervise().await,
        }
    }

    /// Sends on what came back, until the way is given up.
    pub(super) async fn redirect(&self) {
        if let Reach::Many(cluster) = &self.reach {
            self.ended.run_until_cancelled(cluster.redirect()).await;
        }
    }

    /// Whether no pack has come back that goes on from here.
    pub(super) fn is_settled(&self) -> bool {
        match &self.reach {
            Reach::One(_) => true,
            Reach::Many(cluster) => cluster.is_settled(),
        }
    }

    /// Has this node's inbox heard no more, and takes what came there until then.
    pub(super) async fn close_inbox(&self) -> Result<(), BusError> {
        // Whoever supervises would listen again.
        let _ended = self.supervised.lock().await;
        match &self.reach {
            Reach::One(shard) => shard.close_inbox().await,
            Reach::Many(cluster) => cluster.close_inbox().await,
        }
    }

    /// Gives the way up: nobody is heard here any more.
    pub(super) fn end(&self) {
        self.standing.deaf(Instant::now());
        self.ended.cancel();
        match &self.reach {
            Reach::One(shard) => shard.end(),
            Reach::Many(cluster) => cluster.end(),
        }
    }

    /// Puts a pack on its way, if there is a way.
    pub(super) fn post(&self, to: &NodeId, pack: Bytes) {
        match &self.reach {
            Reach::One(shard) => {
                let channel = Channel {
                    publish: self.keys.speech.publish,
                    name: &self.keys.inbox(to),
                };
                shard.post(channel, to, pack, Attempt::first());
            }
            Reach::Many(cluster) => cluster.post(to, pack),
        }
    }

    /// Which way packs for a node take.
    pub(super) fn way(&self, to: &NodeId) -> usize {
        match &self.reach {
            Reach::One(_) => ONE_WAY,
            Reach::Many(cluster) => cluster.way(to),
        }
    }

    /// How many ways there are.
    pub(super) const fn ways(&self) -> usize {
        match &self.reach {
            Reach::One(_) => 1,
            Reach::Many(_) => WAYS,
        }
    }

    pub(super) fn flush(&self, way: usize) {
        match &self.reach {
            Reach::One(shard) => shard.flush(),
            Reach::Many(cluster) => cluster.flush(way),
        }
    }

    pub(super) fn is_clear(&self, way: usize) -> bool {
        match &self.reach {
            Reach::One(shard) => shard.is_clear(),
            Reach::Many(cluster) => cluster.is_clear(way),
        }
    }

    pub(super) async fn clear(&self, way: usize) {
        match &self.reach {
            Reach::One(shard) => shard.clear().await,
            Reach::Many(cluster) => cluster.clear(way).await,
        }
    }

    /// Runs one command, which is about this key or channel, under our own time limit.
    pub(super) async fn query<T: FromRedisValue>(
        &self,
        about: &str,
        command: &Cmd,
    ) -> Result<T, BusError> {
        match &self.reach {
            Reach::One(shard) => {
                let live = shard.live().ok_or(BusError::Unavailable)?;
                Ok(live.query(command).await?)
            }
            Reach::Many(cluster) => cluster.query(about, command).await,
        }
    }

    /// Runs several commands under our own time limit; what each of them came to.
    pub(super) async fn query_all(&self, batch: Batch) -> Result<Vec<Value>, BusError> {
        match &self.reach {
            Reach::One(shard) => {
                let live = shard.live().ok_or(BusError::Unavailable)?;
                Ok(live.query_all(&batch.into_pipeline()).await?)
            }
            Reach::Many(cluster) => cluster.query_all(batch).await,
        }
    }

    /// Which of these nodes have nobody listening at their inbox.
    pub(super) async fn silent(&self, nodes: &[NodeId]) -> Result<Vec<NodeId>, BusError> {
        match &self.reach {
            Reach::One(shard) => {
                let live = shard.live().ok_or(BusError::Unavailable)?;
                let named = nodes.iter().map(|node| (node, self.keys.inbox(node)));
                Ok(live.silent(self.keys.speech, named.collect()).await?)
            }
            Reach::Many(cluster) => cluster.silent(nodes).await,
        }
    }

    /// The connections to the server that has this key.
    pub(super) async fn owner(&self, key: &str) -> Result<Arc<Live>, BusError> {
        match &self.reach {
            Reach::One(shard) => shard.live().ok_or(BusError::Unavailable),
            Reach::Many(cluster) => cluster.owner(key).await,
        }
    }

    /// Which server does what this one refused on a connection that others keep, and whether it has to be told `ASKING`.
    pub(super) fn redirected(
        &self,
        error: &RedisError,
        by: &Live,
    ) -> Option<(ConnectionInfo, bool)> {
        match &self.reach {
            Reach::One(_) => None,
            Reach::Many(cluster) => cluster.redirected(error, by),
        }
    }

    /// Whether one step can read every key.
    pub(super) const fn is_whole(&self) -> bool {
        matches!(self.reach, Reach::One(_))
    }
}

impl Watcher for Link {
    fn came(&self, _: &Shard) {
        self.standing.hears();
    }

    fn heard(&self, _: &Shard, at: Instant) {
        self.standing.heard(at);
    }

    fn went(&self, _: &Shard, since: Instant) {
        self.standing.deaf(since);
    }

    fn refused(&self, _: &str) {}
}

/// What does not arrive at the one server goes straight back.
pub(super) struct Straight(pub(super) Arc<dyn Inbox>);

impl Returns for Straight {
    fn returned(&self, parcel: Returned) {
        let Returned { to, pack, why, .. } = parcel;
        self.0.undelivered(&to, pack, why);
    }
}

/// A duration as scripts take it.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
