//! The running Postgres: started, waited for, restarted when it dies, shut down in order.
//! Never: a start without durability, an exit that leaves it running.

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
    PostgresError, START_WITHIN,
    account::Account,
    cluster,
    place::{Place, SocketFolder},
    predecessor, status,
};

/// How often the status file is looked at during a start.
const POLL: Duration = Duration::from_millis(10);
/// How long a shutdown may take before it is made shorter: everything is in the WAL by then.
const END_WITHIN: Duration = Duration::from_secs(3);
/// The pause before the first restart, doubled up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A log that is longer is put aside at the next start.
const MAX_LOG_BYTES: u64 = 16 * 1024 * 1024;
/// How much of the log's end goes into an error.
const TAIL_BYTES: u64 = 1024;

/// Small in memory, quiet, reachable through its socket only, and durable.
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

/// What is needed to start it, any number of times.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) program: PathBuf,
    pub(super) place: Place,
    pub(super) socket: SocketFolder,
    pub(super) account: Option<Account>,
}

impl Server {
    /// Starts it and returns when it takes connections; from then on it is kept alive.
    ///
    /// # Errors
    /// When it does not start; nothing is left running then.
    pub(super) async fn keep_running(self, shutdown: &Shutdown) -> Result<(), PostgresError> {
        let (tell, started) = oneshot::channel();
        let own = shutdown.clone();
        shutdown.spawn(async move { self.supervise(tell, own).await });
        match started.await {
            Ok(outcome) => outcome,
            // The supervisor ends without an answer only when it was told to stop meanwhile.
            Err(_) => std::future::pending().await,
        }
    }

    async fn supervise(self, tell: oneshot::Sender<Result<(), PostgresError>>, shutdown: Shutdown) {
        let mut child = match self.first_start(&shutdown).await {
            Ok(child) => {
                // Nobody listens any more when the process is ending already.
                let _ = tell.send(Ok(()));
                child
            }
            Err(error) => {
                let _ = tell.send(Err(error));
                return;
            }
        };
        loop {
            tokio::select! {
                ended = child.wait() => {
                    warn!(status = ?ended.ok(), "PostgreSQL ended by itself, starting it again");
                }
                () = shutdown.stopping() => return end(child).await,
            }
            match self.restart(&shutdown).await {
                Some(again) => child = again,
                None => return,
            }
        }
    }

    /// Gives sessions of a killed predecessor the moment they need to notice and end.
    async fn first_start(&self, shutdown: &Shutdown) -> Result<Child, PostgresError> {
        let mut pause = SHORTEST_PAUSE;
        loop {
            match self.start(shutdown).await {
                Err(PostgresError::Program { .. }) if pause < LONGEST_PAUSE => sleep(pause).await,
                outcome => return outcome,
            }
            pause *= 2;
        }
    }

    /// Tries until it runs again; None when told to stop.
    async fn restart(&self, shutdown: &Shutdown) -> Option<Child> {
        let mut pause = SHORTEST_PAUSE;
        loop {
            tokio::select! {
                () = sleep(pause) => {}
                () = shutdown.stopping() => return None,
            }
            match self.start(shutdown).await {
                Ok(child) => {
                    info!("PostgreSQL runs again");
                    return Some(child);
                }
                Err(error) => error!(%error, "PostgreSQL does not start, trying again"),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn start(&self, shutdown: &Shutdown) -> Result<Child, PostgresError> {
        predecessor::end(&self.place.cluster).await?;
        let mut child = self.launch()?;
        let ready = tokio::select! {
            ready = self.await_ready(&mut child) => ready,
            // Whoever supervises ends it at once, in order.
            () = shutdown.stopping() => return Ok(child),
        };
        match ready {
            Ok(()) => Ok(child),
            Err(error) => {
                end(child).await;
                Err(error)
            }
        }
    }

    fn launch(&self) -> Result<Child, PostgresError> {
        let log = open_log(&self.place.log)
            .map_err(PostgresError::file("cannot write", &self.place.log))?;
        let copy = log
            .try_clone()
            .map_err(PostgresError::file("cannot write", &self.place.log))?;
        let mut command = cluster::program(&self.program, self.account.as_ref());
        command.arg("-D").arg(&self.place.cluster);
        for setting in SETTINGS {
            command.arg("-c").arg(setting);
        }
        command
            .arg("-c")
            .arg(socket_setting(self.socket.path()))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(copy)
            // Ctrl-C in a terminal goes to us alone: we end it after everything that uses it.
            .process_group(0);
        command
            .spawn()
            .map_err(PostgresError::file("cannot run", &self.program))
    }

    async fn await_ready(&self, child: &mut Child) -> Result<(), PostgresError> {
        let deadline = Instant::now() + START_WITHIN;
        while Instant::now() < deadline {
            let own = child.id().and_then(|id| i32::try_from(id).ok());
            let found = status::read(&self.place.cluster);
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
                    output: tail(&self.place.log),
                });
            }
            sleep(POLL).await;
        }
        Err(PostgresError::NotReady(self.place.log.clone()))
    }
}

/// Fast shutdown, then immediate, then by force; each leaves what was committed.
async fn end(mut child: Child) {
    let Some(pid) = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .map(Pid::from_raw)
    else {
        return;
    };
    for signal in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGKILL] {
        if let Err(error) = kill(pid, signal) {
            warn!(%error, signal = signal.as_str(), "PostgreSQL cannot be signalled");
        }
        if timeout(END_WITHIN, child.wait()).await.is_ok() {
            return;
        }
        warn!(signal = signal.as_str(), "PostgreSQL did not end in time");
    }
}

/// The folder in the quotes that this list-valued setting asks for.
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
