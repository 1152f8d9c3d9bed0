//! Private Redis servers for one test: a cluster, or a master with sentinels.

use std::{net::SocketAddr, process::Command, time::Duration};

use redis::{Cmd, FromRedisValue, Value, cmd};
use switchboard_test_support::{
    child::{ChildGuard, free_port},
    eventually::eventually,
    redis_server::RedisServer,
};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::test_edge::TestSystem;

/// How long servers may take to discover each other.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(15);
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
    let mut connection = client.get_multiplexed_async_connection().await?;
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
        Self::start_with(others, 5_000).await
    }

    /// Starts servers that detect a dead master soon.
    pub async fn start_with_fast_failover(others: usize) -> Self {
        Self::start_with(others, 1_000).await
    }

    async fn start_with(others: usize, node_timeout_ms: u32) -> Self {
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
            let options: Vec<&str> = options.split_ascii_whitespace().collect();
            servers.push(RedisServer::start_with(&options));
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
            let port = server.address().port();
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

/// Waits until a replica is in sync.
async fn await_in_sync(replica: SocketAddr) {
    let role = async || query::<Vec<Value>>(replica, &parse_command("ROLE")).await;
    let is_connected = |role: &Vec<Value>| {
        let state = role.get(3);
        matches!(state, Some(Value::BulkString(state)) if state == b"connected")
    };
    eventually(DISCOVERY_TIMEOUT, role, is_connected).await;
}

/// A master, its replica, and three sentinels that monitor them.
pub struct SentinelSetup {
    pub servers: [RedisServer; 2],
    sentinels: Vec<Sentinel>,
    _folder: TempDir,
}

struct Sentinel {
    address: SocketAddr,
    _child: ChildGuard,
}

impl SentinelSetup {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // A replica stores what it receives on disk.
        let own = |n: u8| {
            let path = folder.path().join(format!("server-{n}"));
            std::fs::create_dir(&path).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let master = RedisServer::start_with(&["--dir", &own(0)]);
        let port = master.address().port().to_string();
        let options = ["--dir", &own(1), "--replicaof", "127.0.0.1", &port];
        let replica = RedisServer::start_with(&options);
        await_in_sync(replica.address()).await;
        let sentinels = (0..3).map(|n| {
            let own = free_port();
            let file = folder.path().join(format!("sentinel-{n}.conf"));
            let settings = format!(
                "port {own}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {port} 2\n\
                 sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 1000\n"
            );
            std::fs::write(&file, settings).unwrap();
            let mut command = Command::new("redis-server");
            command.arg(&file).args(["--sentinel", "--daemonize", "no"]);
            let child = ChildGuard::server(&mut command, "redis-server is installed by ./check");
            Sentinel {
                address: SocketAddr::from(([127, 0, 0, 1], own)),
                _child: child,
            }
        });
        let sentinels = sentinels.collect();
        let setup = Self {
            servers: [master, replica],
            sentinels,
            _folder: folder,
        };
        for sentinel in &setup.sentinels {
            let known = async || {
                let command = parse_command("SENTINEL MASTER main");
                let reply = try_query::<Vec<String>>(sentinel.address, &command).await;
                reply.map(|fields| fields.join(" ")).unwrap_or_default()
            };
            let all = |known: &String| {
                known.contains("num-slaves 1") && known.contains("num-other-sentinels 2")
            };
            eventually(DISCOVERY_TIMEOUT, known, all).await;
        }
        setup
    }

    pub fn url(&self) -> String {
        let addresses = self.sentinels.iter().map(|one| one.address.to_string());
        let addresses: Vec<String> = addresses.collect();
        format!("redis+sentinel://{}/main", addresses.join(","))
    }

    /// Makes the sentinels fail over to the other server.
    pub async fn switch(&self) {
        query::<()>(
            self.sentinels[0].address,
            &parse_command("SENTINEL FAILOVER main"),
        )
        .await;
    }

    /// Makes a server a replica, as the sentinels would some seconds later.
    pub async fn make_replica(&self, n: usize, of: usize) {
        let port = self.servers[of].address().port();
        let replicate = parse_command(format!("REPLICAOF 127.0.0.1 {port}"));
        query::<()>(self.servers[n].address(), &replicate).await;
        await_in_sync(self.servers[n].address()).await;
    }

    /// Kills one sentinel.
    pub fn kill_sentinel(&mut self) {
        drop(self.sentinels.remove(0));
    }
}
