//! A private HAProxy for one test, with the configuration of that test.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::process::Command;

use tempfile::TempDir;

use crate::child::ChildGuard;

/// A running HAProxy. Dropping it stops it.
#[derive(Debug)]
pub struct HaProxy {
    _child: ChildGuard,
    _folder: TempDir,
}

impl HaProxy {
    /// Starts it with a configuration.
    #[must_use]
    pub fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("haproxy.cfg");
        std::fs::write(&file, config).expect("a writable folder");
        let child = ChildGuard::server(
            Command::new("haproxy").arg("-db").arg("-f").arg(&file),
            "haproxy is installed by ./check",
        );
        Self {
            _child: child,
            _folder: folder,
        }
    }
}
