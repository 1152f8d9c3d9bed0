//! A private data folder for one `switchboard up`, and its processes.

#![expect(
    clippy::unwrap_used,
    clippy::new_without_default,
    reason = "a test fails by panicking; a default would hide that a folder is created"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

use crate::switchboard::{Program, executable};

/// A private data folder. Dropping it removes it.
#[derive(Debug)]
pub struct DataFolder(TempDir);

impl DataFolder {
    /// Creates an empty folder.
    #[must_use]
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    /// The data folder of its PostgreSQL.
    #[must_use]
    pub fn cluster(&self) -> PathBuf {
        let link = self.0.path().join("postgres");
        fs::canonicalize(&link).unwrap_or(link)
    }

    /// The arguments of an `up` with this folder and free ports.
    #[must_use]
    pub fn up_arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let mut arguments = vec!["up", "--data-dir", self.path()];
        for listen in ["--device-listen", "--http-listen", "--admin-listen"] {
            arguments.extend([listen, "127.0.0.1:0"]);
        }
        arguments.extend(more);
        arguments
    }

    /// Starts `up` and waits until it is ready.
    #[must_use]
    pub fn up(&self) -> Program {
        Program::start(&self.up_arguments(&[]), &[])
    }

    /// A subcommand that finds the running `up` by itself.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(executable());
        command
            .args(arguments)
            .args(["--data-dir", self.path()])
            .env_remove("DATABASE_URL")
            .env_remove("REDIS_URL")
            .stdin(Stdio::null());
        command
    }

    /// Runs a subcommand to its end.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        // Under root the cluster may be elsewhere; it is removed too.
        let cluster = self.cluster();
        if !cluster.starts_with(self.0.path())
            && let Some(home) = cluster
                .parent()
                .filter(|home| home.starts_with("/var/lib/switchboard"))
        {
            fs::remove_dir_all(home).ok();
        }
    }
}

/// The processes with this working folder.
#[must_use]
pub fn processes_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    entries
        .filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
