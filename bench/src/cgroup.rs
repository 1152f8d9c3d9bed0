//! Memory of a process as its container is charged for it, measured with a control group. It
//! includes kernel memory for sockets and files.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
};

use anyhow::Context as _;

/// Parent folders of memory control groups (version 2, then version 1), each with the files whose
/// values add up to the memory usage.
const HIERARCHIES: [(&str, &[&str]); 2] = [
    ("/sys/fs/cgroup", &["memory.current"]),
    (
        "/sys/fs/cgroup/memory",
        &["memory.usage_in_bytes", "memory.kmem.tcp.usage_in_bytes"],
    ),
];

/// A memory control group. It is removed when dropped; its processes must have exited by then.
#[derive(Debug)]
pub(crate) struct MemoryCgroup {
    folder: PathBuf,
    files: &'static [&'static str],
}

impl MemoryCgroup {
    /// Creates a control group with this name.
    ///
    /// # Errors
    /// If the kernel has no memory control groups or this user may not create one.
    pub(crate) fn create(name: &str) -> anyhow::Result<Self> {
        let cgroup = HIERARCHIES.into_iter().find_map(|(parent, files)| {
            let folder =
                Path::new(parent).join(format!("switchboard-bench-{}-{name}", process::id()));
            fs::create_dir(&folder).ok()?;
            let cgroup = Self { folder, files };
            // Without these files the folder is no memory control group; `Drop` removes it.
            cgroup.bytes().is_ok().then_some(cgroup)
        });
        cgroup.context("cannot create a memory control group; this requires root")
    }

    pub(super) fn add_process(&self, pid: u32) -> anyhow::Result<()> {
        let file = self.folder.join("cgroup.procs");
        fs::write(&file, pid.to_string()).with_context(|| file.display().to_string())
    }

    /// Current memory usage of all its processes.
    pub(crate) fn bytes(&self) -> anyhow::Result<u64> {
        let used = self.files.iter().map(|file| {
            let used = fs::read_to_string(self.folder.join(file))?;
            Ok(used.trim().parse::<u64>()?)
        });
        used.sum()
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.folder) {
            eprintln!("cannot remove {}: {error}", self.folder.display());
        }
    }
}
