//! Many connections: the memory of idle ones, and the server's CPU while they come.
//! Never: a connection that is counted before it is ready to be called.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, ensure};
use serde::Serialize;

use super::{
    account::Account,
    bed::Bed,
    calls::PARALLEL,
    control_plane::ControlPlane,
    installation,
    ours::{System, edge},
    process::{Process, at_rest},
    report::Report,
    server,
    subject::{CpuTimes, Servers, median},
    worker::Worker,
};

/// Connections made before the first reading, so that what is allocated once is not counted.
const WARM_UP: u32 = 200;
/// Device numbers of storms begin here, so that no storm takes over a device.
const STORM_BEGINS: u32 = 100_000;
const FIRST_DEVICE_WITHIN: Duration = Duration::from_secs(10);

/// Names as they stand in the table.
pub(crate) const OURS: &str = "Switchboard, registered";
pub(crate) const MOSQUITTO: &str = "Mosquitto, one subscription";
const OVER_TLS: &str = "the same over TLS";
const ON_RECORD: &str = "the same, its token issued, on record";

/// Memory of an idle connection.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Memory {
    pub(crate) subject: &'static str,
    pub(crate) devices: u32,
    /// Anonymous resident bytes of the server, per connection.
    pub(crate) bytes_each: f64,
    /// The same of a store beside it, where there is one.
    pub(crate) store_bytes_each: Option<f64>,
    /// What a container of the server is charged, the kernel's memory for connections included; absent where no account
    /// of it can be kept.
    pub(crate) charged_bytes_each: Option<f64>,
}

/// Connections as fast as they can be made.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Storm {
    pub(crate) subject: &'static str,
    pub(crate) devices: u32,
    pub(crate) per_second: Vec<f64>,
    /// CPU per connection in microseconds by process, round by round.
    pub(crate) cpu_parts_us: Vec<BTreeMap<&'static str, f64>>,
}

impl Storm {
    /// CPU per connection in microseconds, round by round.
    pub(crate) fn cpu_us(&self) -> impl Iterator<Item = f64> {
        self.cpu_parts_us.iter().map(|parts| parts.values().sum())
    }

    /// Ours divided by theirs within each round, and of that the median.
    pub(crate) fn cpu_ratio_to(&self, other: &Self) -> f64 {
        let pairs = self.cpu_us().zip(other.cpu_us());
        median(pairs.map(|(ours, theirs)| ours / theirs))
    }
}

/// A server that devices dial.
struct Host {
    name: &'static str,
    devices: Worker,
    /// The one that holds the connections, then those beside it.
    servers: Servers,
    // Closed when its processes have ended, so below them.
    account: Option<Account>,
    // Publishes the keys that devices are checked with, as long as it lives.
    _caller: Option<Worker>,
}

impl Host {
    fn of(name: &'static str, ours: System) -> Self {
        Self {
            name,
            devices: ours.devices,
            servers: vec![("edge", ours.edge.process), ("redis", ours.redis.process)],
            account: None,
            _caller: Some(ours.caller),
        }
    }

    fn processes(&self) -> Vec<&Process> {
        self.servers.iter().map(|(_, process)| &**process).collect()
    }

    /// What its server is charged is counted from now on, where it can be.
    fn open_account(&mut self, report: &mut Report) -> anyhow::Result<()> {
        let Some((name, server)) = self.servers.first() else {
            return Ok(());
        };
        let account = Account::open(name);
        self.account = report.skip_unless("memory charged to a container", account);
        self.account
            .as_ref()
            .map_or(Ok(()), |account| server.enter(account))
    }

    fn charged(&self) -> anyhow::Result<Option<u64>> {
        self.account.as_ref().map(Account::bytes).transpose()
    }

    fn cpu(&self) -> anyhow::Result<CpuTimes> {
        CpuTimes::of(
            self.servers
                .iter()
                .map(|(name, process)| (*name, &**process)),
        )
    }

    async fn open(&mut self, first: u32, count: u32) -> anyhow::Result<f64> {
        let reply = self.devices.open(first, count, PARALLEL).await?;
        let why = reply.first_error.unwrap_or_default();
        ensure!(
            reply.errors == 0,
            "{}: {} of {count} failed: {why}",
            self.name,
            reply.errors
        );
        Ok(f64::from(count) * 1e6 / reply.elapsed_us)
    }
}

/// Ours and, if it is there, Mosquitto.
async fn hosts(bed: &Bed<'_>, report: &mut Report) -> anyhow::Result<Vec<Host>> {
    let mut hosts = vec![
        Host::of(OURS, System::start(bed).await.context(OURS)?),
        Host::of(OVER_TLS, System::over_tls(bed).await.context(OVER_TLS)?),
    ];
    let peer = mosquitto(bed).await;
    hosts.extend(report.skip_unless(MOSQUITTO, peer));
    Ok(hosts)
}

async fn mosquitto(bed: &Bed<'_>) -> anyhow::Result<Host> {
    let server = server::mosquitto(bed.folder()).await?;
    let address = server.address.to_string();
    let mut devices = bed.worker(&["mqtt-devices", "--address", &address]).await?;
    devices.open_first(FIRST_DEVICE_WITHIN).await?;
    Ok(Host {
        name: MOSQUITTO,
        devices,
        servers: vec![("mosquitto", server.process)],
        account: None,
        _caller: None,
    })
}

/// Ours as in production: each device's token is issued, and its coming and going is written down.
async fn on_record(bed: &Bed<'_>) -> anyhow::Result<Host> {
    let plane = ControlPlane::start(bed).await?;
    let edge = edge(bed, &plane.stores.redis).await?;
    Ok(Host {
        name: ON_RECORD,
        devices: installation::devices(bed, &edge, &plane).await?,
        servers: plane.with(&edge),
        account: None,
        _caller: None,
    })
}

/// Memory per idle connection, of one system after the other: nothing runs, so nothing drifts.
pub(crate) async fn idle(bed: &Bed<'_>, report: &mut Report) -> anyhow::Result<()> {
    let count = bed.options.idle_devices;
    for mut host in hosts(bed, report).await? {
        eprintln!("{count} idle devices: {}", host.name);
        host.open_account(report)?;
        host.open(1, WARM_UP).await?;
        at_rest(&host.processes()).await?;
        let (before, charged_before) = (anonymous(&host)?, host.charged()?);
        host.open(WARM_UP + 1, count).await?;
        at_rest(&host.processes()).await?;
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
            bytes_each: each.first().copied().context("a host without a server")?,
            store_bytes_each: each.get(1).copied(),
            charged_bytes_each: charged.map(|bytes| bytes / f64::from(count)),
        });
    }
    Ok(())
}

fn anonymous(host: &Host) -> anyhow::Result<Vec<u64>> {
    host.processes()
        .into_iter()
        .map(Process::anonymous_bytes)
        .collect()
}

/// Storms in turn, each with devices that have never been there.
pub(crate) async fn storm(bed: &Bed<'_>, report: &mut Report) -> anyhow::Result<()> {
    let count = bed.options.storm_devices;
    let mut hosts = hosts(bed, report).await?;
    let recorded = on_record(bed).await;
    hosts.extend(report.skip_unless(ON_RECORD, recorded));
    let mut storms: Vec<_> = hosts
        .iter()
        .map(|host| Storm {
            subject: host.name,
            devices: count,
            per_second: Vec::new(),
            cpu_parts_us: Vec::new(),
        })
        .collect();
    for round in 0..bed.options.rounds {
        eprint!(
            "\r{count} devices at once, round {} of {}   ",
            round + 1,
            bed.options.rounds
        );
        for (host, storm) in hosts.iter_mut().zip(&mut storms) {
            at_rest(&host.processes()).await?;
            let before = host.cpu()?;
            let per_second = host.open(STORM_BEGINS + round * count, count).await?;
            at_rest(&host.processes()).await?;
            let spent = before.until(host.cpu()?);
            storm.per_second.push(per_second);
            storm.cpu_parts_us.push(spent.us_each(f64::from(count)));
            host.devices.close().await?;
        }
    }
    eprintln!();
    report.storms.extend(storms);
    Ok(())
}
