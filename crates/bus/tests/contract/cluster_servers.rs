//! Private Redis servers for one test, as a cluster.

use std::{net::SocketAddr, time::Duration};

use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, Value, cmd};
use switchboard_test_support::{
    certificates::ServerCertificate, child::free_port, eventually::eventually,
    redis_server::RedisServer, sentinels::await_in_sync,
};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::test_edge::TestSystem;

/// How long servers may take to discover each other.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a server may take to answer a command. The library waits half a second, which is less
/// than a server of a busy machine needs at times.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a requested failover may take before it is requested again.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(1);
const SLOTS: u16 = 16_384;

/// Runs a command at one server.
pub async fn query<T: FromRedisValue>(server: SocketAddr, command: &Cmd) -> T {
    try_query(server, command).await.unwrap()
}

pub async fn try_query<T: FromRedisValue>(
    server: SocketAddr,
    command: &Cmd,
) -> redis::RedisResult<T> {
    let client = redis::Client::open(format!("redis://{server}/"))?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER_TIMEOUT))
        .set_response_timeout(Some(ANSWER_TIMEOUT));
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connection.await?;
    command.query_async(&mut connection).await
}

/// Parses a command whose words are separated by spaces.
pub fn parse_command(words: impl AsRef<str>) -> Cmd {
    let mut words = words.as_ref().split(' ');
    let mut command = cmd(words.next().unwrap());
    words.for_each(|word| {
        command.arg(word);
    });
    command
}

/// Three masters that share the slots in order, and servers without slots.
pub struct RedisCluster {
    pub servers: Vec<RedisServer>,
    _folder: TempDir,
}

impl RedisCluster {
    pub const MASTERS: u16 = 3;

    /// Starts a cluster, and a bus over it.
    pub async fn with_system() -> (Self, TestSystem) {
        let cluster = Self::start(0).await;
        let system = TestSystem::with_url(cluster.url());
        (cluster, system)
    }

    /// Starts servers with a long node timeout, so that a busy machine causes no failover.
    pub async fn start(others: usize) -> Self {
        Self::start_with(others, 5_000, None).await
    }

    /// Starts servers that also speak TLS, and announce themselves as `localhost`.
    pub async fn start_tls(certificate: &ServerCertificate) -> Self {
        Self::start_with(0, 5_000, Some(certificate)).await
    }

    /// Starts servers that detect a dead master soon.
    pub async fn start_with_fast_failover(others: usize) -> Self {
        Self::start_with(others, 1_000, None).await
    }

    async fn start_with(
        others: usize,
        node_timeout_ms: u32,
        certificate: Option<&ServerCertificate>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let mut servers = Vec::new();
        let mut buses = Vec::new();
        for n in 0..usize::from(Self::MASTERS) + others {
            let (bus, file) = (free_port().to_string(), format!("nodes-{n}.conf"));
            let options = format!(
                "--cluster-enabled yes --cluster-node-timeout {node_timeout_ms} \
                 --cluster-port {bus} --dir {path} --cluster-require-full-coverage no \
                 --cluster-config-file {file} --dbfilename {n}.rdb \
                 --cluster-replica-validity-factor 0 --repl-diskless-sync-delay 0"
            );
            let mut options: Vec<&str> = options.split_ascii_whitespace().collect();
            servers.push(match certificate {
                None => RedisServer::start_with(&options),
                Some(certificate) => {
                    let tls = "--tls-cluster yes --cluster-announce-hostname localhost \
                               --cluster-preferred-endpoint-type hostname";
                    options.extend(tls.split_ascii_whitespace());
                    RedisServer::start_tls(certificate, &options)
                }
            });
            buses.push(bus);
        }
        let cluster = Self {
            servers,
            _folder: folder,
        };
        for n in 0..Self::MASTERS {
            let (from, to) = (cluster.first_of(n), cluster.first_of(n + 1) - 1);
            let address = cluster.address(usize::from(n));
            query::<()>(
                address,
                &parse_command(format!("CLUSTER ADDSLOTSRANGE {from} {to}")),
            )
            .await;
            let epoch = parse_command(format!("CLUSTER SET-CONFIG-EPOCH {}", n + 1));
            query::<()>(address, &epoch).await;
        }
        for (server, bus) in cluster.servers.iter().zip(&buses).skip(1) {
            let port = match certificate {
                None => server.address().port(),
                Some(_) => server.tls_port(),
            };
            let meet = parse_command(format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
            query::<()>(cluster.address(0), &meet).await;
        }
        for n in 0..cluster.servers.len() {
            cluster.await_discovery(n).await;
        }
        cluster
    }

    async fn await_discovery(&self, n: usize) {
        let info = async || query::<String>(self.address(n), &parse_command("CLUSTER INFO")).await;
        let known = format!("cluster_known_nodes:{}\r", self.servers.len());
        let wanted = ["cluster_state:ok", "cluster_slots_ok:16384", &known];
        let all = |info: &String| wanted.iter().all(|word| info.contains(word));
        eventually(DISCOVERY_TIMEOUT, info, all).await;
    }

    fn first_of(&self, n: u16) -> u16 {
        u16::try_from(u32::from(SLOTS) * u32::from(n) / u32::from(Self::MASTERS)).unwrap()
    }

    pub fn address(&self, n: usize) -> SocketAddr {
        self.servers[n].address()
    }

    pub fn url(&self) -> String {
        let servers = self
            .servers
            .iter()
            .map(|server| server.address().to_string());
        let servers: Vec<String> = servers.collect();
        format!("redis+cluster://{}", servers.join(","))
    }

    pub fn tls_url(&self) -> String {
        let servers = self.servers.iter();
        let servers = servers.map(|server| format!("localhost:{}", server.tls_port()));
        format!("rediss+cluster://{}", servers.collect::<Vec<_>>().join(","))
    }

    pub async fn slot(&self, name: &str) -> u16 {
        let mut command = parse_command("CLUSTER KEYSLOT");
        command.arg(name);
        query(self.address(0), &command).await
    }

    /// The master that owned this slot at the start.
    pub fn first_owner(&self, slot: u16) -> usize {
        let owned = |n: &u16| (self.first_of(*n)..self.first_of(n + 1)).contains(&slot);
        usize::from((0..Self::MASTERS).find(owned).unwrap())
    }

    async fn id(&self, n: usize) -> String {
        query(self.address(n), &parse_command("CLUSTER MYID")).await
    }

    /// The keys of all masters that match a pattern.
    pub async fn keys(&self, pattern: &str) -> Vec<String> {
        let mut keys = Vec::new();
        for n in 0..usize::from(Self::MASTERS) {
            let list = parse_command(format!("KEYS {pattern}"));
            keys.extend(query::<Vec<String>>(self.address(n), &list).await);
        }
        keys
    }

    /// A migration of the slot of this key, from its first owner to the next master.
    pub async fn migration(&self, key: &str) -> Migration<'_> {
        let slot = self.slot(key).await;
        Migration::of(self, slot, self.first_owner(slot))
    }

    /// Makes one server the replica of another, and waits until it is in sync.
    pub async fn replicate(&self, n: usize, of: usize) {
        let replicate = parse_command(format!("CLUSTER REPLICATE {}", self.id(of).await));
        query::<()>(self.address(n), &replicate).await;
        await_in_sync(self.address(n)).await;
        // Other masters vote for it only when they know it as a replica.
        for other in 0..self.servers.len() {
            let nodes = async || {
                query::<String>(self.address(other), &parse_command("CLUSTER NODES")).await
            };
            eventually(DISCOVERY_TIMEOUT, nodes, |nodes| nodes.contains("slave ")).await;
        }
    }

    /// Fails over from a master that stays alive to its replica.
    pub async fn fail_over(&self, from: usize, to: usize) {
        loop {
            // A master ignores a replica that it has just discovered, and a new master refuses.
            let _ = try_query::<()>(self.address(to), &parse_command("CLUSTER FAILOVER")).await;
            let done = timeout(FAILOVER_TIMEOUT, await_in_sync(self.address(from))).await;
            if done.is_ok() {
                return;
            }
        }
    }
}

/// The migration of one slot.
pub struct Migration<'a> {
    cluster: &'a RedisCluster,
    slot: u16,
    pub from: usize,
    pub to: usize,
}

impl<'a> Migration<'a> {
    fn of(cluster: &'a RedisCluster, slot: u16, from: usize) -> Self {
        let to = (from + 1) % usize::from(RedisCluster::MASTERS);
        Self {
            cluster,
            slot,
            from,
            to,
        }
    }

    /// The migration from the new owner to the next master.
    pub fn next(&self) -> Self {
        Self::of(self.cluster, self.slot, self.to)
    }

    /// Does one step by its name; a test uses other names before the first and after the last.
    pub async fn step(&self, name: &str) {
        match name {
            "open" => self.open().await,
            "migrate" => self.migrate_keys().await,
            "end" => self.end().await,
            _ => {}
        }
    }

    /// Opens the migration; all keys are still at the old owner.
    pub async fn open(&self) {
        let (from, to) = (self.from, self.to);
        let (from_id, to_id) = (self.cluster.id(from).await, self.cluster.id(to).await);
        for (at, state) in [
            (to, format!("IMPORTING {from_id}")),
            (from, format!("MIGRATING {to_id}")),
        ] {
            self.set_slot(at, &state).await;
        }
    }

    /// Migrates all keys; the slot still belongs to the old owner.
    pub async fn migrate_keys(&self) {
        let list = parse_command(format!("CLUSTER GETKEYSINSLOT {} 100", self.slot));
        loop {
            let keys: Vec<String> = query(self.cluster.address(self.from), &list).await;
            if keys.is_empty() {
                return;
            }
            self.migrate(&keys).await;
        }
    }

    /// Migrates these keys.
    pub async fn migrate(&self, keys: &[String]) {
        let port = self.cluster.address(self.to).port();
        let mut migrate = cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(port).arg("").arg(0).arg(5000);
        migrate.arg("KEYS").arg(keys);
        query::<Value>(self.cluster.address(self.from), &migrate).await;
    }

    /// Ends the migration: the slot belongs to the new owner.
    pub async fn end(&self) {
        let owner = format!("NODE {}", self.cluster.id(self.to).await);
        for at in [self.to, self.from] {
            self.set_slot(at, &owner).await;
        }
    }

    async fn set_slot(&self, at: usize, state: &str) {
        let set = parse_command(format!("CLUSTER SETSLOT {} {state}", self.slot));
        query::<()>(self.cluster.address(at), &set).await;
    }
}
