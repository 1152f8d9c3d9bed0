//! A handle to a role process: sends commands and receives replies, each with a timeout.

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{ChildStdin, ChildStdout, Command},
    time::timeout,
};

use switchboard_test_support::process::Process;

use super::reply::Reply;

/// Maximum time of a reply, in addition to the requested window.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for a fleet to connect.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// A running role: a caller or a fleet of devices.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) process: Process,
    commands: ChildStdin,
    replies: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts `switchboard-bench role …` and waits for its first reply.
    pub(crate) async fn start(
        program: &Path,
        folder: &Path,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let name = arguments.first().context("missing role name")?;
        let mut command = Command::new(program);
        command
            .arg("role")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = Process::start(folder, name, &mut command)?;
        let commands = process
            .child
            .stdin
            .take()
            .context("stdin of the role is not piped")?;
        let replies = process
            .child
            .stdout
            .take()
            .context("stdout of the role is not piped")?;
        let mut worker = Self {
            process,
            commands,
            replies: BufReader::new(replies).lines(),
        };
        worker
            .reply(REPLY_TIMEOUT)
            .await
            .with_context(|| format!("{name} did not start"))?;
        Ok(worker)
    }

    /// Sends requests for one window.
    pub(crate) async fn run(&mut self, in_flight: u32, window: Duration) -> anyhow::Result<Reply> {
        let command = format!("run {in_flight} {}", window.as_millis());
        self.send(&command, window + REPLY_TIMEOUT).await
    }

    /// Connects `count` devices, starting with device `first`.
    pub(crate) async fn open(
        &mut self,
        first: u32,
        count: u32,
        concurrency: u32,
    ) -> anyhow::Result<Reply> {
        self.send(&format!("open {first} {count} {concurrency}"), OPEN_TIMEOUT)
            .await
    }

    /// Like [`Self::open`], but fails if a device does not connect. Returns how many microseconds it
    /// took.
    pub(crate) async fn open_all(
        &mut self,
        first: u32,
        count: u32,
        concurrency: u32,
    ) -> anyhow::Result<f64> {
        let reply = self.open(first, count, concurrency).await?;
        let (errors, error) = (reply.errors, reply.first_error.unwrap_or_default());
        ensure!(
            errors == 0,
            "{errors} of {count} connections failed: {error}"
        );
        Ok(reply.elapsed_us)
    }

    /// Connects the first device. Retries until the timeout, because a started server may not be
    /// ready yet.
    pub(crate) async fn open_first(&mut self, wait_timeout: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + wait_timeout;
        loop {
            let reply = self.open(0, 1, 1).await?;
            if reply.errors == 0 {
                return Ok(());
            }
            let error = reply.first_error.unwrap_or_default();
            ensure!(
                Instant::now() < deadline,
                "the first device failed to connect: {error}"
            );
            tokio::time::sleep(CONNECT_RETRY_INTERVAL).await;
        }
    }

    /// Counts the connected devices.
    pub(crate) async fn count(&mut self) -> anyhow::Result<Reply> {
        self.send("count", REPLY_TIMEOUT).await
    }

    /// Closes all devices.
    pub(crate) async fn close(&mut self) -> anyhow::Result<()> {
        self.send("close", REPLY_TIMEOUT).await.map(drop)
    }

    async fn send(&mut self, command: &str, reply_timeout: Duration) -> anyhow::Result<Reply> {
        self.commands
            .write_all(format!("{command}\n").as_bytes())
            .await?;
        self.reply(reply_timeout)
            .await
            .with_context(|| format!("command `{command}` failed"))
    }

    async fn reply(&mut self, reply_timeout: Duration) -> anyhow::Result<Reply> {
        let line = timeout(reply_timeout, self.replies.next_line()).await;
        let line = line.with_context(|| format!("no reply within {reply_timeout:?}"))??;
        let line =
            line.with_context(|| format!("the role exited:\n{}", self.process.log_tail()))?;
        serde_json::from_str(&line).with_context(|| format!("invalid reply: {line}"))
    }
}
