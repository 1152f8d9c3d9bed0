//! A process of a measurement: started, watched through /proc, and ended with its owner.
//! Never: a process that outlives the run, or one that the run did not start.

use std::{
    fs::{self, File},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use nix::{sys::wait::waitpid, unistd::Pid};
use tokio::process::{Child, Command};

use super::account::Account;

/// Less CPU than this within [`GLANCE`] is rest.
const REST: Duration = Duration::from_millis(2);
const GLANCE: Duration = Duration::from_millis(100);
const REST_WITHIN: Duration = Duration::from_secs(20);

/// Killed when dropped, and gone when that returns: its folder may be removed then.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) child: Child,
    pid: u32,
    log: std::path::PathBuf,
}

impl Process {
    /// Starts a command; its stderr goes to `NAME.log` in `folder`, and so does its stdout unless piped.
    pub(crate) fn start(folder: &Path, name: &str, command: &mut Command) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log)?;
        let child = command
            .stderr(Stdio::from(file))
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{name} could not be started"))?;
        let pid = child.id().context("a process that has just ended")?;
        Ok(Self { child, pid, log })
    }

    /// CPU time of all its living threads since they began, and of its living children: a database works in them.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let mut nanoseconds = 0;
        let mut members = vec![self.pid];
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
                nanoseconds += first.context("an empty schedstat")?.parse::<u64>()?;
                let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
                members.extend(children.split_whitespace().flat_map(str::parse::<u32>));
            }
        }
        Ok(Duration::from_nanos(nanoseconds))
    }

    /// Counts it and what it starts from now on in this account.
    pub(crate) fn enter(&self, account: &Account) -> anyhow::Result<()> {
        account.take(self.pid)
    }

    /// Memory of its own: anonymous pages that are resident.
    pub(crate) fn anonymous_bytes(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().next());
        Ok(kibibytes
            .context("a status without RssAnon")?
            .parse::<u64>()?
            * 1024)
    }

    /// What it said last, for an error.
    pub(crate) fn last_words(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().rev().take(10).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// An error if it has ended.
    pub(crate) fn assert_alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("a process ended early ({status}):\n{}", self.last_words()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a process that has already ended and been waited for.
        if self.child.start_kill().is_ok() {
            let pid = i32::try_from(self.pid).map(Pid::from_raw);
            let _ = pid.map(|pid| waitpid(pid, None));
        }
    }
}

/// CPU time of several processes.
fn cpu_of(processes: &[&Process]) -> anyhow::Result<Duration> {
    processes.iter().map(|process| process.cpu()).sum()
}

/// Waits until what the processes were asked for is done, so that it is not counted against what follows.
pub(crate) async fn at_rest(processes: &[&Process]) -> anyhow::Result<()> {
    let until = Instant::now() + REST_WITHIN;
    let mut before = cpu_of(processes)?;
    loop {
        tokio::time::sleep(GLANCE).await;
        let now = cpu_of(processes)?;
        if now.saturating_sub(before) < REST || Instant::now() > until {
            return Ok(());
        }
        before = now;
    }
}
