//! A private Redis for one test: its own port, no persistence, stopped with the test.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{sys::signal::Signal, unistd::Pid};

/// Ports for servers, below the range of ephemeral ports, so that no outgoing
/// connection takes one before the server does.
pub fn free_port() -> u16 {
    loop {
        let drawn = RandomState::new().build_hasher().finish() % 16_000;
        let port = 16_000 + u16::try_from(drawn).expect("it is small");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

pub struct RedisServer {
    port: u16,
    options: Vec<String>,
    child: Option<Child>,
}

impl RedisServer {
    /// Starts a server on a free port.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with more command-line options.
    pub fn start_with(options: &[&str]) -> Self {
        let mut server = Self {
            port: free_port(),
            options: options.iter().map(ToString::to_string).collect(),
            child: None,
        };
        server.restart();
        server
    }

    pub fn url(&self) -> String {
        format!("redis://{}/", self.address())
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// SIGKILL: data is lost, connections are closed.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("our own child");
            child.wait().expect("our own child");
        }
    }

    /// SIGSTOP: connections stay open, requests are buffered without a response.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// SIGCONT: buffered requests are executed.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.as_ref().expect("it runs").id();
        let pid = Pid::from_raw(i32::try_from(id).expect("a pid"));
        nix::sys::signal::kill(pid, signal).expect("our own child");
    }

    /// Restarts the server on the same port, empty.
    pub fn restart(&mut self) {
        let child = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args(&self.options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed: ./check does it");
        self.child = Some(child);
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(self.address()).is_err() {
            assert!(Instant::now() < deadline, "redis-server does not listen");
            std::thread::yield_now();
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}
