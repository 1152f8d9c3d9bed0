//! A child process with a log file that ends together with its owner.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, bail};
use nix::{sys::wait::waitpid, unistd::Pid};
use tokio::process::{Child, Command};

/// Lines of the log in an error.
const LOG_TAIL_LINES: usize = 10;

/// A running child. Dropping it kills the process and waits for it, so that its folder may be
/// removed afterwards.
#[derive(Debug)]
pub struct Process {
    /// The child, for its pipes.
    pub child: Child,
    pid: u32,
    log: PathBuf,
}

impl Process {
    /// Starts a command. Its stderr goes to `NAME.log` in `folder`.
    ///
    /// # Errors
    /// The log cannot be created, or the program does not start.
    pub fn start(folder: &Path, name: &str, command: &mut Command) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log)?;
        let child = command
            .stderr(Stdio::from(file))
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{name} does not start"))?;
        let pid = child.id().context("the process has already ended")?;
        Ok(Self { child, pid, log })
    }

    /// The process id.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// The last lines of the log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().rev().take(LOG_TAIL_LINES).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Checks that the process is still running.
    ///
    /// # Errors
    /// The process has ended; the error contains its status and the end of its log.
    pub fn assert_alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("a process ended early ({status}):\n{}", self.log_tail()),
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
