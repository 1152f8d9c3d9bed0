//! The configuration of a node's bus.

use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
use switchboard_protocol::token::VerifyingKey;

use crate::memory::LocalHub;

/// Hundreds of firmwares.
const DEFAULT_REGISTRATION_BYTES: u64 = 8 * 1024 * 1024;
/// More than the largest registration.
const MIN_REGISTRATION_BYTES: u64 = 1024 * 1024;
/// An entry takes some 200 bytes.
const DEFAULT_CACHED_ENTRIES: u32 = 200_000;
/// Entries of one burst of calls.
const MIN_CACHED_ENTRIES: u32 = 1_000;
/// 10 GB.
const MAX_CACHED_ENTRIES: u32 = 50_000_000;

/// The settings of an operator.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Config {
    /// URL of Redis, which carries calls, results and the directory:
    /// `redis://[user:password@]host:port[/db]` for a single server;
    /// `redis+sentinel://[user:password@]host:26379,host:26379/name[/db]` for a master behind
    /// sentinels, with `?sentinel_user=` and `&sentinel_password=` as their credentials;
    /// `redis+cluster://[user:password@]host:port,host:port` for a cluster, with some of its
    /// servers. `rediss` instead of `redis` in any of these asks for TLS
    #[arg(long, env, hide_env_values = true)]
    pub redis_url: Option<SecretString>,

    /// PEM file with the certificate authorities that are trusted for Redis over TLS, instead of
    /// those of the system
    #[arg(long, env, value_name = "FILE")]
    pub redis_ca: Option<PathBuf>,

    /// Prefix of every key and channel in Redis, so that several systems can share one server
    #[arg(long, env, default_value = "sb")]
    pub redis_prefix: String,

    /// Bytes that the different registrations of an organisation's connected devices may have
    /// together in the directory. A registration that does not fit is refused
    #[arg(long, env, default_value_t = DEFAULT_REGISTRATION_BYTES,
          value_parser = clap::value_parser!(u64).range(MIN_REGISTRATION_BYTES..))]
    pub registration_bytes_per_org: u64,

    /// Entries of the directory that this node caches, of the devices that it calls; each takes
    /// about 200 bytes. A call of another device reads its entry first
    #[arg(long, env, default_value_t = DEFAULT_CACHED_ENTRIES, value_name = "ENTRIES",
          value_parser = clap::value_parser!(u32).range(i64::from(MIN_CACHED_ENTRIES)..=i64::from(MAX_CACHED_ENTRIES)))]
    pub directory_cache: u32,

    /// Public key that verifies the token keys in Redis, as control logs it; two during a rotation
    /// of the master key. Without it, a program that can write to Redis can issue tokens
    #[arg(
        long,
        env,
        value_delimiter = ',',
        value_name = "KEY,…",
        value_parser = public_key
    )]
    pub key_set_public_key: Vec<VerifyingKey>,

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
    /// The most bytes of the different registrations of one organisation in the directory.
    pub registration_bytes: u64,
    /// The most entries of the directory that the node caches.
    pub cached_entries: u32,
    /// Whether this node receives catalog events: see
    /// [`Bus::watch_catalog`](crate::Bus::watch_catalog).
    pub watch_catalog: bool,
    /// The keys that sign the token keys: this node adopts no token keys that none of them has
    /// signed. Empty: it adopts any.
    pub pinned_keys: Vec<VerifyingKey>,
}

/// What carries the messages.
#[derive(Debug, Clone)]
pub enum Backend {
    /// Redis, version 6.2 or newer: a single server, a master behind sentinels, or a cluster
    /// (version 7.0 or newer).
    Redis {
        /// The URL; may contain a password.
        url: SecretString,
        /// A PEM file with the certificate authorities that are trusted, instead of those of the
        /// system.
        authorities: Option<PathBuf>,
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
                authorities: None,
            },
            node_name: node_name.into(),
            key_prefix: key_prefix.into(),
            registration_bytes: DEFAULT_REGISTRATION_BYTES,
            cached_entries: DEFAULT_CACHED_ENTRIES,
            watch_catalog: false,
            pinned_keys: Vec::new(),
        }
    }

    /// A node inside this process.
    #[must_use]
    pub fn local(hub: &LocalHub, node_name: impl Into<String>) -> Self {
        Self {
            backend: Backend::Local(hub.clone()),
            node_name: node_name.into(),
            key_prefix: String::new(),
            registration_bytes: DEFAULT_REGISTRATION_BYTES,
            cached_entries: DEFAULT_CACHED_ENTRIES,
            watch_catalog: false,
            pinned_keys: Vec::new(),
        }
    }

    /// The same node, with the certificate authorities in a PEM file instead of those of the system.
    #[must_use]
    pub fn trusting(mut self, file: Option<&Path>) -> Self {
        if let Backend::Redis { authorities, .. } = &mut self.backend {
            *authorities = file.map(Path::to_owned);
        }
        self
    }

    /// The same node, with another limit for the registrations of an organisation.
    #[must_use]
    pub const fn with_registration_bytes(mut self, limit: u64) -> Self {
        self.registration_bytes = limit;
        self
    }

    /// The same node, with another size of its cache of the directory.
    #[must_use]
    pub const fn with_cached_entries(mut self, entries: u32) -> Self {
        self.cached_entries = entries;
        self
    }

    /// The same node, with a subscription to catalog events.
    #[must_use]
    pub fn watching_catalog(mut self) -> Self {
        self.watch_catalog = true;
        self
    }

    /// The same node, which adopts only token keys that one of these keys has signed, if there are
    /// any.
    #[must_use]
    pub fn pinning(mut self, keys: &[VerifyingKey]) -> Self {
        self.pinned_keys = keys.to_vec();
        self
    }
}

fn public_key(text: &str) -> Result<VerifyingKey, String> {
    VerifyingKey::from_base64url(text)
        .map_err(|_| "it is not a public key as control logs it, 43 characters".to_owned())
}
