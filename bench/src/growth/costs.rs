//! The coefficients of the capacity model: what a process, a call, a return, a heartbeat and a turn
//! cost each role.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use switchboard_capacity::{Coefficients, Role};
use switchboard_test_support::process::Process;

use super::{
    installation::Installation,
    latency::{BUSY, ensure_answered},
    rounded,
};
use crate::{
    calls::CONNECT_CONCURRENCY,
    chat,
    environment::BenchEnv,
    server::redis,
    subject::median,
    system::{System, start_edge},
    usage::{Usage as _, idle_cores, wait_idle},
    worker::Worker,
};

/// Devices that come back, and half of those that are called.
const DEVICES: u32 = 1_000;
const ROUNDS: u32 = 3;
const WINDOW: Duration = Duration::from_millis(700);
/// Seconds between two heartbeats in this measurement.
const HEARTBEAT_S: &str = "1";
/// Seconds between two heartbeats by default.
const DEFAULT_HEARTBEAT_S: f64 = 30.0;
/// Longer than the intervals of most background tasks.
const BASE_WINDOW: Duration = Duration::from_secs(15);
/// The interval in which the usage of calls is stored: each window has it once.
const CALLS_WINDOW: Duration = Duration::from_secs(5);
const IDLE_DEVICES: u32 = 4_000;
const IDLE_WINDOW: Duration = Duration::from_secs(3);
const TURNS: u32 = 16;

/// Measures all of them, except those that the growth gives: memory and look-ups.
pub(super) async fn measure(
    bench: &BenchEnv<'_>,
    coefficients: &mut Coefficients,
) -> anyhow::Result<()> {
    heartbeats(bench, coefficients).await?;
    installation(bench, coefficients).await?;
    turns(bench, coefficients).await
}

/// The CPU that each process has used, in microseconds, and when it was read.
struct Reading<R> {
    at: Instant,
    cpu_us: Vec<(R, f64)>,
}

impl<R: Copy> Reading<R> {
    fn new(cpu_us: Vec<(R, f64)>) -> Self {
        let at = Instant::now();
        Self { at, cpu_us }
    }

    /// What each process has used in each second since an earlier reading.
    fn per_second(&self, before: &Self) -> Vec<(R, f64)> {
        let seconds = (self.at - before.at).as_secs_f64();
        let pairs = before.cpu_us.iter().zip(&self.cpu_us);
        pairs
            .map(|((of, before), (_, after))| (*of, (after - before) / seconds))
            .collect()
    }

    /// What each of `count` operations since an earlier reading cost, beyond what each process uses in
    /// a second without them.
    fn each(&self, before: &Self, idle: &[(R, f64)], count: f64) -> Vec<(R, f64)> {
        let seconds = (self.at - before.at).as_secs_f64();
        let pairs = self.per_second(before).into_iter().zip(idle);
        pairs
            .map(|((of, used), (_, idle))| (of, (used - idle) * seconds / count))
            .collect()
    }
}

fn of_roles(installation: &Installation) -> anyhow::Result<Reading<Role>> {
    let used = installation.used()?.into_iter();
    Ok(Reading::new(
        used.map(|used| (used.role, used.cpu_s * 1e6)).collect(),
    ))
}

fn of_servers(servers: &[(&'static str, Arc<Process>)]) -> anyhow::Result<Reading<&'static str>> {
    let used = servers
        .iter()
        .map(|(name, process)| Ok((*name, process.cpu()?.as_secs_f64() * 1e6)));
    Ok(Reading::new(used.collect::<anyhow::Result<_>>()?))
}

async fn installation(bench: &BenchEnv<'_>, costs: &mut Coefficients) -> anyhow::Result<()> {
    let mut installation = Installation::start(bench).await?;
    installation.open(DEVICES, DEVICES).await?;
    let mut caller = installation.caller(bench, 2 * DEVICES, 0).await?;
    // Processes have their pools and buffers after this.
    caller.run(BUSY, CALLS_WINDOW).await?;
    installation.wait().await?;
    let before = of_roles(&installation)?;
    tokio::time::sleep(BASE_WINDOW).await;
    let idle = of_roles(&installation)?.per_second(&before);
    let without_work = installation.used()?;
    let mut returns = Vec::new();
    for _ in 0..ROUNDS {
        let before = of_roles(&installation)?;
        installation.come_back(DEVICES, DEVICES).await?;
        installation.wait().await?;
        returns.push(of_roles(&installation)?.each(&before, &idle, DEVICES.into()));
    }
    for (role, us) in medians(&returns) {
        costs.of_mut(role).return_us = rounded(us.max(0.0));
    }
    let alone = calls(&installation, &mut caller, &idle, 1).await?;
    let busy = calls(&installation, &mut caller, &idle, BUSY).await?;
    for ((role, alone), (_, busy)) in alone.into_iter().zip(busy) {
        let busy = busy.max(0.0);
        // A busy call is never dearer: what is left of that is noise of other work.
        costs.of_mut(role).call_alone_us = rounded(alone.max(busy));
        costs.of_mut(role).call_busy_us = rounded(busy);
    }
    for (role, us) in idle {
        let of = costs.of_mut(role);
        of.base_us = rounded((us - f64::from(2 * DEVICES) * of.idle_us).max(0.0));
    }
    for used in without_work {
        let of = costs.of_mut(used.role);
        let devices = f64::from(2 * DEVICES) * of.device_bytes;
        of.base_bytes = rounded((used.bytes - devices).max(0.0));
    }
    Ok(())
}

async fn calls(
    installation: &Installation,
    caller: &mut Worker,
    idle: &[(Role, f64)],
    in_flight: u32,
) -> anyhow::Result<Vec<(Role, f64)>> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let before = of_roles(installation)?;
        let reply = caller.run(in_flight, CALLS_WINDOW).await?;
        ensure_answered(&reply)?;
        rounds.push(of_roles(installation)?.each(&before, idle, reply.count as f64));
    }
    Ok(medians(&rounds))
}

/// The median of each role over the rounds.
fn medians<R: Copy + PartialEq>(rounds: &[Vec<(R, f64)>]) -> Vec<(R, f64)> {
    let roles = rounds.first().into_iter().flatten().map(|(role, _)| *role);
    let of = |role| {
        let all = rounds
            .iter()
            .flatten()
            .filter(move |(other, _)| *other == role);
        median(all.map(|(_, us)| *us))
    };
    roles.map(|role| (role, of(role))).collect()
}

/// Devices that do nothing but send heartbeats, more often than by default.
async fn heartbeats(bench: &BenchEnv<'_>, costs: &mut Coefficients) -> anyhow::Result<()> {
    let redis = redis(bench.folder()).await?;
    let listen = [
        "--device-listen",
        "127.0.0.1:0",
        "--device-heartbeat-s",
        HEARTBEAT_S,
    ];
    let edge = start_edge(bench, &redis, &listen, "device_addr").await?;
    let mut system = System::with_edge(bench, redis, edge, &[]).await?;
    let edge = [Arc::clone(&system.edge.process)];
    let without = idle_cores(&edge, IDLE_WINDOW).await?;
    let opened = system
        .devices
        .open_all(1, IDLE_DEVICES, CONNECT_CONCURRENCY);
    opened.await?;
    // Until the work of connecting is done; with heartbeats the edge is never idle.
    tokio::time::sleep(IDLE_WINDOW / 3).await;
    let cores = (idle_cores(&edge, IDLE_WINDOW).await? - without).max(0.0);
    costs.edge.idle_us = rounded(cores * 1e6 / f64::from(IDLE_DEVICES) / DEFAULT_HEARTBEAT_S);
    Ok(())
}

async fn turns(bench: &BenchEnv<'_>, costs: &mut Coefficients) -> anyhow::Result<()> {
    let mut subject = chat::separate_services(bench).await?;
    let servers = subject.servers.clone();
    let processes: Vec<_> = servers.iter().map(|(_, process)| &**process).collect();
    wait_idle(&processes).await?;
    let chat = servers.iter().find(|(name, _)| *name == "chat");
    if let Some((_, process)) = chat {
        costs.chat.base_bytes = rounded(process.anonymous_bytes()? as f64);
    }
    subject.caller.run(TURNS, WINDOW).await?;
    wait_idle(&processes).await?;
    let before = of_servers(&servers)?;
    tokio::time::sleep(CALLS_WINDOW).await;
    let idle = of_servers(&servers)?.per_second(&before);
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let before = of_servers(&servers)?;
        let reply = subject.caller.run(TURNS, WINDOW).await?;
        ensure_answered(&reply)?;
        rounds.push(of_servers(&servers)?.each(&before, &idle, reply.count as f64));
    }
    let roles = [
        ("edge", Role::Edge),
        ("control", Role::Control),
        ("chat", Role::Chat),
        ("redis", Role::Redis),
        ("postgres", Role::Postgres),
    ];
    for (name, us) in medians(&rounds) {
        let role = roles.iter().find(|(of, _)| *of == name);
        if let Some((_, role)) = role {
            costs.of_mut(*role).turn_us = rounded(us.max(0.0));
        }
    }
    Ok(())
}
