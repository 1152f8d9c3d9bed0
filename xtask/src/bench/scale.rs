//! Many connections: the memory of idle ones, and the server's CPU while they come.
//! Never: a connection that is counted before it is ready to be called.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Serialize;

use super::{
    bed::Bed,
    calls::PARALLEL,
    ours::System,
    process::{Process, at_rest, cpu_of},
    report::Report,
    server,
    subject::median,
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

/// Memory of an idle connection.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Memory {
    pub(crate) subject: &'static str,
    pub(crate) devices: u32,
    /// Anonymous resident bytes of the server, per connection.
    pub(crate) bytes_each: f64,
    /// The same of a store beside it, where there is one.
    pub(crate) store_bytes_each: Option<f64>,
}

/// Connections as fast as they can be made.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Storm {
    pub(crate) subject: &'static str,
    pub(crate) devices: u32,
    pub(crate) per_second: Vec<f64>,
    /// Server CPU per connection in microseconds, round by round.
    pub(crate) cpu_us: Vec<f64>,
}

impl Storm {
    /// Ours divided by theirs within each round, and of that the median.
    pub(crate) fn cpu_ratio_to(&self, other: &Self) -> f64 {
        median(
            self.cpu_us
                .iter()
                .zip(&other.cpu_us)
                .map(|(ours, theirs)| ours / theirs),
        )
    }
}

/// A server that devices dial.
struct Host {
    name: &'static str,
    devices: Worker,
    /// The one that holds the connections, then those beside it.
    servers: Vec<Process>,
    // Publishes the keys that devices are checked with, as long as it lives.
    _caller: Option<Worker>,
}

impl Host {
    fn processes(&self) -> Vec<&Process> {
        self.servers.iter().collect()
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
    let System {
        redis,
        edge,
        caller,
        devices,
    } = System::start(bed).await.context(OURS)?;
    let servers = vec![edge.process, redis.process];
    let mut hosts = vec![Host {
        name: OURS,
        devices,
        servers,
        _caller: Some(caller),
    }];
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
        servers: vec![server.process],
        _caller: None,
    })
}

/// Memory per idle connection, of one system after the other: nothing runs, so nothing drifts.
pub(crate) async fn idle(bed: &Bed<'_>, report: &mut Report) -> anyhow::Result<()> {
    let count = bed.options.idle_devices;
    for mut host in hosts(bed, report).await? {
        eprintln!("{count} idle devices: {}", host.name);
        host.open(1, WARM_UP).await?;
        at_rest(&host.processes()).await?;
        let before = anonymous(&host)?;
        host.open(WARM_UP + 1, count).await?;
        at_rest(&host.processes()).await?;
        let after = anonymous(&host)?;
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
        report.idle.push(Memory {
            subject: host.name,
            devices: count,
            bytes_each: each.first().copied().context("a host without a server")?,
            store_bytes_each: each.get(1).copied(),
        });
    }
    Ok(())
}

fn anonymous(host: &Host) -> anyhow::Result<Vec<u64>> {
    host.servers.iter().map(Process::anonymous_bytes).collect()
}

/// Storms in turn, each with devices that have never been there.
pub(crate) async fn storm(bed: &Bed<'_>, report: &mut Report) -> anyhow::Result<()> {
    let count = bed.options.storm_devices;
    let mut hosts = hosts(bed, report).await?;
    let mut storms: Vec<_> = hosts
        .iter()
        .map(|host| Storm {
            subject: host.name,
            devices: count,
            per_second: Vec::new(),
            cpu_us: Vec::new(),
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
            let before = cpu_of(&host.processes())?;
            let per_second = host.open(STORM_BEGINS + round * count, count).await?;
            at_rest(&host.processes()).await?;
            let spent = cpu_of(&host.processes())?.saturating_sub(before);
            storm.per_second.push(per_second);
            storm
                .cpu_us
                .push(spent.as_secs_f64() * 1e6 / f64::from(count));
            host.devices.close().await?;
        }
    }
    eprintln!();
    report.storms.extend(storms);
    Ok(())
}
