//! Calls that are not answered while two edges are replaced one after the other.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Serialize;
use switchboard_protocol::id::OrgId;
use tokio::time::timeout;
use uuid::Uuid;

use super::{
    calls::CONNECT_CONCURRENCY,
    environment::BenchEnv,
    report::Report,
    server::{Server, free_address, redis},
    system::{SEED, Service, start_edge},
    worker::Worker,
};

/// Half of them is connected to each edge at the start.
const DEVICES: u32 = 120;
/// Calls in flight, and the pause of a caller before each: some 1,400 calls a second.
const IN_FLIGHT: u32 = 16;
const PAUSE_MS: &str = "10";
/// One window of load; the callers report after each.
const WINDOW: Duration = Duration::from_millis(500);
/// Load before the first replacement and after each one. Longer than a lease renewal, with which an
/// edge learns that the other one accepts devices.
const SETTLE_WINDOWS: u32 = 10;
const FIRST_DEVICE_TIMEOUT: Duration = Duration::from_secs(15);
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);

/// When devices move, with the row's name.
const BEHAVIOURS: [(&str, &str); 3] = [
    ("waits", "rolling restart, devices wait as asked"),
    ("after-close", "the same, they dial once closed"),
    ("before-close", "the same, they dial before"),
];

/// The calls during the replacement of both edges.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct RollingRestart {
    subject: &'static str,
    succeeded: u64,
    /// Calls that failed, and may have reached their device.
    pub(crate) lost: u64,
    undelivered: u64,
    seconds: f64,
}

impl RollingRestart {
    /// Share of the calls that were not delivered, in percent.
    pub(crate) fn undelivered_percent(&self) -> f64 {
        let calls = self.succeeded + self.lost + self.undelivered;
        self.undelivered as f64 * 100.0 / calls as f64
    }

    pub(crate) fn row(&self) -> [String; 8] {
        let calls = self.succeeded + self.lost + self.undelivered;
        [
            self.subject.to_owned(),
            format!("{IN_FLIGHT} in flight"),
            format!("{:.0}", self.succeeded as f64 / self.seconds),
            String::new(),
            String::new(),
            String::new(),
            format!(
                "{calls} calls, {} lost, {} ({:.3} %) not delivered",
                self.lost,
                self.undelivered,
                self.undelivered_percent()
            ),
            String::new(),
        ]
    }
}

/// Replaces both edges under load, for each behaviour of devices.
pub(crate) async fn measure(bench: &BenchEnv<'_>, report: &mut Report) -> anyhow::Result<()> {
    for (moves, subject) in BEHAVIOURS {
        eprintln!("{subject}");
        let measured = restart(bench, moves, subject).await.context(subject)?;
        report.rolling.push(measured);
    }
    Ok(())
}

async fn restart(
    bench: &BenchEnv<'_>,
    moves: &str,
    subject: &'static str,
) -> anyhow::Result<RollingRestart> {
    let redis = redis(bench.folder()).await?;
    let addresses = [free_address()?, free_address()?].map(|address| address.to_string());
    let start = |address: &str| {
        let listen = ["--device-listen".to_owned(), address.to_owned()];
        let redis = &redis;
        async move {
            let listen = listen.each_ref().map(String::as_str);
            start_edge(bench, redis, &listen, "device_addr").await
        }
    };
    let mut edges = Vec::new();
    for address in &addresses {
        edges.push(start(address).await?);
    }
    let (mut caller, _devices) = workers(bench, &redis, &addresses, moves).await?;
    // Every device is called once, so that its owner is cached.
    caller.run(IN_FLIGHT, WINDOW).await?;
    let mut calls = RollingRestart {
        subject,
        ..RollingRestart::default()
    };
    load(&mut caller, &mut calls, SETTLE_WINDOWS).await?;
    for (edge, address) in edges.iter_mut().zip(&addresses) {
        let replaced = async {
            end(edge).await?;
            *edge = start(address).await?;
            anyhow::Ok(())
        };
        let mut replaced = std::pin::pin!(replaced);
        let mut is_replaced = false;
        while !is_replaced {
            let window = load(&mut caller, &mut calls, 1);
            let (loaded, ended) = tokio::join!(window, timeout(WINDOW, &mut replaced));
            loaded?;
            is_replaced = ended.ok().transpose()?.is_some();
        }
        load(&mut caller, &mut calls, SETTLE_WINDOWS).await?;
    }
    Ok(calls)
}

/// A caller of devices, and the devices, connected to both edges.
async fn workers(
    bench: &BenchEnv<'_>,
    redis: &Server,
    edges: &[String; 2],
    moves: &str,
) -> anyhow::Result<(Worker, Worker)> {
    let org = OrgId::from_uuid(Uuid::now_v7()).to_string();
    let (url, count) = (redis.redis_url(), DEVICES.to_string());
    let account = ["--org", &org, "--seed", SEED];
    let caller = ["bus-caller", "--url", &url, "--devices", &count];
    let caller = [&caller[..], &["--pause-ms", PAUSE_MS], &account].concat();
    let caller = bench.worker(&caller).await?;
    let addresses = ["--address", &edges[0], "--other-address", &edges[1]];
    let devices = [
        &["rolling-devices", "--moves", moves],
        &addresses[..],
        &account,
    ]
    .concat();
    let mut devices = bench.worker(&devices).await?;
    devices.open_first(FIRST_DEVICE_TIMEOUT).await?;
    let reply = devices.open(1, DEVICES - 1, CONNECT_CONCURRENCY).await?;
    let error = reply.first_error.unwrap_or_default();
    ensure!(reply.errors == 0, "{} devices: {error}", reply.errors);
    Ok((caller, devices))
}

/// Adds the calls of some windows.
async fn load(caller: &mut Worker, calls: &mut RollingRestart, windows: u32) -> anyhow::Result<()> {
    for _ in 0..windows {
        let reply = caller.run(IN_FLIGHT, WINDOW).await?;
        if let Some(error) = reply.first_error {
            eprintln!("{} calls failed, the first: {error}", reply.errors);
        }
        calls.succeeded += reply.count;
        calls.undelivered += reply.undelivered;
        calls.lost += reply.errors - reply.undelivered;
        calls.seconds += reply.elapsed_us / 1e6;
    }
    Ok(())
}

/// Sends SIGTERM, and waits until the process has ended.
async fn end(edge: &mut Service) -> anyhow::Result<()> {
    let process = Arc::get_mut(&mut edge.process).context("the edge is still in use")?;
    kill(Pid::from_raw(process.pid().try_into()?), Signal::SIGTERM)?;
    let status = timeout(EXIT_TIMEOUT, process.child.wait()).await;
    let status = status.context("the edge has not ended")??;
    ensure!(status.success(), "{status}:\n{}", process.log_tail());
    Ok(())
}
