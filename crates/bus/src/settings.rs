//! How a node reaches the others.
//! Never: a secret of the URL in a log or an error.

use secrecy::{ExposeSecret, SecretString};

use crate::local::LocalHub;

/// What an operator sets.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Config {
    /// Redis that carries calls, results and the directory, as `redis://[user:password@]host:port[/db]`;
    /// with sentinels as `redis+sentinel://[user:password@]host:26379,host:26379/name[/db]`, where
    /// `?sentinel_user=` and `&sentinel_password=` sign in at these; as a cluster as
    /// `redis+cluster://[user:password@]host:port,host:port`, of which some are enough
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: Option<SecretString>,

    /// What every key and channel in Redis begins with, so that several systems can share one
    #[arg(long, env = "SWITCHBOARD_REDIS_PREFIX", default_value = "sb")]
    pub redis_prefix: String,

    /// This node's name in presence and logs [default: the service's name]
    #[arg(long, env = "SWITCHBOARD_NODE_NAME")]
    pub node_name: Option<String>,
}

/// How one node's bus is built.
#[derive(Debug, Clone)]
pub struct BusConfig {
    /// What carries the messages.
    pub backend: Backend,
    /// The readable part of the node's id.
    pub node_name: String,
    /// What every Redis key and channel begins with.
    pub key_prefix: String,
    /// Whether this node hears of every registration: see
    /// [`Bus::offer_changes`](crate::Bus::offer_changes).
    pub follow_offers: bool,
}

/// What carries the messages.
#[derive(Debug, Clone)]
pub enum Backend {
    /// Redis, version 6.2 or newer: a server, a master that sentinels know, or (from 7.0 on) a cluster.
    Redis {
        /// Where it is; may hold a password.
        url: SecretString,
    },
    /// This process: every bus made from the same hub is a node of it.
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
            follow_offers: false,
        }
    }

    /// A node inside this process.
    #[must_use]
    pub fn local(hub: &LocalHub, node_name: impl Into<String>) -> Self {
        Self {
            backend: Backend::Local(hub.clone()),
            node_name: node_name.into(),
            key_prefix: String::new(),
            follow_offers: false,
        }
    }

    /// The same node, hearing of every registration.
    #[must_use]
    pub fn following_offers(mut self) -> Self {
        self.follow_offers = true;
        self
    }
}
