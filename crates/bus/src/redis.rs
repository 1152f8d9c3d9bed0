//! The bus over Redis: packs through pub/sub, shared state in keys.
//! Never: a call that waits for Redis without an end, or a key without this system's prefix.

mod backend;
mod dial;
mod directory;
mod link;
mod publisher;
mod record;
mod script;

use std::{fmt, sync::Arc};

use redis::{IntoConnectionInfo, ProtocolVersion, io::tcp::TcpSettings};
use secrecy::{ExposeSecret, SecretString};
use switchboard_protocol::id::OrgId;
use switchboard_runtime::shutdown::Shutdown;

use crate::{
    backend::{Backend, Inbox},
    error::BusError,
    metrics::Metrics,
    node::NodeId,
};

/// Names of keys and channels. One place, so that what this system keeps in Redis is one list.
#[derive(Debug, Clone)]
pub(crate) struct Keys(Arc<str>);

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self(prefix.into())
    }

    fn key(&self, rest: impl fmt::Display) -> String {
        format!("{}:{rest}", self.0)
    }

    /// Channel: a node's inbox.
    fn inbox(&self, node: &NodeId) -> String {
        self.key(format_args!("in:{node}"))
    }

    /// Channel: every node's ear.
    fn everybody(&self) -> String {
        self.key("all")
    }

    /// Channel: what changes in what devices offer.
    fn registered(&self) -> String {
        self.key("registered")
    }

    /// Sorted set: node → its last beat, in milliseconds of Redis's clock.
    fn nodes(&self) -> String {
        self.key("nodes")
    }

    /// Hash: registrations of a node's devices by digest; lives as long as the node's lease.
    fn shelf(&self, node: &NodeId) -> String {
        self.key(format_args!("node:{node}:services"))
    }

    /// Set: organisations with live devices.
    fn orgs(&self) -> String {
        self.key("orgs")
    }

    /// Hash: an organisation's live devices, `epoch node digest` each.
    fn directory(&self, org: OrgId) -> String {
        self.key(format_args!("{{{org}}}:live"))
    }

    /// Sorted set: the ids of the same devices, for listing in order.
    fn ids(&self, org: OrgId) -> String {
        self.key(format_args!("{{{org}}}:ids"))
    }

    /// String: the public keys.
    fn trust(&self) -> String {
        self.key("trust:keys")
    }

    /// Sorted set: revoked tokens by expiry.
    fn revoked(&self) -> String {
        self.key("trust:revoked")
    }

    /// String: changes whenever one of the two changes.
    fn trust_version(&self) -> String {
        self.key("trust:version")
    }

    /// Stream: facts for the record.
    fn facts(&self) -> String {
        self.key("facts")
    }
}

/// Starts the supervised connection of a node.
pub(crate) fn connect(
    url: &SecretString,
    keys: Keys,
    node: NodeId,
    inbox: Arc<dyn Inbox>,
    metrics: Metrics,
    shutdown: &Shutdown,
) -> Result<Arc<dyn Backend>, BusError> {
    let address = |error: redis::RedisError| BusError::Address(error.category().to_owned());
    let info = url
        .expose_secret()
        .into_connection_info()
        .map_err(address)?;
    let settings = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3);
    let info = info
        .set_redis_settings(settings)
        .set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let client = redis::Client::open(info).map_err(address)?;
    let link = Arc::new(link::Link::new(
        client.clone(),
        keys.clone(),
        node,
        inbox,
        metrics,
    ));
    let (supervised, stop) = (Arc::clone(&link), shutdown.clone());
    shutdown.spawn(async move {
        tokio::select! {
            () = supervised.supervise() => {}
            () = stop.stopping() => {}
        }
    });
    Ok(Arc::new(backend::RedisBackend {
        link,
        reader: record::Reader::new(client, keys),
    }))
}
