//! Child processes of a test, and the ports on which they listen.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Time until a server must accept connections.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);
/// The ports for servers: below the range of ephemeral ports, so that no outgoing connection takes
/// one before the server does.
const FIRST_PORT: u16 = 16_000;
const PORTS: u64 = 16_000;

/// A free port for a server.
#[must_use]
pub fn free_port() -> u16 {
    loop {
        let drawn = RandomState::new().build_hasher().finish() % PORTS;
        let port = FIRST_PORT + u16::try_from(drawn).expect("below 16,000");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// A child process. Dropping it kills the process and waits for it.
#[derive(Debug)]
pub struct ChildGuard(Child);

impl ChildGuard {
    /// Starts a server without output. Panics with `missing` if its program does not start.
    #[must_use]
    pub fn server(command: &mut Command, missing: &str) -> Self {
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect(missing))
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl From<Child> for ChildGuard {
    fn from(child: Child) -> Self {
        Self(child)
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Killing a process that has ended succeeds until it has been waited for.
        self.0.kill().expect("a child of this process");
        self.0.wait().expect("a child of this process");
    }
}

/// Waits until a server accepts connections.
pub fn wait_listening(address: SocketAddr) {
    let deadline = Instant::now() + LISTEN_TIMEOUT;
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "no server listens on {address}");
        std::thread::yield_now();
    }
}
