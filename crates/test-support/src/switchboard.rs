//! The program under test, which cargo builds together with the tests of the package `switchboard`.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::signals;

/// Time until a process must print its ready line.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two checks for its exit.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The path of the program: a test is in a folder beside it.
#[must_use]
pub fn executable() -> PathBuf {
    let test = env::current_exe().expect("the path of the test");
    let folder = test.ancestors().nth(2).expect("a target folder");
    folder.join("switchboard")
}

/// A process of the program. Dropping it kills the process.
#[derive(Debug)]
pub struct Program {
    child: Child,
    log: tempfile::NamedTempFile,
    /// The ready line; null before.
    pub ready: Value,
}

impl Program {
    /// Starts a subcommand and waits for its ready line.
    #[must_use]
    pub fn start(arguments: &[&str], environment: &[(&str, String)]) -> Self {
        Self::launch(arguments, environment).until_ready()
    }

    /// Waits for the ready line of a launched subcommand.
    #[must_use]
    pub fn until_ready(mut self) -> Self {
        let (line, lines) = std::sync::mpsc::sync_channel(1);
        let out = self.child.stdout.take().expect("a pipe");
        std::thread::spawn(move || {
            let first = BufReader::new(out).lines().next();
            // The receiver is gone if the test has timed out.
            let _ = line.send(first);
        });
        match lines.recv_timeout(START_TIMEOUT) {
            Ok(Some(Ok(text))) => self.ready = serde_json::from_str(&text).expect("a JSON line"),
            other => panic!("not ready: {other:?}\n{}", self.logged()),
        }
        assert_eq!(self.ready["event"], "ready");
        self
    }

    /// Starts a subcommand without waiting for anything.
    #[must_use]
    pub fn launch(arguments: &[&str], environment: &[(&str, String)]) -> Self {
        Self::launch_release(&executable(), arguments, environment)
    }

    /// Starts a subcommand of this executable, which may be another release, and waits for its ready
    /// line.
    #[must_use]
    pub fn start_release(
        executable: &Path,
        arguments: &[&str],
        environment: &[(&str, String)],
    ) -> Self {
        Self::launch_release(executable, arguments, environment).until_ready()
    }

    fn launch_release(
        executable: &Path,
        arguments: &[&str],
        environment: &[(&str, String)],
    ) -> Self {
        let log = tempfile::NamedTempFile::new().expect("a log file");
        let child = Command::new(executable)
            .args(arguments)
            .env_remove("DATABASE_URL")
            .env_remove("REDIS_URL")
            .envs(environment.iter().map(|(name, value)| (*name, value)))
            .stdout(Stdio::piped())
            .stderr(log.reopen().expect("the same file"))
            .spawn()
            .expect("the binary under test");
        Self {
            child,
            log,
            ready: Value::Null,
        }
    }

    /// Its log so far.
    #[must_use]
    pub fn logged(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap_or_default()
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// An address from the ready line.
    #[must_use]
    pub fn address(&self, field: &str) -> String {
        self.ready[field]
            .as_str()
            .unwrap_or_else(|| panic!("no {field} in {}", self.ready))
            .to_owned()
    }

    /// Sends SIGKILL and waits for the exit.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child of this process");
        self.child.wait().expect("a child of this process");
    }

    /// Sends SIGTERM without waiting for the exit.
    pub fn terminate(&self) {
        signals::send(self.pid(), Signal::SIGTERM);
    }

    /// SIGSTOP: all threads of the process have stopped on return, and its connections stay open.
    pub fn pause(&self) {
        signals::pause(self.pid());
    }

    /// SIGCONT: it goes on with what has arrived in the meantime.
    pub fn resume(&self) {
        signals::resume(self.pid());
    }

    /// Waits for the exit code.
    pub async fn exit_code(&mut self, within: Duration) -> Option<i32> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of this process") {
                return status.code();
            }
            assert!(
                Instant::now() < deadline,
                "still running:\n{}",
                self.logged()
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.kill();
        }
        if std::thread::panicking() {
            eprintln!("--- {} ---\n{}", self.ready, self.logged());
        }
    }
}
