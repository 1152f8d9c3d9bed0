//! CPU time and memory of a process, read from `/proc`.

use std::{
    fs,
    ops::Deref,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use switchboard_test_support::process::Process;

use crate::cgroup::MemoryCgroup;

/// A process that uses less CPU than this in one [`IDLE_PROBE_INTERVAL`] is idle.
const MAX_IDLE_CPU_MS: u128 = 2;
/// Of `USER_HZ`, which is 100 on all architectures that Linux still supports for servers.
const MS_PER_TICK: u64 = 10;
const IDLE_PROBE_INTERVAL: Duration = Duration::from_millis(100);
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Resource usage of a [`Process`].
pub(crate) trait Usage {
    /// CPU time of all its running threads and child processes since they started. PostgreSQL
    /// works in child processes.
    fn cpu(&self) -> anyhow::Result<Duration>;

    /// Moves the process into this control group. Later child processes join it too.
    fn join_cgroup(&self, cgroup: &MemoryCgroup) -> anyhow::Result<()>;

    /// Resident anonymous memory, in bytes.
    fn anonymous_bytes(&self) -> anyhow::Result<u64>;
}

impl Usage for Process {
    fn cpu(&self) -> anyhow::Result<Duration> {
        let mut nanoseconds = 0;
        let mut members = vec![self.pid()];
        while let Some(pid) = members.pop() {
            // A child or a thread may end between being listed and being read.
            let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
                continue;
            };
            for thread in threads {
                let thread = thread?.path();
                let Ok(statistics) = fs::read_to_string(thread.join("schedstat")) else {
                    continue;
                };
                let first = statistics.split_whitespace().next();
                nanoseconds += first.context("schedstat is empty")?.parse::<u64>()?;
                let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
                members.extend(children.split_whitespace().flat_map(str::parse::<u32>));
            }
        }
        Ok(Duration::from_nanos(nanoseconds) + ended_children(self.pid())?)
    }

    fn join_cgroup(&self, cgroup: &MemoryCgroup) -> anyhow::Result<()> {
        cgroup.add_process(self.pid())
    }

    fn anonymous_bytes(&self) -> anyhow::Result<u64> {
        proc_bytes(&format!("/proc/{}/status", self.pid()), "RssAnon:")
    }
}

/// CPU time of the child processes that have ended and were waited for, in steps of 10 ms.
fn ended_children(pid: u32) -> anyhow::Result<Duration> {
    let statistics = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // After the name, which may have spaces: the state is the third field, `cutime` the 16th.
    let (_, fields) = statistics.rsplit_once(')').context("stat has no name")?;
    let ticks = fields.split_whitespace().skip(13).take(2);
    let ticks: u64 = ticks.map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * MS_PER_TICK))
}

/// The bytes in the line of a file of `/proc` that begins with `name`.
pub(crate) fn proc_bytes(file: &str, name: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = line.and_then(|line| line.split_whitespace().next());
    let kibibytes = kibibytes.with_context(|| format!("{file} has no {name}"))?;
    Ok(kibibytes.parse::<u64>()? * 1024)
}

/// Waits until the processes are idle, so that earlier work does not affect the next measurement.
/// Returns after 20 s in any case.
pub(crate) async fn wait_idle<P: Deref<Target = Process>>(processes: &[P]) -> anyhow::Result<()> {
    let deadline = Instant::now() + IDLE_TIMEOUT;
    let mut before = total_cpu(processes)?;
    loop {
        tokio::time::sleep(IDLE_PROBE_INTERVAL).await;
        let now = total_cpu(processes)?;
        if now.saturating_sub(before).as_millis() < MAX_IDLE_CPU_MS || Instant::now() > deadline {
            return Ok(());
        }
        before = now;
    }
}

/// CPU of all processes together.
pub(crate) fn total_cpu<P: Deref<Target = Process>>(processes: &[P]) -> anyhow::Result<Duration> {
    processes.iter().map(|process| process.cpu()).sum()
}

/// Cores that the processes use while they have no work: for heartbeats, leases and other background
/// tasks.
pub(crate) async fn idle_cores<P: Deref<Target = Process>>(
    processes: &[P],
    window: Duration,
) -> anyhow::Result<f64> {
    let before = total_cpu(processes)?;
    tokio::time::sleep(window).await;
    let spent = total_cpu(processes)?.saturating_sub(before);
    Ok(spent.as_secs_f64() / window.as_secs_f64())
}
