//! Growth with real connections: of devices, of edges and of organisations.

use std::collections::BTreeMap;

use switchboard_capacity::{Axis, Coefficients, Figure, Point, Series};

use super::{
    latency::{CallCost, Reference},
    nodes::{Nodes, devices_per_process},
    rounded,
    shards::Shards,
};
use crate::{
    environment::BenchEnv,
    report::Report,
    usage::{proc_bytes, total_cpu},
};

/// Numbers of devices, as far as the options and the machine allow.
const DEVICES: [u32; 3] = [1_000, 10_000, 100_000];
/// Edges of one system: more would only share this machine further.
const MAX_EDGES: u32 = 8;
const EDGES: [u32; 4] = [1, 2, 4, 8];
const ORGANISATIONS: [u32; 4] = [1, 10, 100, 1_000];
/// Devices of a system whose edges or organisations grow.
const FIXED_DEVICES: u32 = 4_000;
const ORGANISATIONS_EDGES: u32 = 2;

/// A point of these figures.
pub(super) fn point<const N: usize>(at: u32, figures: [(Figure, f64); N]) -> Point {
    let figures = figures.map(|(figure, value)| (figure, rounded(value)));
    Point {
        at: at.into(),
        figures: BTreeMap::from(figures),
    }
}

/// What connecting devices cost.
struct Connected {
    cpu_us: f64,
    edge_bytes: f64,
    redis_bytes: f64,
    kernel_bytes: f64,
}

/// Connects devices up to a number, and reads memory when the system is idle.
struct Growing<'a> {
    nodes: Nodes<'a>,
    connected: u32,
    edge_bytes: f64,
    redis_bytes: f64,
    kernel_bytes: f64,
}

impl<'a> Growing<'a> {
    async fn new(mut nodes: Nodes<'a>) -> anyhow::Result<Self> {
        nodes.settle().await?;
        Ok(Self {
            edge_bytes: nodes.edge_bytes()?,
            redis_bytes: nodes.shards.used_bytes().await?,
            kernel_bytes: kernel_bytes()?,
            nodes,
            connected: 0,
        })
    }

    async fn grow_to(&mut self, devices: u32) -> anyhow::Result<Connected> {
        let processes = self.nodes.processes();
        let before = total_cpu(&processes)?;
        self.nodes.open(self.connected..devices).await?;
        self.nodes.settle().await?;
        let spent = total_cpu(&processes)?.saturating_sub(before);
        let new = f64::from(devices - self.connected);
        self.connected = devices;
        let all = f64::from(devices);
        Ok(Connected {
            cpu_us: spent.as_secs_f64() * 1e6 / new,
            edge_bytes: (self.nodes.edge_bytes()? - self.edge_bytes) / all,
            redis_bytes: (self.nodes.shards.used_bytes().await? - self.redis_bytes) / all,
            // Both ends of each connection are here.
            kernel_bytes: (kernel_bytes()? - self.kernel_bytes) / all / 2.0,
        })
    }

    /// Connects devices up to a number, and calls all of them.
    async fn measure(
        &mut self,
        reference: &mut Reference,
        devices: u32,
    ) -> anyhow::Result<(CallCost, Connected)> {
        let connected = self.grow_to(devices).await?;
        let cost = reference.calls(&mut self.nodes, devices).await?;
        self.nodes.ensure_connected().await?;
        Ok((cost, connected))
    }
}

/// Memory of the kernel's objects on the whole machine. Those of an open socket's file count as
/// reclaimable, although they stay as long as it is open.
fn kernel_bytes() -> anyhow::Result<f64> {
    Ok(proc_bytes("/proc/meminfo", "Slab:")? as f64)
}

fn figures(cost: &CallCost, connected: &Connected) -> [(Figure, f64); 6] {
    [
        (Figure::CallP50Us, cost.p50_us),
        (Figure::CallCpuUs, cost.cpu_us),
        (Figure::LookupsPerCall, cost.lookups),
        (Figure::ConnectCpuUs, connected.cpu_us),
        (Figure::EdgeBytes, connected.edge_bytes),
        (Figure::RedisBytes, connected.redis_bytes),
    ]
}

/// More devices, at as many edges as the largest number needs on this machine.
pub(super) async fn devices(
    bench: &BenchEnv<'_>,
    coefficients: &mut Coefficients,
    report: &mut Report,
) -> anyhow::Result<Series> {
    let per_edge = devices_per_process()?;
    let wanted = bench.options.growth.growth_devices;
    let most = wanted.min(per_edge.saturating_mul(MAX_EDGES));
    if most < wanted {
        let refused = anyhow::anyhow!(
            "{MAX_EDGES} edges of {per_edge} files: raise the hard limit (`ulimit -Hn` as root)"
        );
        report.or_skip::<()>(&format!("{wanted} devices"), Err(refused));
    }
    // The first ones warm the edges up; they are connected as well.
    let edges = (most / per_edge.saturating_sub(1_000).max(1) + 1).min(MAX_EDGES);
    let mut reference = Reference::start(bench).await?;
    let nodes = Nodes::start(bench, Shards::single(bench).await?, edges, 1).await?;
    let mut growing = Growing::new(nodes).await?;
    let mut series = Series::new(Axis::Devices, format!("edges: {edges}, one Redis"));
    for size in DEVICES.into_iter().filter(|size| *size <= most) {
        eprintln!("{size} devices");
        let measured = growing.measure(&mut reference, size).await;
        let Some((cost, connected)) = report.or_skip(&format!("{size} devices"), measured) else {
            break;
        };
        series.points.push(point(size, figures(&cost, &connected)));
        coefficients.edge.device_bytes = rounded(connected.edge_bytes);
        coefficients.redis.device_bytes = rounded(connected.redis_bytes);
        coefficients.kernel_bytes = rounded(connected.kernel_bytes);
    }
    coefficients
        .growth
        .retain(|other| other.axis != Axis::Devices);
    Ok(series)
}

/// More edges, with the same number of devices.
pub(super) async fn edges(
    bench: &BenchEnv<'_>,
    is_cluster: bool,
    report: &mut Report,
) -> anyhow::Result<Series> {
    let mut reference = Reference::start(bench).await?;
    let system = if is_cluster {
        "a cluster of three"
    } else {
        "one Redis"
    };
    let mut series = Series::new(Axis::Edges, system);
    for edges in EDGES {
        eprintln!("{edges} edges, {system}");
        let shards = if is_cluster {
            Shards::cluster(bench).await?
        } else {
            Shards::single(bench).await?
        };
        let measured = fixed(bench, &mut reference, shards, (edges, 1)).await;
        let name = format!("{edges} edges, {system}");
        series.points.extend(report.or_skip(&name, measured));
    }
    Ok(series)
}

/// More organisations, with the same number of devices.
pub(super) async fn organisations(
    bench: &BenchEnv<'_>,
    report: &mut Report,
) -> anyhow::Result<Series> {
    let mut reference = Reference::start(bench).await?;
    let mut series = Series::new(Axis::Organisations, "edges: 2, one Redis");
    for organisations in ORGANISATIONS {
        eprintln!("{organisations} organisations");
        let shards = Shards::single(bench).await?;
        let size = (ORGANISATIONS_EDGES, organisations);
        let measured = fixed(bench, &mut reference, shards, size).await;
        let name = format!("{organisations} organisations");
        let measured = report.or_skip(&name, measured);
        series.points.extend(measured.map(|point| Point {
            at: organisations.into(),
            ..point
        }));
    }
    Ok(series)
}

/// Measures [`FIXED_DEVICES`] devices at these edges, of these organisations.
async fn fixed(
    bench: &BenchEnv<'_>,
    reference: &mut Reference,
    shards: Shards,
    (edges, organisations): (u32, u32),
) -> anyhow::Result<Point> {
    let nodes = Nodes::start(bench, shards, edges, organisations).await?;
    let mut growing = Growing::new(nodes).await?;
    let (cost, connected) = growing.measure(reference, FIXED_DEVICES).await?;
    Ok(point(edges, figures(&cost, &connected)))
}
