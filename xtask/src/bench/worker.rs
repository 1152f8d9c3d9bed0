//! The driver's end of a role process: a command out, a reply in, within a time.
//! Never: a wait without an end.

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::{process::Process, reply::Reply};

/// What a role may take beyond the time it was told to run.
const GRACE: Duration = Duration::from_secs(30);
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// A caller or a fleet of devices.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) process: Process,
    commands: ChildStdin,
    replies: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts `xtask bench-role …` and waits until it obeys.
    pub(crate) async fn start(
        program: &Path,
        folder: &Path,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let name = arguments.first().context("a role's name")?;
        let mut command = Command::new(program);
        command
            .arg("bench-role")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = Process::start(folder, name, &mut command)?;
        let commands = process.child.stdin.take().context("a role without stdin")?;
        let replies = process
            .child
            .stdout
            .take()
            .context("a role without stdout")?;
        let mut worker = Self {
            process,
            commands,
            replies: BufReader::new(replies).lines(),
        };
        worker
            .reply(GRACE)
            .await
            .with_context(|| format!("{name} did not start"))?;
        Ok(worker)
    }

    /// A window of requests.
    pub(crate) async fn run(&mut self, in_flight: u32, window: Duration) -> anyhow::Result<Reply> {
        let command = format!("run {in_flight} {}", window.as_millis());
        self.ask(&command, window + GRACE).await
    }

    /// Connects devices `first` and the `count - 1` after it.
    pub(crate) async fn open(
        &mut self,
        first: u32,
        count: u32,
        parallel: u32,
    ) -> anyhow::Result<Reply> {
        self.ask(&format!("open {first} {count} {parallel}"), GRACE + GRACE)
            .await
    }

    /// Connects one device, again and again for a while: a server may be up and not yet ready.
    pub(crate) async fn open_first(&mut self, within: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + within;
        loop {
            let reply = self.open(0, 1, 1).await?;
            if reply.errors == 0 {
                return Ok(());
            }
            let why = reply.first_error.unwrap_or_default();
            anyhow::ensure!(
                Instant::now() < until,
                "the first device cannot connect: {why}"
            );
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }

    /// How many devices are connected.
    pub(crate) async fn count(&mut self) -> anyhow::Result<Reply> {
        self.ask("count", GRACE).await
    }

    /// Closes all devices.
    pub(crate) async fn close(&mut self) -> anyhow::Result<()> {
        self.ask("close", GRACE).await.map(drop)
    }

    async fn ask(&mut self, command: &str, within: Duration) -> anyhow::Result<Reply> {
        self.commands
            .write_all(format!("{command}\n").as_bytes())
            .await?;
        self.reply(within)
            .await
            .with_context(|| format!("asked to `{command}`"))
    }

    async fn reply(&mut self, within: Duration) -> anyhow::Result<Reply> {
        let line = timeout(within, self.replies.next_line()).await;
        let line = line.with_context(|| format!("no reply within {within:?}"))??;
        let line = line.with_context(|| format!("it ended:\n{}", self.process.last_words()))?;
        serde_json::from_str(&line).with_context(|| format!("a reply that is none: {line}"))
    }
}
