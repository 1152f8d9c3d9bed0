//! Our own system for a measurement: a private Redis, an edge and a caller node.
//! Never: a setting that an operator could not choose.

use std::{net::SocketAddr, path::Path, process::Stdio, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use switchboard_protocol::id::OrgId;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::timeout,
};
use uuid::Uuid;

use super::{
    bed::Bed,
    certificate::Certificate,
    process::Process,
    server::{Server, redis},
    worker::Worker,
};

const READY_WITHIN: Duration = Duration::from_secs(30);
const FIRST_DEVICE_WITHIN: Duration = Duration::from_secs(15);

/// A key for one run, worth nothing to anybody else.
const SEED: &str = "5b0c1f7a9d3e42868f1a6c0b7d2e9435c8a1f0e37b6d4c529a8e1d0f2b3c4a59";

/// One of our services.
pub(crate) struct Service {
    pub(crate) process: Arc<Process>,
    /// Where it serves.
    pub(crate) address: SocketAddr,
    /// Its ready line.
    pub(crate) ready: serde_json::Value,
}

impl Service {
    /// Starts `switchboard NAME …` and waits for its ready line; `member` names the address in it.
    pub(crate) async fn start(
        bed: &Bed<'_>,
        arguments: &[&str],
        environment: &[(&str, &str)],
        member: &str,
    ) -> anyhow::Result<Self> {
        let name = arguments.first().context("a service's name")?;
        let mut command = switchboard(bed.switchboard()?, bed.folder(), environment);
        command
            .args(arguments)
            .args(["--admin-listen", "127.0.0.1:0"])
            .args(bed.options.traces())
            .stdout(Stdio::piped());
        let mut process = Process::start(bed.folder(), name, &mut command)?;
        let stdout = process
            .child
            .stdout
            .take()
            .context("a service without stdout")?;
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        let read = timeout(READY_WITHIN, stdout.read_line(&mut line)).await;
        if !matches!(read, Ok(Ok(1..))) {
            bail!("{name} printed no ready line:\n{}", process.last_words());
        }
        let ready: serde_json::Value = serde_json::from_str(&line)?;
        let address = ready[member]
            .as_str()
            .with_context(|| format!("no {member} in {line}"))?;
        let address = address
            .trim_start_matches("http://")
            .trim_end_matches('/')
            .parse()?;
        // Whoever prints to a closed pipe is ended by it.
        process.child.stdout = Some(stdout.into_inner());
        Ok(Self {
            process: process.into(),
            address,
            ready,
        })
    }
}

/// Our program with nothing but the given environment, so that no setting of the shell leaks in.
pub(crate) fn switchboard(program: &Path, folder: &Path, environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(environment.iter().copied());
    command.current_dir(folder).stdin(Stdio::null());
    command
}

/// A device of a benchmark says something again as soon as it is answered.
pub(crate) const TALKATIVE: [&str; 2] = ["--device-turn-burst", "4000000000"];

/// Starts an edge that takes as many devices from one address as come.
pub(crate) async fn edge(bed: &Bed<'_>, redis: &Server) -> anyhow::Result<Service> {
    let listen = ["--device-listen", "127.0.0.1:0"];
    start_edge(bed, redis, &listen, "device_addr").await
}

async fn start_edge(
    bed: &Bed<'_>,
    redis: &Server,
    listen: &[&str],
    member: &str,
) -> anyhow::Result<Service> {
    let url = redis.redis_url();
    let whoever = ["edge", "--device-accepts-per-address-per-s", "0"];
    let arguments = [&whoever[..], &TALKATIVE, listen].concat();
    Service::start(bed, &arguments, &[("REDIS_URL", &url)], member).await
}

/// Two nodes and Redis, with the first device connected.
pub(crate) struct System {
    pub(crate) redis: Server,
    pub(crate) edge: Service,
    pub(crate) caller: Worker,
    pub(crate) devices: Worker,
}

impl System {
    pub(crate) async fn start(bed: &Bed<'_>) -> anyhow::Result<Self> {
        let redis = redis(bed.folder()).await?;
        let edge = edge(bed, &redis).await?;
        Self::around(bed, redis, edge, &[]).await
    }

    /// The same with devices that come over TLS.
    pub(crate) async fn over_tls(bed: &Bed<'_>) -> anyhow::Result<Self> {
        let certificate = Certificate::create(bed.folder())?;
        let redis = redis(bed.folder()).await?;
        let listen = [
            ["--device-listen", "127.0.0.1:0"],
            ["--tls-listen", "127.0.0.1:0"],
            ["--tls-cert", &certificate.chain],
            ["--tls-key", &certificate.key],
        ];
        let edge = start_edge(bed, &redis, listen.as_flattened(), "tls_addr").await?;
        Self::around(bed, redis, edge, &["--certificate", &certificate.chain]).await
    }

    async fn around(
        bed: &Bed<'_>,
        redis: Server,
        edge: Service,
        trust: &[&str],
    ) -> anyhow::Result<Self> {
        let org = OrgId::from_uuid(Uuid::now_v7()).to_string();
        let count = bed.options.devices.to_string();
        let url = redis.redis_url();
        let whom = ["--org", &org, "--devices", &count, "--seed", SEED];
        let caller = [&["bus-caller", "--url", &url], &whom[..]].concat();
        let caller = bed.worker(&caller).await?;
        let address = edge.address.to_string();
        let dialling = ["wire-devices", "--address", &address];
        let devices = [&dialling[..], &["--org", &org, "--seed", SEED], trust].concat();
        let mut devices = bed.worker(&devices).await?;
        devices.open_first(FIRST_DEVICE_WITHIN).await?;
        Ok(Self {
            redis,
            edge,
            caller,
            devices,
        })
    }
}
