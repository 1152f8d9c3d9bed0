//! A private haproxy for one test, with the configuration of that test.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
};

pub struct Haproxy {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Haproxy {
    pub fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("haproxy.cfg");
        std::fs::write(&file, config).expect("a file of our own");
        let child = Command::new("haproxy")
            .arg("-db")
            .arg("-f")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("haproxy is installed: ./check does it");
        Self {
            child,
            _folder: folder,
        }
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        self.child.kill().expect("our own child");
        self.child.wait().expect("our own child");
    }
}

/// A free port.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}
