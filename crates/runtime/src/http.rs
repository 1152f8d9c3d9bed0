//! HTTP/1.1 and HTTP/2 server with limits that `axum::serve` lacks: timeouts for head, body and writes, sizes of
//! head and body, and budgets of connections, heads and bodies.

mod acceptor;
mod active_request;
mod body;
mod client;
mod config;
mod connection;
mod forwarded;
mod http2;
mod instrument;
mod listener;
mod response_body;
mod slow_readers;
mod stream;

use std::time::Duration;

use ipnet::IpNet;

pub use acceptor::{serve, serve_with_metrics};
pub use active_request::{authenticated, caller, is_tls, peer_address, received_at};
pub(crate) use body::{BodyTimeout, BodyTooLarge};
pub use config::HttpConfig;
pub use instrument::{HttpMetrics, RequestTrace, instrument};
pub use listener::{HttpListeners, listen};

/// Limits of an HTTP port.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// Timeout for a complete request head, from when the connection is ready for it. It also
    /// closes idle connections. Protects against slow and idle clients.
    pub header_read_timeout: Duration,
    /// Timeout for the complete body, from when its handler first reads it.
    pub body_read_timeout: Duration,
    /// Timeout for a write during which the client reads nothing; over HTTP/2 for each piece of 16 KiB.
    pub write_timeout: Duration,
    /// Maximum body size in bytes. Protects memory.
    pub body_bytes: usize,
    /// Maximum number of connections, of which one organisation or network gets a quarter. A further
    /// one replaces one that has not authenticated or is idle, or receives 503. One of HTTP/2 counts as
    /// four, and its streams beyond as one or two each. Protects file descriptors and memory.
    pub connections: usize,
    /// Maximum bytes of unfinished heads above 4 KiB, of which one network gets a quarter. Protects
    /// memory.
    pub heads_bytes: usize,
    /// Maximum bytes of bodies above 16 KiB, of which one organisation or network gets a quarter.
    /// Protects memory.
    pub bodies_bytes: usize,
    /// Networks of proxies, whose connections carry many clients: they have no share, and are not
    /// replaced. Their requests are charged to the networks in `X-Forwarded-For`.
    pub trusted_proxies: Vec<IpNet>,
    /// Paths with larger limits for bodies.
    pub larger_bodies: &'static [LargerBody],
}

/// A path whose bodies may be larger than those of other paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargerBody {
    /// The path; `*` matches any one segment.
    pub path: &'static str,
    /// Maximum body size in bytes.
    pub bytes: usize,
    /// Timeout for the complete body, from when its handler first reads it.
    pub read_timeout: Duration,
}

impl LargerBody {
    fn matches(&self, path: &str) -> bool {
        let mut segments = path.split('/');
        let fits = self.path.split('/').all(|wanted| {
            segments
                .next()
                .is_some_and(|segment| wanted == "*" || wanted == segment)
        });
        fits && segments.next().is_none()
    }
}

impl HttpLimits {
    /// Returns the body size limit and the body timeout of a path.
    pub(crate) fn body(&self, path: &str) -> (usize, Duration) {
        match self
            .larger_bodies
            .iter()
            .find(|larger| larger.matches(path))
        {
            Some(larger) => (larger.bytes, larger.read_timeout),
            None => (self.body_bytes, self.body_read_timeout),
        }
    }

    /// Returns the largest body size limit of all paths.
    fn max_body_bytes(&self) -> usize {
        let larger = self.larger_bodies.iter().map(|larger| larger.bytes);
        larger.fold(self.body_bytes, usize::max)
    }
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            // One second below the 10 s within which slow clients must be disconnected.
            header_read_timeout: Duration::from_secs(9),
            body_read_timeout: Duration::from_secs(9),
            write_timeout: Duration::from_secs(30),
            body_bytes: 1024 * 1024,
            connections: 8192,
            heads_bytes: 16 * 1024 * 1024,
            bodies_bytes: 128 * 1024 * 1024,
            trusted_proxies: Vec::new(),
            larger_bodies: &[],
        }
    }
}

#[cfg(test)]
mod tests;
