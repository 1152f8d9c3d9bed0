//! Private Redis servers for one test: a cluster, or a master with sentinels.

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use redis::{Cmd, FromRedisValue, Value, cmd};
use tokio::time::timeout;
use uuid::Uuid;

use crate::{
    eventually::eventually,
    redis_server::{RedisServer, free_port},
};

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

/// A folder that is removed after the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("sb-{}", Uuid::now_v7().simple()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A failure leaves a file in the temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Three masters that share the slots in order, and servers without slots.
pub struct RedisCluster {
    pub servers: Vec<RedisServer>,
    _folder: Folder,
}

impl RedisCluster {
    pub const MASTERS: u16 = 3;

    /// Starts servers with a long node timeout, so that a busy machine causes no failover.
    pub async fn start(others: usize) -> Self {
        Self::start_with(others, 5_000).await
    }

    /// Starts servers that detect a dead master soon.
    pub async fn start_with_fast_failover(others: usize) -> Self {
        Self::start_with(others, 1_000).await
    }

    async fn start_with(others: usize, node_timeout_ms: u32) -> Self {
        let folder = Folder::new();
        let path = folder.0.to_str().unwrap();
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

    /// Migrates the keys of a slot; the slot still belongs to the old owner.
    pub async fn begin_migration(&self, slot: u16, from: usize, to: usize) {
        self.open_migration(slot, from, to).await;
        self.migrate_keys(slot, from, to).await;
    }

    /// Opens a migration; all keys are still at the old owner.
    pub async fn open_migration(&self, slot: u16, from: usize, to: usize) {
        let (from_id, to_id) = (self.id(from).await, self.id(to).await);
        let set = format!("CLUSTER SETSLOT {slot}");
        query::<()>(
            self.address(to),
            &parse_command(format!("{set} IMPORTING {from_id}")),
        )
        .await;
        query::<()>(
            self.address(from),
            &parse_command(format!("{set} MIGRATING {to_id}")),
        )
        .await;
    }

    pub async fn migrate_keys(&self, slot: u16, from: usize, to: usize) {
        let list = parse_command(format!("CLUSTER GETKEYSINSLOT {slot} 100"));
        loop {
            let keys: Vec<String> = query(self.address(from), &list).await;
            if keys.is_empty() {
                return;
            }
            self.migrate(&keys, from, to).await;
        }
    }

    /// Migrates these keys to the new owner.
    pub async fn migrate(&self, keys: &[String], from: usize, to: usize) {
        let port = self.address(to).port();
        let mut migrate = cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(port).arg("").arg(0).arg(5000);
        migrate.arg("KEYS").arg(keys);
        query::<Value>(self.address(from), &migrate).await;
    }

    /// Ends a migration: the slot belongs to the new owner.
    pub async fn end_migration(&self, slot: u16, from: usize, to: usize) {
        let set = parse_command(format!("CLUSTER SETSLOT {slot} NODE {}", self.id(to).await));
        query::<()>(self.address(to), &set).await;
        query::<()>(self.address(from), &set).await;
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
    _folder: Folder,
}

struct Sentinel {
    address: SocketAddr,
    child: Child,
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.child
            .kill()
            .expect("the sentinel is a child of this process");
        self.child
            .wait()
            .expect("the sentinel is a child of this process");
    }
}

impl SentinelSetup {
    pub async fn start() -> Self {
        let folder = Folder::new();
        // A replica stores what it receives on disk.
        let own = |n: u8| {
            let path = folder.0.join(format!("server-{n}"));
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
            let file = folder.0.join(format!("sentinel-{n}.conf"));
            let settings = format!(
                "port {own}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {port} 2\n\
                 sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 1000\n"
            );
            std::fs::write(&file, settings).unwrap();
            let child = Command::new("redis-server")
                .arg(&file)
                .args(["--sentinel", "--daemonize", "no"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("redis-server is installed by ./check");
            let address = SocketAddr::from(([127, 0, 0, 1], own));
            Sentinel { address, child }
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
