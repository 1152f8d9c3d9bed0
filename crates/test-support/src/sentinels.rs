//! A Redis master, its replica, and three sentinels that monitor them, for one test.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{fs, io, net::SocketAddr, process::Command, time::Duration};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    child::{ChildGuard, free_port},
    eventually::eventually,
    redis_server::RedisServer,
};

/// How long servers may take to discover each other.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a server may take to answer. On a busy machine that is seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A master, its replica, and the sentinels, which call the master `main`. Dropping it stops all.
#[derive(Debug)]
pub struct SentinelSetup {
    /// The servers; at first the first one is the master.
    pub servers: [RedisServer; 2],
    sentinels: Vec<(SocketAddr, ChildGuard)>,
    _folder: TempDir,
}

impl SentinelSetup {
    /// Starts the servers, and waits until all of them know each other. Sentinels fail over when
    /// they have had no answer from the master for `down_after`.
    pub async fn start(down_after: Duration) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // A replica stores what it receives on disk.
        let own = |n: u8| {
            let path = folder.path().join(format!("server-{n}"));
            fs::create_dir(&path).expect("a writable folder");
            path.to_str().expect("UTF-8").to_owned()
        };
        let master = RedisServer::start_with(&["--dir", &own(0)]);
        let port = master.address().port().to_string();
        let options = ["--dir", &own(1), "--replicaof", "127.0.0.1", &port];
        let replica = RedisServer::start_with(&options);
        await_in_sync(replica.address()).await;
        let down_after = down_after.as_millis();
        let sentinels = (0..3).map(|n| {
            let own = free_port();
            let file = folder.path().join(format!("sentinel-{n}.conf"));
            let settings = format!(
                "port {own}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {port} 2\n\
                 sentinel down-after-milliseconds main {down_after}\n\
                 sentinel failover-timeout main {down_after}\n"
            );
            fs::write(&file, settings).expect("a writable folder");
            let mut command = Command::new("redis-server");
            command.arg(&file).args(["--sentinel", "--daemonize", "no"]);
            let child = ChildGuard::server(&mut command, "redis-server is installed by ./check");
            (SocketAddr::from(([127, 0, 0, 1], own)), child)
        });
        let sentinels = sentinels.collect();
        let setup = Self {
            servers: [master, replica],
            sentinels,
            _folder: folder,
        };
        for (sentinel, _) in &setup.sentinels {
            let known = async || words(*sentinel, "SENTINEL MASTER main").await;
            let all = |known: &String| {
                known.contains("num-slaves 1 ") && known.contains("num-other-sentinels 2 ")
            };
            eventually(DISCOVERY_TIMEOUT, known, all).await;
        }
        setup
    }

    /// Its URL for a node.
    #[must_use]
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.sentinels.iter().map(|one| one.0.to_string()).collect();
        format!("redis+sentinel://{}/main", addresses.join(","))
    }

    /// The index of the server that a sentinel reports as the master.
    pub async fn master(&self) -> usize {
        let query = "SENTINEL GET-MASTER-ADDR-BY-NAME main";
        let sentinel = self.sentinels[0].0;
        let position = async || {
            let reply = words(sentinel, query).await;
            let mut servers = self.servers.iter();
            servers.position(|one| reply.contains(&format!(" {} ", one.address().port())))
        };
        let known = eventually(ANSWER_TIMEOUT, position, Option::is_some).await;
        known.expect("one of the servers")
    }

    /// Makes the sentinels fail over to the other server.
    pub async fn switch(&self) {
        let sentinel = self.sentinels[0].0;
        let reply = words(sentinel, "SENTINEL FAILOVER main").await;
        assert_eq!(reply, "+OK ");
    }

    /// Makes a server a replica, as the sentinels would some seconds later.
    pub async fn make_replica(&self, n: usize, of: usize) {
        let [server, master] = [n, of].map(|n| self.servers[n].address());
        words(server, &format!("REPLICAOF 127.0.0.1 {}", master.port())).await;
        await_in_sync(server).await;
    }

    /// Kills one sentinel.
    pub fn kill_sentinel(&mut self) {
        drop(self.sentinels.remove(0));
    }
}

/// Waits until a replica is in sync.
pub async fn await_in_sync(replica: SocketAddr) {
    let role = async || words(replica, "ROLE").await;
    eventually(DISCOVERY_TIMEOUT, role, |role| role.contains(" connected ")).await;
}

/// The lines of a reply without lengths, each followed by a space; empty without a reply.
async fn words(server: SocketAddr, command: &str) -> String {
    let reply = timeout(ANSWER_TIMEOUT, query(server, command)).await;
    let reply = reply.map(Result::unwrap_or_default).unwrap_or_default();
    let lines = reply.lines().filter(|line| !line.starts_with(['*', '$']));
    lines.map(|line| format!("{line} ")).collect()
}

/// Sends an inline command, and reads until the server closes the connection.
async fn query(server: SocketAddr, command: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    stream
        .write_all(format!("{command}\r\n").as_bytes())
        .await?;
    // The server answers before it reads the end.
    stream.shutdown().await?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await?;
    Ok(reply)
}
