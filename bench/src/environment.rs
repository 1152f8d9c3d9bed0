//! The environment of a run: the built program and a temporary folder for logs and data.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use switchboard_test_support::programs;
use tempfile::TempDir;

use super::{Options, Part, worker::Worker};

/// Program, folder and options of a run.
pub(crate) struct BenchEnv<'a> {
    pub(crate) options: &'a Options,
    folder: TempDir,
    switchboard: Option<PathBuf>,
}

impl<'a> BenchEnv<'a> {
    /// Builds the program if a selected part needs it.
    pub(crate) async fn build(options: &'a Options) -> anyhow::Result<Self> {
        let peers = [Part::Redis, Part::Nats, Part::Mosquitto];
        let is_needed =
            options.only.is_empty() || options.only.iter().any(|part| !peers.contains(part));
        let switchboard = if is_needed {
            Some(programs::build(&options.profile, "switchboard").await?)
        } else {
            None
        };
        Ok(Self {
            options,
            folder: tempfile::Builder::new()
                .prefix("switchboard-bench-")
                .tempdir()?,
            switchboard,
        })
    }

    /// The folder for logs and data. It is removed at the end of the run.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The program under test.
    pub(crate) fn switchboard(&self) -> anyhow::Result<&Path> {
        self.switchboard
            .as_deref()
            .context("switchboard was not built for the selected parts")
    }

    /// Starts a role of this program in a separate process.
    pub(crate) async fn worker(&self, arguments: &[&str]) -> anyhow::Result<Worker> {
        Worker::start(&env::current_exe()?, self.folder(), arguments).await
    }
}
