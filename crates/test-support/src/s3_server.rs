//! A private S3 server for one test: `rclone serve s3` with one bucket in a temporary folder. A
//! test fails if `rclone` is missing.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::child::{ChildGuard, free_port, wait_listening};

/// The only bucket of the server.
pub const BUCKET: &str = "switchboard-test";
const KEY_ID: &str = "test-key";
const SECRET: &str = "test-secret";

/// An S3 server. Dropping it stops it and removes its objects.
#[derive(Debug)]
pub struct S3Server {
    port: u16,
    child: Option<ChildGuard>,
    folder: TempDir,
}

impl S3Server {
    /// Starts a server on a free port.
    #[must_use]
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join(BUCKET)).expect("a bucket");
        let mut server = Self {
            port: free_port(),
            child: None,
            folder,
        };
        server.restart();
        server
    }

    /// SIGKILL: objects stay in the folder.
    pub fn kill(&mut self) {
        self.child = None;
    }

    /// Restarts the server on the same port with the same folder.
    pub fn restart(&mut self) {
        let mut command = Command::new(installed());
        command
            .args(["serve", "s3", "--addr", &self.address().to_string()])
            .args(["--auth-key", &format!("{KEY_ID},{SECRET}")])
            .args(["--config", "/dev/null"])
            .arg(self.folder.path());
        let child =
            ChildGuard::server(&mut command, "rclone is installed by `cargo xtask clients`");
        self.child = Some(child);
        wait_listening(self.address());
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The settings with which programs under test connect to the server.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", format!("http://{}", self.address())),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_REGION", "eu-central-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", KEY_ID.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ]
    }

    /// The folder of the bucket's objects.
    #[must_use]
    pub fn bucket(&self) -> PathBuf {
        self.folder.path().join(BUCKET)
    }
}

fn installed() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root.join(target).join("clients/rclone/bin/rclone")
}
