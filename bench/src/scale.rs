//! Many connections: memory per idle connection, and server CPU per connect. A connection counts
//! when its device is ready to receive calls.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, ensure};
use serde::Serialize;

use switchboard_test_support::process::Process;

use super::{
    calls::CONNECT_CONCURRENCY,
    cgroup::MemoryCgroup,
    control_plane::ControlPlane,
    environment::BenchEnv,
    growth::{Shards, wait_stored},
    installation,
    report::Report,
    server,
    subject::{CpuTimes, Servers, median},
    system::{System, edge},
    usage::{Usage as _, wait_idle},
    worker::Worker,
};

/// Connections opened before the first reading, to exclude one-time allocations.
const WARM_UP: u32 = 200;
/// First device number of the storms. Every storm uses new devices, so no connection is taken over.
const STORM_FIRST_DEVICE: u32 = 100_000;
const FIRST_DEVICE_TIMEOUT: Duration = Duration::from_secs(10);

/// Row names in the report.
pub(crate) const OURS: &str = "Switchboard, registered";
pub(crate) const MOSQUITTO: &str = "Mosquitto, one subscription";
pub(crate) const OVER_TLS: &str = "the same over TLS";
pub(crate) const RESUMED: &str = "the same, with a resume ticket";
const PERSISTED: &str = "the same, its token issued, on record";
/// The devices of [`PERSISTED`], whose connections are closed and opened again.
pub(crate) const RETURNING: &str = "the same, coming back unchanged";

/// Memory of an idle connection.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Memory {
    pub(crate) subject: &'static str,
    pub(crate) devices: u32,
    /// Anonymous resident bytes of the server, per connection.
    pub(crate) bytes_each: f64,
    /// Anonymous resident bytes of Redis, per connection; absent if the system has no Redis.
    pub(crate) store_bytes_each: Option<f64>,
    /// Bytes charged to the server's container, per connection, including kernel memory. Absent
    /// if no control group could be created.
    pub(crate) charged_bytes_each: Option<f64>,
}

/// A connect storm: devices connect as fast as possible.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Storm {
    pub(crate) subject: &'static str,
    pub(crate) devices: u32,
    pub(crate) per_second: Vec<f64>,
    /// CPU per connection by process, in microseconds, for each round.
    pub(crate) cpu_parts_us: Vec<BTreeMap<&'static str, f64>>,
}

impl Storm {
    const fn new(subject: &'static str, devices: u32) -> Self {
        Self {
            subject,
            devices,
            per_second: Vec::new(),
            cpu_parts_us: Vec::new(),
        }
    }

    /// CPU per connection in microseconds, for each round.
    pub(crate) fn cpu_us(&self) -> impl Iterator<Item = f64> {
        self.cpu_parts_us.iter().map(|parts| parts.values().sum())
    }

    /// CPU of some of the processes per connection in microseconds: the median over the rounds.
    pub(crate) fn cpu_us_of(&self, processes: &[&str]) -> f64 {
        let sum = |parts: &BTreeMap<_, f64>| {
            let parts = processes.iter().map(|name| parts.get(name));
            parts.flatten().sum()
        };
        median(self.cpu_parts_us.iter().map(sum))
    }

    /// Median of the ratios `self / other` within each round.
    pub(crate) fn cpu_ratio_to(&self, other: &Self) -> f64 {
        let pairs = self.cpu_us().zip(other.cpu_us());
        median(pairs.map(|(ours, theirs)| ours / theirs))
    }
}

/// A system that devices connect to.
struct Target {
    name: &'static str,
    devices: Worker,
    /// The server that owns the connections first, then the servers that it uses.
    servers: Servers,
    // Declared after the processes: they must exit before the control group is removed.
    cgroup: Option<MemoryCgroup>,
    /// Where the device events are that a control plane stores.
    events: Option<Shards>,
    // Publishes the keys that the edge verifies device tokens with.
    _caller: Option<Worker>,
}

impl Target {
    fn switchboard(name: &'static str, system: System) -> Self {
        Self {
            name,
            devices: system.devices,
            servers: vec![
                ("edge", system.edge.process),
                ("redis", system.redis.process),
            ],
            cgroup: None,
            events: None,
            _caller: Some(system.caller),
        }
    }

    fn processes(&self) -> Vec<&Process> {
        self.servers.iter().map(|(_, process)| &**process).collect()
    }

    /// Moves the server into a new control group, to measure its charged memory. If that is not
    /// possible, the report lists it as skipped.
    fn create_cgroup(&mut self, report: &mut Report) -> anyhow::Result<()> {
        let Some((name, server)) = self.servers.first() else {
            return Ok(());
        };
        let cgroup = MemoryCgroup::create(name);
        self.cgroup = report.or_skip("memory charged to a container", cgroup);
        self.cgroup
            .as_ref()
            .map_or(Ok(()), |cgroup| server.join_cgroup(cgroup))
    }

    fn charged(&self) -> anyhow::Result<Option<u64>> {
        self.cgroup.as_ref().map(MemoryCgroup::bytes).transpose()
    }

    fn cpu(&self) -> anyhow::Result<CpuTimes> {
        CpuTimes::read(
            self.servers
                .iter()
                .map(|(name, process)| (*name, &**process)),
        )
    }

    async fn open(&mut self, first: u32, count: u32) -> anyhow::Result<f64> {
        let opened = self.devices.open_all(first, count, CONNECT_CONCURRENCY);
        let elapsed_us = opened.await.context(self.name)?;
        Ok(f64::from(count) * 1e6 / elapsed_us)
    }

    /// Waits until all events are stored and the processes are idle.
    async fn settle(&mut self) -> anyhow::Result<()> {
        if let Some(events) = &mut self.events {
            wait_stored(events).await?;
        }
        wait_idle(&self.processes()).await
    }

    /// Closes the connections that are open, then opens those of a storm.
    async fn measure(&mut self, first: u32, storm: &mut Storm) -> anyhow::Result<()> {
        self.settle().await?;
        let before = self.cpu()?;
        self.devices.close().await?;
        self.settle().await?;
        let per_second = self.open(first, storm.devices).await?;
        self.settle().await?;
        let spent = before.delta_to(self.cpu()?);
        storm.per_second.push(per_second);
        let each = spent.us_per_operation(f64::from(storm.devices));
        storm.cpu_parts_us.push(each);
        Ok(())
    }
}

/// Switchboard with and without TLS and, if it is installed, Mosquitto.
async fn start_targets(bench: &BenchEnv<'_>, report: &mut Report) -> anyhow::Result<Vec<Target>> {
    let mut hosts = vec![
        Target::switchboard(OURS, System::start(bench).await.context(OURS)?),
        Target::switchboard(OVER_TLS, System::start_tls(bench).await.context(OVER_TLS)?),
    ];
    let mosquitto = mosquitto(bench).await;
    hosts.extend(report.or_skip(MOSQUITTO, mosquitto));
    Ok(hosts)
}

async fn mosquitto(bench: &BenchEnv<'_>) -> anyhow::Result<Target> {
    let server = server::mosquitto(bench.folder()).await?;
    let address = server.address.to_string();
    let mut devices = bench
        .worker(&["mqtt-devices", "--address", &address])
        .await?;
    devices.open_first(FIRST_DEVICE_TIMEOUT).await?;
    Ok(Target {
        name: MOSQUITTO,
        devices,
        servers: vec![("mosquitto", server.process)],
        cgroup: None,
        events: None,
        _caller: None,
    })
}

/// Switchboard as in production: the control plane issues each device's token and persists its
/// connect and disconnect events.
async fn start_persisted(bench: &BenchEnv<'_>) -> anyhow::Result<Target> {
    let plane = ControlPlane::start(bench).await?;
    let edge = edge(bench, &plane.stores.redis).await?;
    Ok(Target {
        name: PERSISTED,
        devices: installation::devices(bench, &edge, &plane, &[]).await?,
        servers: plane.servers(&edge),
        cgroup: None,
        events: Some(Shards::of(&plane.stores.redis).await?),
        _caller: None,
    })
}

/// Measures the memory per idle connection of each system. One pass is enough: an idle system has
/// no timing that could vary.
pub(crate) async fn idle(bench: &BenchEnv<'_>, report: &mut Report) -> anyhow::Result<()> {
    let count = bench.options.idle_devices;
    for mut host in start_targets(bench, report).await? {
        eprintln!("{count} idle devices: {}", host.name);
        host.create_cgroup(report)?;
        host.open(1, WARM_UP).await?;
        wait_idle(&host.processes()).await?;
        let (before, charged_before) = (anonymous(&host)?, host.charged()?);
        host.open(WARM_UP + 1, count).await?;
        wait_idle(&host.processes()).await?;
        let (after, charged_after) = (anonymous(&host)?, host.charged()?);
        let connected = host.devices.count().await?;
        let lost = connected.errors;
        ensure!(
            lost == 0,
            "{}: {lost} idle devices were disconnected",
            host.name
        );
        let grown = before
            .iter()
            .zip(&after)
            .map(|(before, after)| after.saturating_sub(*before));
        let each: Vec<_> = grown.map(|bytes| bytes as f64 / f64::from(count)).collect();
        let charged = charged_before.zip(charged_after);
        let charged = charged.map(|(before, after)| after.saturating_sub(before) as f64);
        report.idle.push(Memory {
            subject: host.name,
            devices: count,
            bytes_each: each
                .first()
                .copied()
                .context("the measured system has no server")?,
            store_bytes_each: each.get(1).copied(),
            charged_bytes_each: charged.map(|bytes| bytes / f64::from(count)),
        });
    }
    Ok(())
}

fn anonymous(host: &Target) -> anyhow::Result<Vec<u64>> {
    host.processes()
        .into_iter()
        .map(|process| process.anonymous_bytes())
        .collect()
}

/// Measures connect storms in turn, each with new devices. Those of [`PERSISTED`] then come back.
pub(crate) async fn storm(bench: &BenchEnv<'_>, report: &mut Report) -> anyhow::Result<()> {
    let count = bench.options.storm_devices;
    let mut hosts = start_targets(bench, report).await?;
    let resuming = System::start_resuming(bench).await.context(RESUMED)?;
    hosts.insert(1, Target::switchboard(RESUMED, resuming));
    let persisted = start_persisted(bench).await;
    hosts.extend(report.or_skip(PERSISTED, persisted));
    let storm = |host: &Target| Storm::new(host.name, count);
    let mut storms: Vec<_> = hosts.iter().map(storm).collect();
    let mut returning = Storm::new(RETURNING, count);
    for round in 0..bench.options.rounds {
        eprint!(
            "\r{count} devices connecting, round {} of {}   ",
            round + 1,
            bench.options.rounds
        );
        let first = STORM_FIRST_DEVICE + round * count;
        for (host, storm) in hosts.iter_mut().zip(&mut storms) {
            if host.name == RESUMED {
                // The second connection of each device counts.
                host.open(first, count).await?;
                host.devices.close().await?;
            }
            host.measure(first, storm).await?;
            if host.name == PERSISTED {
                host.measure(first, &mut returning).await?;
            }
            host.devices.close().await?;
        }
    }
    eprintln!();
    storms.extend((!returning.per_second.is_empty()).then_some(returning));
    report.storms.extend(storms);
    Ok(())
}
