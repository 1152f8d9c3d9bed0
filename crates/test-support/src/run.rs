//! A run of a check or a measurement: its runtime, its signals, and the folder for its findings.

use std::{
    future::Future,
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

/// Runs `work` until it completes or a signal arrives, and then always runs `cleanup`.
///
/// # Errors
/// The error of `work`, an interruption, or else the error of `cleanup`.
pub fn until_interrupted(
    work: impl Future<Output = anyhow::Result<()>>,
    cleanup: impl Future<Output = anyhow::Result<()>>,
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
        let cleaned = cleanup.await;
        outcome.and(cleaned)
    })
}

/// The folder for logs and findings of a run; temporary unless the user names one to keep.
#[derive(Debug)]
pub struct Findings {
    path: PathBuf,
    temporary: Option<TempDir>,
}

impl Findings {
    /// Creates `keep`, or a temporary folder.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn new(keep: Option<&Path>) -> anyhow::Result<Self> {
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

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Prints how to keep the findings of a failed run, if they are temporary.
    pub fn advise(&self) {
        if self.temporary.is_some() {
            println!("`--keep FOLDER` keeps logs and findings.");
        }
    }
}
