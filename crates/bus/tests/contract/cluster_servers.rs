//! Private servers of Redis for one test that know each other: a cluster, or a master with sentinels.
//! Never: a server that outlives its test.

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

/// How long servers may take to know each other.
const ACQUAINTANCE: Duration = Duration::from_secs(15);
/// How long a failover that is asked for may take, before it is asked for again.
const FAILOVER: Duration = Duration::from_secs(1);
const SLOTS: u16 = 16_384;

/// Asks one server.
pub async fn ask<T: FromRedisValue>(server: SocketAddr, command: &Cmd) -> T {
    try_ask(server, command).await.unwrap()
}

pub async fn try_ask<T: FromRedisValue>(
    server: SocketAddr,
    command: &Cmd,
) -> redis::RedisResult<T> {
    let client = redis::Client::open(format!("redis://{server}/"))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    command.query_async(&mut connection).await
}

/// A command whose words are separated by spaces.
pub fn said(words: impl AsRef<str>) -> Cmd {
    let mut words = words.as_ref().split(' ');
    let mut command = cmd(words.next().unwrap());
    words.for_each(|word| {
        command.arg(word);
    });
    command
}

/// A folder that goes with the test.
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
        // What can not be removed is in the folder for such things.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Three masters that share the slots in order, and servers that own nothing yet.
pub struct RedisCluster {
    pub servers: Vec<RedisServer>,
    _folder: Folder,
}

impl RedisCluster {
    pub const MASTERS: u16 = 3;

    /// Servers that are not taken for dead because the machine is busy.
    pub async fn start(others: usize) -> Self {
        Self::start_with(others, 5_000).await
    }

    /// With others that notice soon when one dies.
    pub async fn start_watchful(others: usize) -> Self {
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
                "--cluster-enabled yes --cluster-node-timeout {node_timeout_ms} --cluster-port {bus} --dir {path} \
                 --cluster-require-full-coverage no --cluster-config-file {file} --dbfilename {n}.rdb \
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
            ask::<()>(address, &said(format!("CLUSTER ADDSLOTSRANGE {from} {to}"))).await;
            let epoch = said(format!("CLUSTER SET-CONFIG-EPOCH {}", n + 1));
            ask::<()>(address, &epoch).await;
        }
        for (server, bus) in cluster.servers.iter().zip(&buses).skip(1) {
            let port = server.address().port();
            let meet = said(format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
            ask::<()>(cluster.address(0), &meet).await;
        }
        for n in 0..cluster.servers.len() {
            cluster.knows_all(n).await;
        }
        cluster
    }

    async fn knows_all(&self, n: usize) {
        let info = async || ask::<String>(self.address(n), &said("CLUSTER INFO")).await;
        let known = format!("cluster_known_nodes:{}\r", self.servers.len());
        let wanted = ["cluster_state:ok", "cluster_slots_ok:16384", &known];
        let all = |info: &String| wanted.iter().all(|word| info.contains(word));
        eventually(ACQUAINTANCE, info, all).await;
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
        let mut ask_slot = said("CLUSTER KEYSLOT");
        ask_slot.arg(name);
        ask(self.address(0), &ask_slot).await
    }

    /// Which master was given this slot in the beginning.
    pub fn first_owner(&self, slot: u16) -> usize {
        let owned = |n: &u16| (self.first_of(*n)..self.first_of(n + 1)).contains(&slot);
        usize::from((0..Self::MASTERS).find(owned).unwrap())
    }

    async fn id(&self, n: usize) -> String {
        ask(self.address(n), &said("CLUSTER MYID")).await
    }

    /// The first half of a move: keys are at the new owner, the slot is still the old one's.
    pub async fn begin_move(&self, slot: u16, from: usize, to: usize) {
        self.open_move(slot, from, to).await;
        self.carry_all(slot, from, to).await;
    }

    /// The beginning of that: every key is where it was.
    pub async fn open_move(&self, slot: u16, from: usize, to: usize) {
        let (from_id, to_id) = (self.id(from).await, self.id(to).await);
        let set = format!("CLUSTER SETSLOT {slot}");
        ask::<()>(
            self.address(to),
            &said(format!("{set} IMPORTING {from_id}")),
        )
        .await;
        ask::<()>(
            self.address(from),
            &said(format!("{set} MIGRATING {to_id}")),
        )
        .await;
    }

    pub async fn carry_all(&self, slot: u16, from: usize, to: usize) {
        let list = said(format!("CLUSTER GETKEYSINSLOT {slot} 100"));
        loop {
            let keys: Vec<String> = ask(self.address(from), &list).await;
            if keys.is_empty() {
                return;
            }
            self.carry(&keys, from, to).await;
        }
    }

    /// Brings these keys to the new owner.
    pub async fn carry(&self, keys: &[String], from: usize, to: usize) {
        let port = self.address(to).port();
        let mut migrate = cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(port).arg("").arg(0).arg(5000);
        migrate.arg("KEYS").arg(keys);
        ask::<Value>(self.address(from), &migrate).await;
    }

    /// The second half: the slot is the new owner's.
    pub async fn end_move(&self, slot: u16, from: usize, to: usize) {
        let set = said(format!("CLUSTER SETSLOT {slot} NODE {}", self.id(to).await));
        ask::<()>(self.address(to), &set).await;
        ask::<()>(self.address(from), &set).await;
    }

    /// Makes one server the replica of another, and waits until it has everything.
    pub async fn replicate(&self, n: usize, of: usize) {
        let replicate = said(format!("CLUSTER REPLICATE {}", self.id(of).await));
        ask::<()>(self.address(n), &replicate).await;
        follows(self.address(n)).await;
        // The others vote for it only when they know it as a replica.
        for other in 0..self.servers.len() {
            let nodes = async || ask::<String>(self.address(other), &said("CLUSTER NODES")).await;
            eventually(ACQUAINTANCE, nodes, |nodes| nodes.contains("slave ")).await;
        }
    }

    /// Makes a replica the master of its master, which lives on.
    pub async fn hand_over(&self, from: usize, to: usize) {
        loop {
            // A master does not listen to a replica that it has just got to know; and who is a master by now refuses.
            let _ = try_ask::<()>(self.address(to), &said("CLUSTER FAILOVER")).await;
            let done = timeout(FAILOVER, follows(self.address(from))).await;
            if done.is_ok() {
                return;
            }
        }
    }
}

/// Waits until a replica is in step.
async fn follows(replica: SocketAddr) {
    let role = async || ask::<Vec<Value>>(replica, &said("ROLE")).await;
    let connected = |role: &Vec<Value>| matches!(role.get(3), Some(Value::BulkString(state)) if state == b"connected");
    eventually(ACQUAINTANCE, role, connected).await;
}

/// A master, its replica, and three sentinels that watch them.
pub struct Watched {
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
        self.child.kill().expect("our own child");
        self.child.wait().expect("our own child");
    }
}

impl Watched {
    pub async fn start() -> Self {
        let folder = Folder::new();
        // What replicas are sent lands on disk.
        let own = |n: u8| {
            let path = folder.0.join(format!("server-{n}"));
            std::fs::create_dir(&path).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let master = RedisServer::start_with(&["--dir", &own(0)]);
        let port = master.address().port().to_string();
        let options = ["--dir", &own(1), "--replicaof", "127.0.0.1", &port];
        let replica = RedisServer::start_with(&options);
        follows(replica.address()).await;
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
                .expect("redis-server is installed: ./check does it");
            let address = SocketAddr::from(([127, 0, 0, 1], own));
            Sentinel { address, child }
        });
        let sentinels = sentinels.collect();
        let watched = Self {
            servers: [master, replica],
            sentinels,
            _folder: folder,
        };
        for sentinel in &watched.sentinels {
            let known = async || {
                let asked = said("SENTINEL MASTER main");
                let asked = try_ask::<Vec<String>>(sentinel.address, &asked).await;
                asked.map(|fields| fields.join(" ")).unwrap_or_default()
            };
            let all = |known: &String| {
                known.contains("num-slaves 1") && known.contains("num-other-sentinels 2")
            };
            eventually(ACQUAINTANCE, known, all).await;
        }
        watched
    }

    pub fn url(&self) -> String {
        let asked = self.sentinels.iter().map(|one| one.address.to_string());
        let asked: Vec<String> = asked.collect();
        format!("redis+sentinel://{}/main", asked.join(","))
    }

    /// Asks the sentinels to make the other server the master.
    pub async fn switch(&self) {
        ask::<()>(self.sentinels[0].address, &said("SENTINEL FAILOVER main")).await;
    }

    /// Does what the sentinels would do some seconds later.
    pub async fn make_replica(&self, n: usize, of: usize) {
        let port = self.servers[of].address().port();
        let replicate = said(format!("REPLICAOF 127.0.0.1 {port}"));
        ask::<()>(self.servers[n].address(), &replicate).await;
        follows(self.servers[n].address()).await;
    }

    /// Ends one sentinel.
    pub fn lose_a_sentinel(&mut self) {
        drop(self.sentinels.remove(0));
    }
}
