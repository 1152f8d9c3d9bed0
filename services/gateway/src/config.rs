//! What can be set about the gateway.
//! Never: an address or a secret; those belong to the process.

use std::time::Duration;

use clap::Args;
use switchboard_runtime::http::HttpLimits;

/// The limits of the HTTP port and of a call.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Gateway")]
#[group(skip)]
pub struct Config {
    /// Time for a request's head, and for an idle connection; protects against clients that dribble or forget
    #[arg(
        long,
        env = "SWITCHBOARD_HTTP_HEADER_TIMEOUT_MS",
        default_value_t = 9_000,
        value_name = "MS"
    )]
    pub http_header_timeout_ms: u64,

    /// Time for a request's whole body; protects against clients that dribble
    #[arg(
        long,
        env = "SWITCHBOARD_HTTP_BODY_TIMEOUT_MS",
        default_value_t = 9_000,
        value_name = "MS"
    )]
    pub http_body_timeout_ms: u64,

    /// Time for a client to take some bytes of its answer; protects against clients that do not read
    #[arg(
        long,
        env = "SWITCHBOARD_HTTP_WRITE_TIMEOUT_MS",
        default_value_t = 30_000,
        value_name = "MS"
    )]
    pub http_write_timeout_ms: u64,

    /// Largest request body; protects memory
    #[arg(
        long,
        env = "SWITCHBOARD_HTTP_BODY_LIMIT_BYTES",
        default_value_t = 1_048_576,
        value_name = "BYTES"
    )]
    pub http_body_limit_bytes: usize,

    /// Most HTTP connections at a time, those beyond are answered 503; protects file descriptors and memory
    #[arg(
        long,
        env = "SWITCHBOARD_HTTP_CONNECTIONS",
        default_value_t = 8_192,
        value_name = "COUNT"
    )]
    pub http_connections: usize,

    /// Largest params of a call, as large as a frame to a device can be; protects the bus and the devices
    #[arg(
        long,
        env = "SWITCHBOARD_PARAMS_LIMIT_BYTES",
        default_value_t = 262_144,
        value_name = "BYTES"
    )]
    pub params_limit_bytes: usize,
}

impl Config {
    /// The limits of the HTTP port, for whoever serves the router.
    #[must_use]
    pub fn http_limits(&self) -> HttpLimits {
        HttpLimits {
            header_read_timeout: Duration::from_millis(self.http_header_timeout_ms),
            body_read_timeout: Duration::from_millis(self.http_body_timeout_ms),
            write_timeout: Duration::from_millis(self.http_write_timeout_ms),
            body_bytes: self.http_body_limit_bytes,
            connections: self.http_connections,
        }
    }
}
