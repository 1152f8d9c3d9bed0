//! A private data folder for one `switchboard up`, and its processes.

use std::{fs, path::Path};

use tempfile::TempDir;

use crate::program::Program;

/// A private data folder.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    /// The data folder of its PostgreSQL.
    pub fn cluster(&self) -> std::path::PathBuf {
        let link = self.0.path().join("postgres");
        fs::canonicalize(&link).unwrap_or(link)
    }

    pub fn up_arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let mut arguments = vec!["up", "--data-dir", self.path()];
        for listen in ["--device-listen", "--http-listen", "--admin-listen"] {
            arguments.extend([listen, "127.0.0.1:0"]);
        }
        arguments.extend(more);
        arguments
    }

    pub fn up(&self) -> Program {
        Program::start(&self.up_arguments(&[]), &[])
    }
}

impl Drop for Folder {
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
