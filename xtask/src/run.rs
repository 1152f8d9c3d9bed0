//! A run of a task: on a runtime of its own, ended by its work or by a signal, with a folder for what it leaves.
//! Never: a way out on which what must be cleared away is not.

use std::{
    future::Future,
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

/// Does the work until it is done or a signal ends it, and then, whatever happened, what is to be done at the end.
pub(crate) fn until_interrupted(
    work: impl Future<Output = anyhow::Result<()>>,
    end: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let outcome = tokio::select! {
            outcome = work => outcome,
            _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted")),
            _ = terminate.recv() => Err(anyhow!("terminated")),
        };
        // Why the run failed is worth more than what it left behind.
        let ended = end.await;
        outcome.and(ended)
    })
}

/// Where a run's logs and findings go; gone with it, unless somebody said where to keep them.
pub(crate) struct Findings {
    path: PathBuf,
    temporary: Option<TempDir>,
}

impl Findings {
    /// The folder to keep them in, made if it is not there, or one for this run.
    pub(crate) fn new(keep: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(folder) = keep {
            std::fs::create_dir_all(folder)?;
            return Ok(Self {
                path: std::path::absolute(folder)?,
                temporary: None,
            });
        }
        let temporary = tempfile::Builder::new().prefix("switchboard-").tempdir()?;
        Ok(Self {
            path: temporary.path().to_owned(),
            temporary: Some(temporary),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Says how to keep them, when a run failed that does not.
    pub(crate) fn advise(&self) {
        if self.temporary.is_some() {
            println!("Logs and findings stay with `--keep FOLDER`.");
        }
    }
}
