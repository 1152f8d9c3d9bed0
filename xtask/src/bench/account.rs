//! What a process costs its container: the kernel's memory for its sockets and files is counted there as well.
//! Never: a group that outlives the measurement.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
};

use anyhow::Context as _;

/// Control groups of the second version, then the first version's for memory: what accounts are made in, and the files
/// whose sum is what is used.
const PLACES: [(&str, &[&str]); 2] = [
    ("/sys/fs/cgroup", &["memory.current"]),
    (
        "/sys/fs/cgroup/memory",
        &["memory.usage_in_bytes", "memory.kmem.tcp.usage_in_bytes"],
    ),
];

/// A control group; removed when dropped, by then its processes must have ended.
#[derive(Debug)]
pub(crate) struct Account {
    folder: PathBuf,
    files: &'static [&'static str],
}

impl Account {
    /// Opens one of this name.
    ///
    /// # Errors
    /// Where the kernel does not count memory by group, or not for whoever measures.
    pub(crate) fn open(name: &str) -> anyhow::Result<Self> {
        let place = PLACES.into_iter().find_map(|(parent, files)| {
            let folder =
                Path::new(parent).join(format!("switchboard-bench-{}-{name}", process::id()));
            fs::create_dir(&folder).ok()?;
            let account = Self { folder, files };
            // A folder without these files is one that counts something else; it goes with `account`.
            account.bytes().is_ok().then_some(account)
        });
        place.context("no control group that counts memory can be made here; it takes root")
    }

    pub(super) fn take(&self, pid: u32) -> anyhow::Result<()> {
        let file = self.folder.join("cgroup.procs");
        fs::write(&file, pid.to_string()).with_context(|| file.display().to_string())
    }

    /// What is used now by all in it.
    pub(crate) fn bytes(&self) -> anyhow::Result<u64> {
        let used = self.files.iter().map(|file| {
            let used = fs::read_to_string(self.folder.join(file))?;
            Ok(used.trim().parse::<u64>()?)
        });
        used.sum()
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.folder) {
            eprintln!("{} stays: {error}", self.folder.display());
        }
    }
}
