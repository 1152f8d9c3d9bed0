//! The bus over Redis: batches through pub/sub, shared state in keys.

mod address;
mod auth;
mod client;
mod cluster;
#[cfg(test)]
mod compatibility;
mod connection;
mod connector;
mod conversations;
mod directory;
mod events;
mod health;
mod keys;
mod live;
mod postponed_turns;
mod publisher;
mod quotas;
mod resp;
mod scripts;
mod sentinel;
mod server;
mod shard_subscriber;
mod socket;
mod stats;
mod stream;
mod subscriber;
mod turns;

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicU64},
};

use secrecy::{ExposeSecret, SecretString};
use switchboard_runtime::shutdown::Shutdown;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use self::{
    address::Address,
    client::{RedisClient, ReportFailures, Topology},
    cluster::{Cluster, Redelivery},
    connector::Connector,
    health::ConnectionHealth,
    postponed_turns::PostponedSchedule,
    publisher::FailureSink,
    scripts::Scripts,
    sentinel::Sentinels,
    server::{Endpoint, Server, SharedState, Subscriptions},
    stream::StreamReader,
};
pub(crate) use self::{cluster::Deduplicator, keys::Keys};
use crate::{
    backend::{Backend, Inbox},
    error::BusError,
    metrics::Metrics,
    node::NodeId,
};

/// How to reach Redis.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) url: &'a SecretString,
    /// Certificate authorities other than those of the system.
    pub(crate) authorities: Option<&'a Path>,
}

/// Starts the supervised connections of a node.
pub(crate) fn start(
    target: Target<'_>,
    keys: Keys,
    node: NodeId,
    inbox: Arc<dyn Inbox>,
    metrics: Metrics,
    shutdown: &Shutdown,
) -> Result<Arc<dyn Backend>, BusError> {
    let address = Address::parse(target.url.expose_secret())?;
    let connector = Connector::new(&address, target.authorities)?;
    let health = ConnectionHealth::new(node.clone(), Arc::clone(&inbox), metrics.clone());
    let health = Arc::new(health);
    let scripts = Arc::new(Scripts::new());
    let shared = |keys: &Keys, failures: Arc<dyn FailureSink>| SharedState {
        connector: connector.clone(),
        node: node.clone(),
        inbox_channel: keys.inbox(&node),
        scripts: Arc::clone(&scripts),
        inbox: Arc::clone(&inbox),
        failures,
        metrics: metrics.clone(),
        subscriptions_changed: Arc::new(Notify::new()),
        deduplicator: Arc::new(Deduplicator::new()),
    };
    let (keys, topology) = match address {
        Address::Single(info) => {
            let shared = shared(&keys, Arc::new(ReportFailures(inbox.clone())));
            let server = single_server(Endpoint::Fixed(info), &keys, shared);
            (keys, Topology::Single(server))
        }
        Address::Sentinel(address) => {
            let shared = shared(&keys, Arc::new(ReportFailures(inbox.clone())));
            let endpoint = Endpoint::Sentinels(Sentinels::new(address, connector.clone()));
            let server = single_server(endpoint, &keys, shared);
            (keys, Topology::Single(server))
        }
        Address::Cluster(seeds) => {
            let keys = keys.sharded()?;
            let redelivery = Arc::new(Redelivery::new(keys.clone(), inbox.clone()));
            let shared = shared(&keys, redelivery.clone());
            let cluster = Cluster::new(
                keys.clone(),
                shared,
                Arc::clone(&health),
                redelivery,
                seeds,
                shutdown.clone(),
            );
            (keys, Topology::Cluster(Arc::new(cluster)))
        }
    };
    let client = Arc::new(RedisClient {
        events: StreamReader::new(events::stream_group(&keys), &connector),
        turns: StreamReader::new(turns::stream_group(&keys), &connector),
        postponed: PostponedSchedule::default(),
        timings: metrics.commands.clone(),
        last_epoch: AtomicU64::default(),
        keys,
        node: node.clone(),
        scripts: Arc::clone(&scripts),
        health,
        topology,
        supervising: Mutex::new(()),
        closed: CancellationToken::new(),
    });
    let redelivering = Arc::clone(&client);
    shutdown.spawn(async move { redelivering.redeliver().await });
    let (supervised, stop) = (Arc::clone(&client), shutdown.clone());
    shutdown.spawn(async move {
        tokio::select! {
            () = supervised.supervise() => {}
            () = stop.stopping() => {}
        }
    });
    Ok(client)
}

/// A server that has every key and every channel.
fn single_server(endpoint: Endpoint, keys: &Keys, shared: SharedState) -> Server {
    let mut channels = vec![keys.broadcast()];
    if shared.inbox.watches_catalog() {
        channels.extend(keys.catalog_channels());
    }
    // The lease exists before the first device is entered under it.
    let setup = directory::renew_lease(keys, &shared.node, &shared.scripts, false).into_pipeline();
    Server::new(endpoint, Subscriptions::Single { channels, setup }, shared)
}
