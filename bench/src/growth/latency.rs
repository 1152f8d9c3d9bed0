//! The cost of a call, corrected for the drift of the machine: each window is followed by one of a
//! reference system whose size never changes.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use switchboard_test_support::process::Process;

use super::nodes::Nodes;
use crate::{
    calls::switchboard,
    environment::BenchEnv,
    reply::Reply,
    subject::{Subject, median},
    usage::{Usage as _, idle_cores, total_cpu},
    worker::Worker,
};

const ROUNDS: u32 = 3;
const ALONE_WINDOW: Duration = Duration::from_millis(300);
const BUSY_WINDOW: Duration = Duration::from_millis(500);
const IDLE_WINDOW: Duration = Duration::from_millis(500);
/// Requests in flight for each edge, when it is busy.
pub(super) const BUSY: u32 = 64;
/// Windows after which the cache of the directory is taken as warm in any case.
const MAX_WARM_UPS: u32 = 30;

/// What a call costs.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallCost {
    /// Median latency at 1 in flight.
    pub(super) p50_us: f64,
    /// CPU at [`BUSY`] in flight for each edge, without the devices.
    pub(super) cpu_us: f64,
    /// Reads of the directory.
    pub(super) lookups: f64,
}

/// A system of 1,000 devices and one edge.
pub(super) struct Reference {
    subject: Subject,
    /// Its p50 and CPU, the first time.
    first: Option<(f64, f64)>,
}

impl Reference {
    pub(super) async fn start(bench: &BenchEnv<'_>) -> anyhow::Result<Self> {
        let mut subject = switchboard(bench, "reference").await?;
        subject.caller.run(BUSY, BUSY_WINDOW).await?;
        Ok(Self {
            subject,
            first: None,
        })
    }

    /// Measures calls to the first `devices` devices of a system.
    pub(super) async fn calls(
        &mut self,
        nodes: &mut Nodes<'_>,
        devices: u32,
    ) -> anyhow::Result<CallCost> {
        let mut caller = nodes.caller(devices).await?;
        let busy = BUSY * nodes.edges();
        let mut called = 0;
        for _ in 0..MAX_WARM_UPS {
            called += caller.run(busy, BUSY_WINDOW).await?.count;
            if called > u64::from(devices) {
                break;
            }
        }
        let processes = nodes.processes();
        let servers = processes.iter().map(|process| &**process);
        let all: Vec<_> = servers.chain([&caller.process]).collect();
        let idle = idle_cores(&all, IDLE_WINDOW).await?;
        let servers = self.subject.servers.iter();
        let servers: Vec<_> = servers.map(|(_, process)| Arc::clone(process)).collect();
        let reads = nodes.shards.directory_reads().await?;
        let (mut calls, mut ours, mut theirs) = (0, Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let alone = window(&mut caller, &processes, (1, ALONE_WINDOW), idle).await?;
            let reference = &mut self.subject.caller;
            let their_alone = window(reference, &servers, (1, ALONE_WINDOW), 0.0).await?;
            let full = window(&mut caller, &processes, (busy, BUSY_WINDOW), idle).await?;
            let their_full = window(reference, &servers, (BUSY, BUSY_WINDOW), 0.0).await?;
            calls += alone.count + full.count;
            ours.push((alone.p50_us, full.cpu_us));
            theirs.push((their_alone.p50_us, their_full.cpu_us));
        }
        let reads = nodes.shards.directory_reads().await? - reads;
        let middle = |all: &[(f64, f64)]| {
            let of = |part: fn(&(f64, f64)) -> f64| median(all.iter().map(part));
            (of(|pair| pair.0), of(|pair| pair.1))
        };
        let first = *self.first.get_or_insert(middle(&theirs));
        let drift = ours.iter().zip(&theirs);
        let ratios: Vec<_> = drift
            .map(|(our, their)| (our.0 / their.0, our.1 / their.1))
            .collect();
        let ratios = middle(&ratios);
        Ok(CallCost {
            p50_us: ratios.0 * first.0,
            cpu_us: ratios.1 * first.1,
            lookups: reads / calls as f64,
        })
    }
}

/// The result of one window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) count: u64,
    pub(super) p50_us: f64,
    pub(super) cpu_us: f64,
}

/// Runs one window. CPU is that of the processes and of the caller, less what they use without it.
pub(super) async fn window(
    caller: &mut Worker,
    processes: &[Arc<Process>],
    (in_flight, length): (u32, Duration),
    idle_cores: f64,
) -> anyhow::Result<Window> {
    let before = cpu(caller, processes)?;
    let reply = caller.run(in_flight, length).await?;
    let spent = cpu(caller, processes)?.saturating_sub(before);
    ensure_answered(&reply)?;
    let idle_us = idle_cores * reply.elapsed_us;
    Ok(Window {
        count: reply.count,
        p50_us: reply.p50_us,
        cpu_us: (spent.as_secs_f64() * 1e6 - idle_us) / reply.count as f64,
    })
}

/// Fails if no request of a window succeeded.
pub(super) fn ensure_answered(reply: &Reply) -> anyhow::Result<()> {
    let error = reply.first_error.as_deref();
    let error = error.unwrap_or("no error was reported");
    ensure!(reply.count > 0, "all requests failed: {error}");
    if reply.errors > 0 {
        eprintln!("{} errors, the first: {error}", reply.errors);
    }
    Ok(())
}

fn cpu(caller: &Worker, processes: &[Arc<Process>]) -> anyhow::Result<Duration> {
    Ok(total_cpu(processes)? + caller.process.cpu()?)
}
