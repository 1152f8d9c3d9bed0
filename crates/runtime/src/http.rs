//! HTTP/1 serving with the limits that `axum::serve` does not set: time for headers and bodies, size, number.
//! Never: a connection without a deadline, or an accept error that ends the listener.

mod acceptor;
mod body;
mod connection;
mod listener;
mod observed;
mod stream;

use std::time::Duration;

pub use acceptor::{serve, serve_counted};
pub(crate) use body::BodyTimeout;
pub use listener::listen;
pub use observed::{HttpMetrics, RequestTrace, observed};

/// What one HTTP port takes from its clients.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// A request's head must be complete this long after the connection was ready for it; an idle
    /// connection is closed by the same clock. Protects against clients that dribble or forget.
    pub header_read_timeout: Duration,
    /// The whole body must have arrived this long after the head.
    pub body_read_timeout: Duration,
    /// The client must take some bytes of its answer at least this often.
    pub write_timeout: Duration,
    /// The largest body, in bytes. Protects memory.
    pub body_bytes: usize,
    /// The most connections at a time; those beyond are answered 503. Protects file descriptors.
    pub connections: usize,
    /// Paths whose bodies may be larger and slower than the others'.
    pub larger_bodies: &'static [LargerBody],
}

/// A path whose bodies are larger than the port's others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargerBody {
    /// This path, in which `*` stands for any one segment.
    pub path: &'static str,
    /// The largest body, in bytes.
    pub bytes: usize,
    /// The whole body must have arrived this long after the head.
    pub read_timeout: Duration,
}

impl LargerBody {
    fn means(&self, path: &str) -> bool {
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
    /// How many bytes the body of a request for this path may have, and how long it may take.
    pub(crate) fn body(&self, path: &str) -> (usize, Duration) {
        match self.larger_bodies.iter().find(|larger| larger.means(path)) {
            Some(larger) => (larger.bytes, larger.read_timeout),
            None => (self.body_bytes, self.body_read_timeout),
        }
    }
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            // A second less than the ten within which a client that dribbles must be gone.
            header_read_timeout: Duration::from_secs(9),
            body_read_timeout: Duration::from_secs(9),
            write_timeout: Duration::from_secs(30),
            body_bytes: 1024 * 1024,
            connections: 8192,
            larger_bodies: &[],
        }
    }
}

#[cfg(test)]
mod tests;
