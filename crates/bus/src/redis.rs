//! The bus over Redis: packs through pub/sub, shared state in keys.
//! Never: a call that waits for Redis without an end, or a key without this system's prefix.

mod address;
mod backend;
mod cluster;
mod conversations;
mod dial;
mod directory;
mod doubles;
mod ear;
mod ears;
mod figures;
mod keys;
mod link;
mod live;
mod publisher;
mod record;
mod script;
mod sentinels;
mod shard;
mod slot;
mod standing;
mod stream;
mod turns;

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use switchboard_runtime::shutdown::Shutdown;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

pub(crate) use self::keys::Keys;
use self::{
    address::Address,
    backend::RedisBackend,
    cluster::{Cluster, Detours},
    doubles::Doubles,
    link::{Link, Reach, Straight},
    publisher::Returns,
    script::Scripts,
    sentinels::Sentinels,
    shard::{Hearing, Household, Shard, Whereabouts},
    standing::Standing,
    stream::Reader,
};
use crate::{
    backend::{Backend, Inbox},
    error::BusError,
    metrics::Metrics,
    node::NodeId,
};

/// Starts the supervised connections of a node.
pub(crate) fn connect(
    url: &SecretString,
    keys: Keys,
    node: NodeId,
    inbox: Arc<dyn Inbox>,
    metrics: Metrics,
    shutdown: &Shutdown,
) -> Result<Arc<dyn Backend>, BusError> {
    let address = Address::parse(url.expose_secret())?;
    let standing = Standing::new(node.clone(), Arc::clone(&inbox), metrics.clone());
    let standing = Arc::new(standing);
    let scripts = Arc::new(Scripts::new());
    let house = |keys: &Keys, returns: Arc<dyn Returns>| Household {
        node: node.clone(),
        inbox_channel: keys.inbox(&node),
        scripts: Arc::clone(&scripts),
        inbox: Arc::clone(&inbox),
        returns,
        metrics: metrics.clone(),
        hearing: Arc::new(Notify::new()),
        doubles: Arc::new(Doubles::new()),
    };
    let (keys, reach) = match address {
        Address::One(info) => {
            let house = house(&keys, Arc::new(Straight(inbox.clone())));
            let one = the_one(Whereabouts::At(info), &keys, house);
            (keys, Reach::One(one))
        }
        Address::Sentinel(sentinel) => {
            let house = house(&keys, Arc::new(Straight(inbox.clone())));
            let whereabouts = Whereabouts::Sentinels(Sentinels::new(sentinel));
            let one = the_one(whereabouts, &keys, house);
            (keys, Reach::One(one))
        }
        Address::Cluster(seeds) => {
            let keys = keys.sharded()?;
            let detours = Arc::new(Detours::new(keys.clone(), inbox.clone()));
            let house = house(&keys, detours.clone());
            let cluster = Cluster::new(
                keys.clone(),
                house,
                Arc::clone(&standing),
                detours,
                seeds,
                shutdown.clone(),
            );
            (keys, Reach::Many(Arc::new(cluster)))
        }
    };
    let link = Arc::new(Link {
        keys,
        node: node.clone(),
        scripts: Arc::clone(&scripts),
        standing,
        reach,
        supervised: Mutex::new(()),
        ended: CancellationToken::new(),
    });
    let redirecting = Arc::clone(&link);
    shutdown.spawn(async move { redirecting.redirect().await });
    let (supervised, stop) = (Arc::clone(&link), shutdown.clone());
    shutdown.spawn(async move {
        tokio::select! {
            () = supervised.supervise() => {}
            () = stop.stopping() => {}
        }
    });
    Ok(Arc::new(RedisBackend {
        facts: Reader::new(record::stream(&link.keys)),
        turns: Reader::new(turns::stream(&link.keys)),
        commands: metrics.commands.clone(),
        link,
    }))
}

/// The server that has everything, and where this node hears everything.
fn the_one(whereabouts: Whereabouts, keys: &Keys, house: Household) -> Shard {
    let mut others = vec![keys.everybody()];
    if house.inbox.follows() {
        others.extend(keys.all_registered());
    }
    // The lease stands before the first device is entered under it.
    let greeting = directory::beat(keys, &house.node, &house.scripts).into_pipeline();
    Shard::new(whereabouts, Hearing::Whole { others, greeting }, house)
}
