//! A private Switchboard system: Redis, one edge and one caller node. The services are started
//! through the same command line that an operator uses.

use std::{net::SocketAddr, path::Path, process::Stdio, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use switchboard_protocol::id::OrgId;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::timeout,
};
use uuid::Uuid;

use switchboard_test_support::process::Process;

use super::{
    certificate::Certificate,
    environment::BenchEnv,
    server::{Server, redis},
    worker::Worker,
};

const READY_TIMEOUT: Duration = Duration::from_secs(30);
const FIRST_DEVICE_TIMEOUT: Duration = Duration::from_secs(15);

/// Seed of the token signing key. It is used by benchmarks only.
pub(crate) const SEED: &str = "5b0c1f7a9d3e42868f1a6c0b7d2e9435c8a1f0e37b6d4c529a8e1d0f2b3c4a59";

/// A running Switchboard service.
pub(crate) struct Service {
    pub(crate) process: Arc<Process>,
    /// Address of its listener.
    pub(crate) address: SocketAddr,
    /// The ready line that it printed, parsed as JSON.
    pub(crate) ready: serde_json::Value,
}

impl Service {
    /// Starts `switchboard NAME …` and waits for its ready line. `member` is the JSON member that
    /// holds the address.
    ///
    /// # Errors
    /// If the service exits or prints no ready line within 30 s.
    pub(crate) async fn start(
        bench: &BenchEnv<'_>,
        arguments: &[&str],
        environment: &[(&str, &str)],
        member: &str,
    ) -> anyhow::Result<Self> {
        let name = arguments.first().context("missing service name")?;
        let mut command = switchboard(bench.switchboard()?, bench.folder(), environment);
        command
            .args(arguments)
            .args(["--admin-listen", "127.0.0.1:0"])
            .args(bench.options.trace_arguments())
            .stdout(Stdio::piped());
        let mut process = Process::start(bench.folder(), name, &mut command)?;
        let stdout = process
            .child
            .stdout
            .take()
            .context("stdout of the service is not piped")?;
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        let read = timeout(READY_TIMEOUT, stdout.read_line(&mut line)).await;
        if !matches!(read, Ok(Ok(1..))) {
            bail!("{name} printed no ready line:\n{}", process.log_tail());
        }
        let ready: serde_json::Value = serde_json::from_str(&line)?;
        let address = ready[member]
            .as_str()
            .with_context(|| format!("no {member} in {line}"))?;
        let address = address
            .trim_start_matches("http://")
            .trim_end_matches('/')
            .parse()?;
        // Keep the pipe open: a service that writes to a closed pipe fails.
        process.child.stdout = Some(stdout.into_inner());
        Ok(Self {
            process: process.into(),
            address,
            ready,
        })
    }
}

/// A `switchboard` command with only the given environment, without that of the shell.
pub(crate) fn switchboard(program: &Path, folder: &Path, environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(environment.iter().copied());
    command.current_dir(folder).stdin(Stdio::null());
    command
}

/// Arguments that disable the turn rate limit: devices start a turn as soon as the previous ends.
pub(crate) const UNLIMITED_TURNS: [&str; 2] = ["--device-turn-burst", "4000000000"];

/// Starts an edge without a limit on connections per client address.
pub(crate) async fn edge(bench: &BenchEnv<'_>, redis: &Server) -> anyhow::Result<Service> {
    let listen = ["--device-listen", "127.0.0.1:0"];
    start_edge(bench, redis, &listen, "device_addr").await
}

pub(crate) async fn start_edge(
    bench: &BenchEnv<'_>,
    redis: &Server,
    listen: &[&str],
    member: &str,
) -> anyhow::Result<Service> {
    let url = redis.redis_url();
    let unlimited = ["edge", "--device-accepts-per-address-per-s", "0"];
    let arguments = [&unlimited[..], &UNLIMITED_TURNS, listen].concat();
    Service::start(bench, &arguments, &[("REDIS_URL", &url)], member).await
}

/// An edge, a caller node and Redis, with the first device connected.
pub(crate) struct System {
    pub(crate) redis: Server,
    pub(crate) edge: Service,
    pub(crate) caller: Worker,
    pub(crate) devices: Worker,
}

impl System {
    pub(crate) async fn start(bench: &BenchEnv<'_>) -> anyhow::Result<Self> {
        let redis = redis(bench.folder()).await?;
        let edge = edge(bench, &redis).await?;
        Self::with_edge(bench, redis, edge, &[]).await
    }

    /// Like [`System::start`], but devices that connect again show a resume ticket.
    pub(crate) async fn start_resuming(bench: &BenchEnv<'_>) -> anyhow::Result<Self> {
        let redis = redis(bench.folder()).await?;
        let edge = edge(bench, &redis).await?;
        Self::with_edge(bench, redis, edge, &["--resume"]).await
    }

    /// Like [`System::start`], but devices connect over TLS.
    pub(crate) async fn start_tls(bench: &BenchEnv<'_>) -> anyhow::Result<Self> {
        let certificate = Certificate::create(bench.folder())?;
        let redis = redis(bench.folder()).await?;
        let listen = [
            ["--device-listen", "127.0.0.1:0"],
            ["--tls-listen", "127.0.0.1:0"],
            ["--tls-cert", &certificate.chain],
            ["--tls-key", &certificate.key],
        ];
        let edge = start_edge(bench, &redis, listen.as_flattened(), "tls_addr").await?;
        Self::with_edge(bench, redis, edge, &["--certificate", &certificate.chain]).await
    }

    /// The same with an edge that was started already.
    pub(crate) async fn with_edge(
        bench: &BenchEnv<'_>,
        redis: Server,
        edge: Service,
        device_arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let org = OrgId::from_uuid(Uuid::now_v7()).to_string();
        let count = bench.options.devices.to_string();
        let url = redis.redis_url();
        let target = ["--org", &org, "--devices", &count, "--seed", SEED];
        let caller = [&["bus-caller", "--url", &url], &target[..]].concat();
        let caller = bench.worker(&caller).await?;
        let address = edge.address.to_string();
        let endpoint = ["wire-devices", "--address", &address];
        let devices = [
            &endpoint[..],
            &["--org", &org, "--seed", SEED],
            device_arguments,
        ]
        .concat();
        let mut devices = bench.worker(&devices).await?;
        devices.open_first(FIRST_DEVICE_TIMEOUT).await?;
        Ok(Self {
            redis,
            edge,
            caller,
            devices,
        })
    }
}
