//! Growth of PostgreSQL: devices that connect without sockets, whose events the control plane stores.

use std::time::Duration;

use anyhow::ensure;
use switchboard_capacity::{Axis, Coefficients, Figure, Series};
use tokio::time::{Instant, sleep};

use super::{latency::total_cpu, rounded, series::point, shards::Shards};
use crate::{
    calls::CONNECT_CONCURRENCY, control_plane::ControlPlane, environment::BenchEnv,
    usage::wait_idle,
};

const SIZES: [u32; 3] = [1_000, 10_000, 100_000];
/// Devices whose events are stored before further ones connect: an organisation has 16 MiB for events.
const CHUNK: u32 = 10_000;
/// Devices that come back at each size.
const RETURNS: u32 = 1_000;
/// First number of devices that are connected before the first reading.
const WARM_UP_FIRST: u32 = 1_000_000;
const STORE_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Waits until all device events are stored.
pub(super) async fn wait_stored(shards: &mut Shards) -> anyhow::Result<()> {
    let deadline = Instant::now() + STORE_TIMEOUT;
    loop {
        let waiting = shards.waiting_events().await?;
        if waiting == 0 {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{waiting} device events are not stored"
        );
        sleep(POLL_INTERVAL).await;
    }
}

/// More devices of one organisation in PostgreSQL.
pub(super) async fn stored(
    bench: &BenchEnv<'_>,
    coefficients: &mut Coefficients,
) -> anyhow::Result<Series> {
    let plane = ControlPlane::start(bench).await?;
    let mut shards = Shards::of(&plane.stores.redis).await?;
    let url = shards.url.clone();
    let org = plane.org.clone();
    let role = ["directory-devices", "--url", &url, "--org", &org];
    let mut devices = bench.worker(&role).await?;
    let mut returning = bench.worker(&role).await?;
    let processes = [
        plane.control.process.clone(),
        plane.stores.postgres.process.clone(),
    ];
    returning
        .open(WARM_UP_FIRST, RETURNS, CONNECT_CONCURRENCY)
        .await?;
    wait_stored(&mut shards).await?;
    let (rows, bytes) = plane.stores.postgres.size().await?;
    let mut series = Series::new(Axis::Stored, "control and PostgreSQL");
    let mut stored = 0;
    let wanted = bench.options.growth.growth_devices;
    for size in SIZES.into_iter().filter(|size| *size <= wanted) {
        eprintln!("{size} stored devices");
        while stored < size {
            let chunk = (size - stored).min(CHUNK);
            let reply = devices.open(stored, chunk, CONNECT_CONCURRENCY).await?;
            let error = reply.first_error.unwrap_or_default();
            ensure!(reply.errors == 0, "devices do not connect: {error}");
            wait_stored(&mut shards).await?;
            stored += chunk;
        }
        let (all_rows, all_bytes) = plane.stores.postgres.size().await?;
        wait_idle(&processes.each_ref().map(|process| &**process)).await?;
        let before = total_cpu(&processes)?;
        returning.close().await?;
        returning
            .open(WARM_UP_FIRST, RETURNS, CONNECT_CONCURRENCY)
            .await?;
        wait_stored(&mut shards).await?;
        wait_idle(&processes.each_ref().map(|process| &**process)).await?;
        let spent = total_cpu(&processes)?.saturating_sub(before);
        let each_bytes = (all_bytes - bytes) / f64::from(size);
        coefficients.postgres.device_bytes = rounded(each_bytes);
        series.points.push(point(
            size,
            [
                (Figure::PostgresRows, (all_rows - rows) / f64::from(size)),
                (Figure::PostgresBytes, each_bytes),
                (
                    Figure::StoreCpuUs,
                    spent.as_secs_f64() * 1e6 / f64::from(RETURNS),
                ),
            ],
        ));
    }
    Ok(series)
}
