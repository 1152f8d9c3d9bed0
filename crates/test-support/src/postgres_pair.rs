//! A PostgreSQL primary and its synchronous standby, for one test.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    fs,
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, User, geteuid},
};
use tempfile::TempDir;

use crate::{
    child::{ChildGuard, free_port},
    data_folder::processes_in,
};

/// How long a server may take to accept connections.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The root of the repository.
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The primary, and the standby that receives every write before it is acknowledged. Dropping it
/// stops both.
#[derive(Debug)]
pub struct PostgresPair {
    programs: PathBuf,
    folder: TempDir,
    ports: [u16; 2],
    servers: [Option<ChildGuard>; 2],
}

impl PostgresPair {
    /// Creates and starts both servers. Blocks for some seconds.
    #[must_use]
    pub fn start() -> Self {
        let mut pair = Self {
            programs: programs(),
            folder: tempfile::tempdir().expect("a folder"),
            ports: [free_port(), free_port()],
            servers: [None, None],
        };
        if let Some(user) = account() {
            let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
            chown(pair.folder.path(), Some(uid), Some(gid)).expect("root");
        }
        let create = "--username=switchboard --auth=trust --encoding=UTF8 --locale=C --no-sync";
        pair.run("initdb", 0, create);
        // The standby does not inherit what is not in a file.
        pair.serve(0, &["-c", "synchronous_standby_names=*"]);
        let copy = format!(
            "--host=127.0.0.1 --port={} --username=switchboard --checkpoint=fast \
             --write-recovery-conf --no-sync",
            pair.ports[0]
        );
        pair.run("pg_basebackup", 1, &copy);
        pair.serve(1, &[]);
        pair
    }

    /// The URL of an empty database of both.
    #[must_use]
    pub fn url(&self) -> String {
        let [first, second] = self.ports;
        format!("postgres://switchboard@127.0.0.1:{first},127.0.0.1:{second}/postgres")
    }

    /// SIGKILL to all processes of the primary, so that none completes its work.
    pub fn kill_primary(&mut self) {
        for process in processes_in(&self.data(0)) {
            let process = Pid::from_raw(process.parse().expect("a process id"));
            // A process may have exited before the signal.
            let _ = kill(process, Signal::SIGKILL);
        }
        self.servers[0] = None;
    }

    /// Makes the standby the primary.
    pub fn promote(&self) {
        self.run("pg_ctl", 1, "promote --wait");
    }

    fn data(&self, n: usize) -> PathBuf {
        self.folder.path().join(format!("data-{n}"))
    }

    /// Runs a program on a data folder to its end.
    fn run(&self, program: &str, n: usize, arguments: &str) {
        let mut command = self.command(program);
        command.args(arguments.split_ascii_whitespace());
        command.arg("--pgdata").arg(self.data(n));
        let output = command.output().expect("PostgreSQL's programs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {error}");
    }

    fn serve(&mut self, n: usize, options: &[&str]) {
        let port = self.ports[n].to_string();
        let log = fs::File::create(self.folder.path().join(format!("log-{n}")));
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data(n)).args(["-p", &port]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=off",
            "shared_buffers=32MB",
            "max_connections=200",
        ] {
            command.args(["-c", setting]);
        }
        command.args(options).stdout(Stdio::null());
        command.stderr(log.expect("a writable folder"));
        let child = command.spawn().expect("PostgreSQL's programs");
        self.servers[n] = Some(ChildGuard::from(child));
        let deadline = Instant::now() + START_TIMEOUT;
        let mut ready = self.command("pg_isready");
        ready.args(["--quiet", "--host=127.0.0.1", "--port", &port]);
        while !ready.status().expect("PostgreSQL's programs").success() {
            assert!(Instant::now() < deadline, "server {n}:\n{}", self.log(n));
        }
    }

    /// What a server has logged.
    fn log(&self, n: usize) -> String {
        fs::read_to_string(self.folder.path().join(format!("log-{n}"))).unwrap_or_default()
    }

    /// A program of PostgreSQL, run by a user that it accepts.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        if let Some(user) = account() {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }
}

impl Drop for PostgresPair {
    fn drop(&mut self) {
        for n in [0, 1] {
            if std::thread::panicking() {
                eprintln!("--- PostgreSQL {n} ---\n{}", self.log(n));
            }
            if self.servers[n].is_some() {
                let mut stop = self.command("pg_ctl");
                stop.args(["stop", "--mode=immediate", "--silent", "--pgdata"]);
                // A server that does not stop is killed.
                let _ = stop.arg(self.data(n)).status();
            }
        }
    }
}

/// The folder of PostgreSQL's programs, as `./check` finds it.
fn programs() -> PathBuf {
    let mut shell = Command::new("sh");
    shell.args(["-c", ". ./deploy/packages.sh && postgres_folder"]);
    let found = shell.current_dir(REPOSITORY).output().expect("a shell");
    let found = String::from_utf8(found.stdout).expect("UTF-8");
    assert!(!found.is_empty(), "PostgreSQL is installed by ./check");
    Path::new(found.trim_end()).to_owned()
}

/// PostgreSQL does not run as root.
pub(crate) fn account() -> Option<User> {
    let root = geteuid().is_root();
    root.then(|| User::from_name("postgres").ok().flatten().expect("a user"))
}
