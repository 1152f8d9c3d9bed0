//! The configuration of a node's bus.

use secrecy::{ExposeSecret, SecretString};

use crate::memory::LocalHub;

/// The settings of an operator.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Config {
    /// URL of Redis, which carries calls, results and the directory:
    /// `redis://[user:password@]host:port[/db]` for a single server;
    /// `redis+sentinel://[user:password@]host:26379,host:26379/name[/db]` for a master behind
    /// sentinels, with `?sentinel_user=` and `&sentinel_password=` as their credentials;
    /// `redis+cluster://[user:password@]host:port,host:port` for a cluster, with some of its
    /// servers
    #[arg(long, env, hide_env_values = true)]
    pub redis_url: Option<SecretString>,

    /// Prefix of every key and channel in Redis, so that several systems can share one server
    #[arg(long, env, default_value = "sb")]
    pub redis_prefix: String,

    /// This node's name in presence and logs [default: the service's name]
    #[arg(long, env)]
    pub node_name: Option<String>,
}

/// The parameters of one node's bus.
#[derive(Debug, Clone)]
pub struct BusConfig {
    /// The backend.
    pub backend: Backend,
    /// The readable part of the node's id.
    pub node_name: String,
    /// The prefix of every Redis key and channel.
    pub key_prefix: String,
    /// Whether this node receives catalog events: see
    /// [`Bus::watch_catalog`](crate::Bus::watch_catalog).
    pub watch_catalog: bool,
}

/// What carries the messages.
#[derive(Debug, Clone)]
pub enum Backend {
    /// Redis, version 6.2 or newer: a single server, a master behind sentinels, or a cluster
    /// (version 7.0 or newer).
    Redis {
        /// The URL; may contain a password.
        url: SecretString,
    },
    /// This process: every bus that is started with the same hub is a node of it.
    Local(LocalHub),
}

impl BusConfig {
    /// A node over Redis.
    #[must_use]
    pub fn redis(
        url: &SecretString,
        node_name: impl Into<String>,
        key_prefix: impl Into<String>,
    ) -> Self {
        Self {
            backend: Backend::Redis {
                url: url.expose_secret().into(),
            },
            node_name: node_name.into(),
            key_prefix: key_prefix.into(),
            watch_catalog: false,
        }
    }

    /// A node inside this process.
    #[must_use]
    pub fn local(hub: &LocalHub, node_name: impl Into<String>) -> Self {
        Self {
            backend: Backend::Local(hub.clone()),
            node_name: node_name.into(),
            key_prefix: String::new(),
            watch_catalog: false,
        }
    }

    /// The same node, with a subscription to catalog events.
    #[must_use]
    pub fn watching_catalog(mut self) -> Self {
        self.watch_catalog = true;
        self
    }
}
