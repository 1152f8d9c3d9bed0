//! A private S3 server for one test: `rclone serve s3` with one bucket in a temporary folder. A
//! test fails if `rclone` is missing.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// The only bucket of the server.
pub const BUCKET: &str = "switchboard-test";
const KEY_ID: &str = "test-key";
const SECRET: &str = "test-secret";

pub struct S3Server {
    folder: tempfile::TempDir,
    port: u16,
    child: Option<Child>,
}

impl S3Server {
    /// Starts a server on a free port.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join(BUCKET)).expect("a bucket");
        let mut server = Self {
            folder,
            port,
            child: None,
        };
        server.restart();
        server
    }

    /// SIGKILL: objects stay in the folder.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("our own child");
            child.wait().expect("our own child");
        }
    }

    /// Restarts the server on the same port with the same folder.
    pub fn restart(&mut self) {
        let program = installed();
        let child = Command::new(&program)
            .args(["serve", "s3", "--addr", &self.address().to_string()])
            .args(["--auth-key", &format!("{KEY_ID},{SECRET}")])
            .args(["--config", "/dev/null"])
            .arg(self.folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "{} ({error}): `cargo xtask clients` installs it",
                    program.display()
                )
            });
        self.child = Some(child);
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(self.address()).is_err() {
            assert!(Instant::now() < deadline, "rclone does not listen");
            std::thread::yield_now();
        }
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The settings with which programs under test connect to the server.
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
    pub fn bucket(&self) -> PathBuf {
        self.folder.path().join(BUCKET)
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn installed() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root.join(target).join("clients/rclone/bin/rclone")
}
