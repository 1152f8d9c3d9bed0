//! Private Redis, NATS and Mosquitto servers on free ports, without persistence.

use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use nix::unistd::{User, geteuid};
use tokio::{net::TcpStream, process::Command};

use switchboard_test_support::process::Process;

const READY_TIMEOUT: Duration = Duration::from_secs(15);
const PROBE_INTERVAL: Duration = Duration::from_millis(20);

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) process: Arc<Process>,
    pub(crate) address: SocketAddr,
}

/// A server program and the command that installs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) install: &'static str,
}

pub(crate) const REDIS: Program = Program {
    name: "redis-server",
    install: "apt-get install redis-server",
};
pub(crate) const NATS: Program = Program {
    name: "nats-server",
    install: "apt-get install nats-server",
};
pub(crate) const MOSQUITTO: Program = Program {
    name: "mosquitto",
    install: "apt-get install mosquitto",
};

impl Program {
    /// Path of the program.
    ///
    /// # Errors
    /// If it is not installed; the message contains the install command.
    pub(crate) fn find(self) -> anyhow::Result<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders =
            env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
        let mut candidates = folders.map(|folder| folder.join(self.name));
        let found = candidates.find(|candidate| candidate.is_file());
        found.with_context(|| format!("{} is missing: {}", self.name, self.install))
    }

    /// Starts it on a free port, with its log and its data in this folder, and waits until it listens.
    pub(crate) async fn start(
        self,
        folder: &Path,
        arguments: impl FnOnce(u16) -> anyhow::Result<Vec<String>>,
    ) -> anyhow::Result<Server> {
        let address = free_address()?;
        let mut command = Command::new(self.find()?);
        command
            .args(arguments(address.port())?)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut process = Process::start(folder, self.name, &mut command)?;
        wait_listening(&mut process, address).await?;
        Ok(Server {
            process: process.into(),
            address,
        })
    }
}

/// Waits until a server accepts connections.
pub(crate) async fn wait_listening(
    process: &mut Process,
    address: SocketAddr,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_TIMEOUT;
    while TcpStream::connect(address).await.is_err() {
        process.assert_alive()?;
        if Instant::now() > deadline {
            let log = process.log_tail();
            bail!("no server listens on {address}:\n{log}");
        }
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
    Ok(())
}

impl Server {
    /// URL for a Redis client.
    pub(crate) fn redis_url(&self) -> String {
        format!("redis://{}/", self.address)
    }
}

/// A loopback address with a port that is currently free.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Redis without persistence.
pub(crate) async fn redis(folder: &Path) -> anyhow::Result<Server> {
    start_redis(folder, &[]).await
}

/// A master of a cluster, without slots. The servers of a cluster talk to its second port.
pub(crate) async fn redis_master(folder: &Path, bus_port: u16) -> anyhow::Result<Server> {
    let (bus_port, nodes) = (bus_port.to_string(), format!("nodes-{bus_port}.conf"));
    let cluster = ["--cluster-enabled", "yes", "--cluster-port", &bus_port];
    let files = ["--cluster-config-file", &nodes];
    start_redis(folder, &[&cluster[..], &files].concat()).await
}

async fn start_redis(folder: &Path, more: &[&str]) -> anyhow::Result<Server> {
    let data = folder.display().to_string();
    REDIS
        .start(folder, |port| {
            let port = port.to_string();
            let endpoint = ["--port", &port, "--dir", &data];
            let fixed = ["--bind", "127.0.0.1", "--maxclients", "10000"];
            let no_persistence = ["--save", "", "--appendonly", "no"];
            let settings = [&endpoint[..], &fixed, &no_persistence, more].concat();
            Ok(settings.into_iter().map(str::to_owned).collect())
        })
        .await
}

/// NATS with its default configuration, without JetStream.
pub(crate) async fn nats(folder: &Path) -> anyhow::Result<Server> {
    NATS.start(folder, |port| {
        let port = port.to_string();
        Ok(["-a", "127.0.0.1", "-p", &port].map(str::to_owned).to_vec())
    })
    .await
}

/// Mosquitto without persistence and with TCP_NODELAY.
pub(crate) async fn mosquitto(folder: &Path) -> anyhow::Result<Server> {
    MOSQUITTO
        .start(folder, |port| {
            let file = folder.join(format!("mosquitto-{port}.conf"));
            let user = user_name()?;
            let settings = format!(
                "listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n\
                 set_tcp_nodelay true\nmax_queued_messages 0\nlog_type error\nuser {user}\n"
            );
            fs::write(&file, settings)?;
            Ok(vec!["-c".to_owned(), file.display().to_string()])
        })
        .await
}

/// The user of this process, for servers that would otherwise change to their own.
pub(crate) fn user_name() -> anyhow::Result<String> {
    let user = User::from_uid(geteuid())?;
    Ok(user
        .context("the user of this process does not exist")?
        .name)
}
