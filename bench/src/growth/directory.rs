//! Growth of the directory without connections: entries that a node writes in bulk, with the keys and
//! the format of the bus, and look-ups of another node.

use std::time::Duration;

use anyhow::Context as _;
use switchboard_capacity::{Axis, Coefficients, Figure, Series};
use switchboard_protocol::id::OrgId;
use uuid::Uuid;

use super::{
    latency::{BUSY, window},
    rounded,
    series::point,
    shards::Shards,
};
use crate::{
    environment::BenchEnv,
    report::Report,
    subject::median,
    usage::{Usage as _, proc_bytes},
};

const SIZES: [u32; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];
/// Entries of one batch, which is one device of the role.
const BATCH: u32 = 1_000;
/// Batches at the same time.
const CONCURRENCY: u32 = 8;
/// Batches of one command, which has a timeout.
const MAX_BATCHES: u32 = 500;
/// The batch that is written before the first reading: its entries are not looked up.
const WARM_UP_BATCH: u32 = 1_000_000;
const ROUNDS: usize = 3;
const WINDOW: Duration = Duration::from_millis(500);
/// Memory that one entry needs at most, while Redis resizes its hash tables.
const MAX_ENTRY_BYTES: u64 = 800;

/// More entries, all of one organisation: they are in one hash at one server.
pub(super) async fn entries(
    bench: &BenchEnv<'_>,
    coefficients: &mut Coefficients,
    report: &mut Report,
) -> anyhow::Result<Series> {
    let mut shards = Shards::single(bench).await?;
    let redis: Vec<_> = shards.processes().collect();
    let org = OrgId::from_uuid(Uuid::now_v7()).to_string();
    let url = shards.url.clone();
    let batch = BATCH.to_string();
    let account = ["--url", &url, "--org", &org];
    let writer = [&["directory-devices", "--batch", &batch][..], &account].concat();
    let mut writer = bench.worker(&writer).await?;
    // The first entries of an organisation also make its keys.
    writer.open(WARM_UP_BATCH, 1, 1).await?;
    let before = shards.used_bytes().await?;
    let mut series = Series::new(Axis::Entries, "one organisation, one Redis");
    let (mut written, mut readers) = (0, Vec::new());
    let wanted = bench.options.growth.growth_entries;
    for size in SIZES.into_iter().filter(|size| *size <= wanted) {
        let needed = u64::from(size - written) * MAX_ENTRY_BYTES;
        let available = proc_bytes("/proc/meminfo", "MemAvailable:")?;
        if needed > available {
            let missing = anyhow::anyhow!("they need {needed} bytes, {available} are available");
            report.or_skip::<()>(&format!("{size} directory entries"), Err(missing));
            break;
        }
        eprintln!("{size} directory entries");
        while written < size {
            let batches = ((size - written) / BATCH).min(MAX_BATCHES);
            let opened = writer.open_all(written / BATCH, batches, CONCURRENCY);
            opened.await.context("entries are not written")?;
            written += batches * BATCH;
        }
        let bytes = (shards.used_bytes().await? - before) / f64::from(size);
        let count = size.to_string();
        let reader = [&["directory-caller", "--devices", &count][..], &account].concat();
        // It stays until the end: other nodes search the directory for the entries of one that dies.
        readers.push(bench.worker(&reader).await?);
        let reader = readers.last_mut().context("no reader")?;
        reader.run(BUSY, WINDOW).await?;
        let (mut p50, mut redis_us, mut reader_us) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            p50.push(window(reader, &[], (1, WINDOW), 0.0).await?.p50_us);
            let cpu = redis.first().context("no server")?.cpu()?;
            let busy = window(reader, &[], (BUSY, WINDOW), 0.0).await?;
            let spent = redis
                .first()
                .context("no server")?
                .cpu()?
                .saturating_sub(cpu);
            redis_us.push(spent.as_secs_f64() * 1e6 / busy.count as f64);
            reader_us.push(busy.cpu_us);
        }
        let redis_us = median(redis_us);
        coefficients.redis.lookup_us = rounded(redis_us);
        coefficients.gateway.lookup_us = rounded(median(reader_us));
        series.points.push(point(
            size,
            [
                (Figure::LookupP50Us, median(p50)),
                (Figure::LookupRedisUs, redis_us),
                (Figure::RedisBytes, bytes),
            ],
        ));
    }
    Ok(series)
}
