//! Supervision of the running Postgres: start, readiness, restart and shutdown.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use switchboard_runtime::shutdown::Shutdown;
use tokio::{
    process::Child,
    sync::oneshot,
    time::{Instant, sleep, timeout},
};
use tracing::{error, info, warn};

use super::{
    PostgresError, START_TIMEOUT,
    account::Account,
    cluster,
    paths::{Paths, SocketFolder},
    stale_server, status,
};

/// Interval of reading the status file during a start.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Timeout after each shutdown signal; all commits are in the WAL.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// Bounds of the delay before a restart.
const MIN_RESTART_BACKOFF: Duration = Duration::from_millis(100);
const MAX_RESTART_BACKOFF: Duration = Duration::from_secs(2);
/// Size above which the log is rotated at the next start.
const MAX_LOG_BYTES: u64 = 16 * 1024 * 1024;
/// Size of the end of the log that is quoted in an error.
const TAIL_BYTES: u64 = 1024;

/// Little memory, few log messages, no network listener, full durability.
const SETTINGS: [&str; 12] = [
    "listen_addresses=",
    "port=5432",
    "unix_socket_permissions=0700",
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "shared_buffers=32MB",
    "max_connections=100",
    "max_wal_size=256MB",
    "max_wal_senders=0",
    "wal_level=minimal",
    "logging_collector=off",
];

/// Parameters of a start.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) program: PathBuf,
    pub(super) paths: Paths,
    pub(super) socket: SocketFolder,
    pub(super) account: Option<Account>,
}

impl Server {
    /// Starts Postgres and returns when it accepts connections. It is supervised from then on.
    ///
    /// # Errors
    /// When it does not start; no process is left running.
    pub(super) async fn keep_running(self, shutdown: &Shutdown) -> Result<(), PostgresError> {
        let (started, start_result) = oneshot::channel();
        let own = shutdown.clone();
        shutdown.spawn(async move { self.supervise(started, own).await });
        match start_result.await {
            Ok(outcome) => outcome,
            // The supervisor ends without a result only if it is stopped during the start.
            Err(_) => std::future::pending().await,
        }
    }

    async fn supervise(
        self,
        started: oneshot::Sender<Result<(), PostgresError>>,
        shutdown: Shutdown,
    ) {
        let mut child = match self.first_start(&shutdown).await {
            Ok(child) => {
                // Fails if the process is already ending.
                let _ = started.send(Ok(()));
                child
            }
            Err(error) => {
                let _ = started.send(Err(error));
                return;
            }
        };
        loop {
            tokio::select! {
                ended = child.wait() => {
                    warn!(status = ?ended.ok(), "PostgreSQL exited; restarting it");
                }
                () = shutdown.stopping() => return stop(child).await,
            }
            match self.restart(&shutdown).await {
                Some(again) => child = again,
                None => return,
            }
        }
    }

    /// Retries the start while sessions of a killed server are still ending.
    async fn first_start(&self, shutdown: &Shutdown) -> Result<Child, PostgresError> {
        let mut pause = MIN_RESTART_BACKOFF;
        loop {
            match self.start(shutdown).await {
                Err(PostgresError::Program { .. }) if pause < MAX_RESTART_BACKOFF => {
                    sleep(pause).await
                }
                outcome => return outcome,
            }
            pause *= 2;
        }
    }

    /// Restarts until Postgres runs; `None` when stopping.
    async fn restart(&self, shutdown: &Shutdown) -> Option<Child> {
        let mut pause = MIN_RESTART_BACKOFF;
        loop {
            tokio::select! {
                () = sleep(pause) => {}
                () = shutdown.stopping() => return None,
            }
            match self.start(shutdown).await {
                Ok(child) => {
                    info!("PostgreSQL is running again");
                    return Some(child);
                }
                Err(error) => error!(%error, "PostgreSQL does not start; retrying"),
            }
            pause = (pause * 2).min(MAX_RESTART_BACKOFF);
        }
    }

    async fn start(&self, shutdown: &Shutdown) -> Result<Child, PostgresError> {
        stale_server::stop(&self.paths.cluster).await?;
        let mut child = self.launch()?;
        let ready = tokio::select! {
            ready = self.await_ready(&mut child) => ready,
            // The supervisor stops the child.
            () = shutdown.stopping() => return Ok(child),
        };
        match ready {
            Ok(()) => Ok(child),
            Err(error) => {
                stop(child).await;
                Err(error)
            }
        }
    }

    fn launch(&self) -> Result<Child, PostgresError> {
        let log = open_log(&self.paths.log)
            .map_err(PostgresError::file("cannot write", &self.paths.log))?;
        let copy = log
            .try_clone()
            .map_err(PostgresError::file("cannot write", &self.paths.log))?;
        let mut command = cluster::program(&self.program, self.account.as_ref());
        command.arg("-D").arg(&self.paths.cluster);
        for setting in SETTINGS {
            command.arg("-c").arg(setting);
        }
        command
            .arg("-c")
            .arg(socket_setting(self.socket.path()))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(copy)
            // Ctrl-C in a terminal reaches only this process, which stops Postgres after its
            // clients.
            .process_group(0);
        command
            .spawn()
            .map_err(PostgresError::file("cannot run", &self.program))
    }

    async fn await_ready(&self, child: &mut Child) -> Result<(), PostgresError> {
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            let own = child.id().and_then(|id| i32::try_from(id).ok());
            let found = status::read(&self.paths.cluster);
            if found.is_some_and(|status| status.ready && Some(status.pid) == own) {
                return Ok(());
            }
            let ended = child
                .try_wait()
                .map_err(PostgresError::file("cannot watch", &self.program))?;
            if let Some(status) = ended {
                return Err(PostgresError::Program {
                    program: "postgres",
                    status: status.to_string(),
                    output: tail(&self.paths.log),
                });
            }
            sleep(POLL_INTERVAL).await;
        }
        Err(PostgresError::NotReady(self.paths.log.clone()))
    }
}

/// Fast shutdown, then immediate shutdown, then SIGKILL. Committed data is safe in each case.
async fn stop(mut child: Child) {
    let Some(pid) = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .map(Pid::from_raw)
    else {
        return;
    };
    for signal in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGKILL] {
        if let Err(error) = kill(pid, signal) {
            warn!(%error, signal = signal.as_str(), "cannot send a signal to PostgreSQL");
        }
        if timeout(STOP_TIMEOUT, child.wait()).await.is_ok() {
            return;
        }
        warn!(signal = signal.as_str(), "PostgreSQL did not stop in time");
    }
}

/// Quotes the folder as required by this list-valued setting.
fn socket_setting(folder: &Path) -> OsString {
    let mut setting = OsString::from("unix_socket_directories=\"");
    let escaped = folder.to_string_lossy().replace('"', "\"\"");
    setting.push(escaped);
    setting.push("\"");
    setting
}

fn open_log(path: &Path) -> io::Result<File> {
    if fs::metadata(path).is_ok_and(|found| found.len() > MAX_LOG_BYTES) {
        fs::rename(path, path.with_extension("log.1"))?;
    }
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

fn tail(log: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut end = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut end)?;
        Ok(end)
    };
    read().map_or_else(
        |error| format!("its log {} cannot be read: {error}", log.display()),
        |end| String::from_utf8_lossy(&end).trim().to_owned(),
    )
}
