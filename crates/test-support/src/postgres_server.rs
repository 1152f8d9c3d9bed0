//! A PostgreSQL server of a chosen version, for one test.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::{child::free_port, postgres_pair::account};

/// A server without durability. Dropping it stops it.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    folder: TempDir,
    port: u16,
}

impl PostgresServer {
    /// Creates and starts a server with the programs in this folder. Blocks for some seconds.
    #[must_use]
    pub fn start(programs: &Path) -> Self {
        let server = Self {
            programs: programs.to_owned(),
            folder: tempfile::tempdir().expect("a folder"),
            port: free_port(),
        };
        if let Some(user) = account() {
            let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
            chown(server.folder.path(), Some(uid), Some(gid)).expect("root");
        }
        let create = "--username=switchboard --auth=trust --encoding=UTF8 --locale=C --no-sync";
        server.run("initdb", create.split(' '));
        let settings = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off",
            server.port
        );
        let log = server.folder.path().join("log");
        let log = log.to_str().expect("UTF-8");
        server.run(
            "pg_ctl",
            [
                "start",
                "--silent",
                "--wait",
                "--log",
                log,
                "--options",
                &settings,
            ],
        );
        server
    }

    /// The URL of an empty database.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://switchboard@127.0.0.1:{}/postgres", self.port)
    }

    fn run<'a>(&self, program: &str, arguments: impl IntoIterator<Item = &'a str>) {
        let status = self.command(program, arguments).status();
        let log = std::fs::read_to_string(self.folder.path().join("log"));
        let log = log.unwrap_or_default();
        assert!(
            status.expect("a program").success(),
            "{program} failed\n{log}"
        );
    }

    /// A program of PostgreSQL on the data folder, run by a user that it accepts. Its output is
    /// inherited by the server, so nobody may wait for its end.
    fn command<'a>(&self, program: &str, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command
            .args(arguments)
            .arg("--pgdata")
            .arg(self.folder.path().join("data"))
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if let Some(user) = account() {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        let stop = ["stop", "--silent", "--mode=immediate"];
        // A server that does not stop ends with its data folder.
        let _ = self.command("pg_ctl", stop).status();
    }
}
