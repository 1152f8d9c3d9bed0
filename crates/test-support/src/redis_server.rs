//! A private Redis for one test: its own port, no persistence, stopped with the test.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::Command,
};

use crate::{
    certificates::ServerCertificate,
    child::{ChildGuard, free_port, wait_listening},
    signals,
};

/// A Redis server. Dropping it stops it.
#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    tls_port: Option<u16>,
    options: Vec<String>,
    child: Option<ChildGuard>,
}

impl RedisServer {
    /// Starts a server on a free port.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with more command-line options.
    #[must_use]
    pub fn start_with(options: &[&str]) -> Self {
        Self::new(options, None)
    }

    /// Starts a server with a second port, for TLS, which asks clients for no certificate.
    #[must_use]
    pub fn start_tls(certificate: &ServerCertificate, options: &[&str]) -> Self {
        let port = free_port();
        let mut all = tls_options(certificate, port);
        all.extend(options.iter().map(ToString::to_string));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        Self::new(&all, Some(port))
    }

    fn new(options: &[&str], tls_port: Option<u16>) -> Self {
        let mut server = Self {
            port: free_port(),
            tls_port,
            options: options.iter().map(ToString::to_string).collect(),
            child: None,
        };
        server.restart();
        server
    }

    /// Its URL for a Redis client.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address())
    }

    /// Its port for TLS.
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        self.tls_port.expect("it was started with TLS")
    }

    /// Its address, also while it is stopped.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// SIGKILL: data is lost, connections are closed.
    pub fn kill(&mut self) {
        self.child = None;
    }

    /// SIGSTOP: the server has stopped on return. Connections stay open, requests are buffered without
    /// a response.
    pub fn pause(&self) {
        signals::pause(self.pid());
    }

    /// SIGCONT: buffered requests are executed.
    pub fn resume(&self) {
        signals::resume(self.pid());
    }

    fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").pid()
    }

    /// Restarts the server on the same port, empty.
    pub fn restart(&mut self) {
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args(&self.options);
        let child = ChildGuard::server(&mut command, "redis-server is installed by ./check");
        self.child = Some(child);
        wait_listening(self.address());
    }
}

/// The options of a server, or of a sentinel, that accepts TLS at a port.
#[must_use]
pub fn tls_options(certificate: &ServerCertificate, port: u16) -> Vec<String> {
    let file = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    [
        ("--tls-port", port.to_string()),
        ("--tls-ca-cert-file", file(&certificate.authority)),
        ("--tls-cert-file", file(&certificate.certificate)),
        ("--tls-key-file", file(&certificate.key)),
        ("--tls-auth-clients", "no".to_owned()),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.to_owned(), value])
    .collect()
}
