//! Growth of PostgreSQL: devices that connect without sockets, whose events the control plane stores.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use switchboard_capacity::{Axis, Coefficients, Figure, Series};
use switchboard_test_support::process::Process;
use tokio::time::{Instant, sleep};

use super::{rounded, series::point, shards::Shards};
use crate::{
    calls::CONNECT_CONCURRENCY,
    control_plane::ControlPlane,
    environment::BenchEnv,
    report::Report,
    usage::{idle_cores, total_cpu, wait_idle},
    worker::Worker,
};

const SIZES: [u32; 3] = [1_000, 10_000, 100_000];
/// Devices whose events are stored before further ones connect: an organisation has 16 MiB for events.
const CHUNK: u32 = 10_000;
/// Devices that come back at each size.
const RETURNS: u32 = 1_000;
/// First number of devices that are connected before the first reading.
const WARM_UP_FIRST: u32 = 1_000_000;
const STORE_TIMEOUT: Duration = Duration::from_secs(60);
/// Polls without an event in a row, after which all are stored.
const POLLS_WITHOUT: u32 = 5;
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long the CPU that the processes use without events is measured.
const IDLE_WINDOW: Duration = Duration::from_secs(5);

/// Waits until all device events are stored. A node may write some later than they happen: there is
/// none for several polls.
pub(crate) async fn wait_stored(shards: &mut Shards) -> anyhow::Result<()> {
    let deadline = Instant::now() + STORE_TIMEOUT;
    let mut polls_without = 0;
    while polls_without < POLLS_WITHOUT {
        let waiting = shards.waiting_events().await?;
        polls_without = if waiting == 0 { polls_without + 1 } else { 0 };
        ensure!(
            Instant::now() < deadline,
            "{waiting} device events are not stored"
        );
        sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// More devices of one organisation in PostgreSQL.
pub(super) async fn stored(
    bench: &BenchEnv<'_>,
    coefficients: &mut Coefficients,
    report: &mut Report,
) -> anyhow::Result<Series> {
    let mut growing = Growing::start(bench).await?;
    let mut series = Series::new(Axis::Stored, "control and PostgreSQL");
    let wanted = bench.options.growth.growth_devices;
    for size in SIZES.into_iter().filter(|size| *size <= wanted) {
        eprintln!("{size} stored devices");
        let measured = growing.measure(size).await;
        let Some(figures) = report.or_skip(&format!("{size} stored devices"), measured) else {
            break;
        };
        series.points.push(point(size, figures));
        coefficients.postgres.device_bytes = rounded(figures[1].1);
    }
    Ok(series)
}

/// Devices whose events a control plane stores, some of which come back.
struct Growing {
    plane: ControlPlane,
    shards: Shards,
    devices: Worker,
    returning: Worker,
    stored: u32,
    /// Rows and bytes before the first device.
    before: (f64, f64),
}

impl Growing {
    async fn start(bench: &BenchEnv<'_>) -> anyhow::Result<Self> {
        let plane = ControlPlane::start(bench).await?;
        let shards = Shards::of(&plane.stores.redis).await?;
        let role = [
            "directory-devices",
            "--url",
            &shards.url,
            "--org",
            &plane.org,
        ];
        let mut growing = Self {
            devices: bench.worker(&role).await?,
            returning: bench.worker(&role).await?,
            plane,
            shards,
            stored: 0,
            before: (0.0, 0.0),
        };
        growing.open_returning().await?;
        growing.before = growing.plane.stores.postgres.size().await?;
        Ok(growing)
    }

    fn processes(&self) -> [Arc<Process>; 2] {
        let control = Arc::clone(&self.plane.control.process);
        [control, Arc::clone(&self.plane.stores.postgres.process)]
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        wait_stored(&mut self.shards).await?;
        wait_idle(&self.processes()).await
    }

    async fn open_returning(&mut self) -> anyhow::Result<()> {
        let opened = self
            .returning
            .open_all(WARM_UP_FIRST, RETURNS, CONNECT_CONCURRENCY);
        opened.await?;
        self.settle().await
    }

    async fn measure(&mut self, size: u32) -> anyhow::Result<[(Figure, f64); 3]> {
        while self.stored < size {
            let chunk = (size - self.stored).min(CHUNK);
            let opened = self
                .devices
                .open_all(self.stored, chunk, CONNECT_CONCURRENCY);
            opened.await?;
            wait_stored(&mut self.shards).await?;
            self.stored += chunk;
        }
        self.settle().await?;
        let (rows, bytes) = self.plane.stores.postgres.size().await?;
        let idle = idle_cores(&self.processes(), IDLE_WINDOW).await?;
        let (since, before) = (Instant::now(), total_cpu(&self.processes())?);
        self.returning.close().await?;
        wait_stored(&mut self.shards).await?;
        self.open_returning().await?;
        let spent = total_cpu(&self.processes())?.saturating_sub(before);
        let idle = idle * since.elapsed().as_secs_f64();
        let returned = (spent.as_secs_f64() - idle) * 1e6 / f64::from(RETURNS);
        let each = |all: f64, before: f64| (all - before) / f64::from(size);
        Ok([
            (Figure::PostgresRows, each(rows, self.before.0)),
            (Figure::PostgresBytes, each(bytes, self.before.1)),
            (Figure::StoreCpuUs, returned),
        ])
    }
}
