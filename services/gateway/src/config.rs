//! What can be set about the gateway.
//! Never: an address or a secret; those belong to the process.

use std::{num::NonZeroU32, time::Duration};

use clap::Args;
use switchboard_runtime::http::HttpLimits;

use crate::mcp::{AllowedHost, AllowedOrigin};

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

    /// Where callers find this server, like `https://devices.example.com`: told to MCP clients that have no token,
    /// and its host is taken as ours. Unset, the host that a client named is repeated, if it is one that it may name
    #[arg(long, env = "SWITCHBOARD_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<http::Uri>,

    /// Further hosts that MCP requests may name, with or without a port, or `*` for any; loopback and that of
    /// --public-url always may. Protects servers on a laptop from web pages that pretend to be local
    #[arg(
        long,
        env = "SWITCHBOARD_MCP_ALLOWED_HOSTS",
        value_delimiter = ',',
        value_name = "HOST,…"
    )]
    pub mcp_allowed_hosts: Vec<AllowedHost>,

    /// Web origins whose pages may send MCP requests and read the answers (CORS), like `https://app.example.com:443`,
    /// with `:*` or without a port for any port; without any, requests that come from a page are refused
    #[arg(
        long,
        env = "SWITCHBOARD_MCP_ALLOWED_ORIGINS",
        value_delimiter = ',',
        value_name = "ORIGIN,…"
    )]
    pub mcp_allowed_origins: Vec<AllowedOrigin>,

    /// Authorization servers that MCP clients are pointed to; they must issue this installation's tokens
    #[arg(
        long,
        env = "SWITCHBOARD_MCP_AUTHORIZATION_SERVERS",
        value_delimiter = ',',
        value_name = "URL,…"
    )]
    pub mcp_authorization_servers: Vec<String>,

    /// Streams of notifications that one API key or token subject may have open; protects connections and memory
    #[arg(
        long,
        env = "SWITCHBOARD_MCP_LISTENERS_PER_CALLER",
        default_value_t = 32,
        value_name = "COUNT"
    )]
    pub mcp_listeners_per_caller: usize,

    /// Resources that one `subscriptions/listen` may follow; protects memory
    #[arg(
        long,
        env = "SWITCHBOARD_MCP_RESOURCES_PER_LISTENER",
        default_value_t = 256,
        value_name = "COUNT"
    )]
    pub mcp_resources_per_listener: usize,

    /// Requests that one API key or token subject may send in the long run; protects everybody else
    #[arg(
        long,
        env = "SWITCHBOARD_CALLER_RATE_PER_S",
        default_value = "5000",
        value_name = "COUNT"
    )]
    pub caller_rate_per_s: NonZeroU32,

    /// Requests that it may send at once after a pause
    #[arg(
        long,
        env = "SWITCHBOARD_CALLER_BURST",
        default_value = "10000",
        value_name = "COUNT"
    )]
    pub caller_burst: NonZeroU32,

    /// Calls that one device gets in the long run, from all callers; protects the device
    #[arg(
        long,
        env = "SWITCHBOARD_CALLED_DEVICE_RATE_PER_S",
        default_value = "1000",
        value_name = "COUNT"
    )]
    pub called_device_rate_per_s: NonZeroU32,

    /// Calls that it gets at once after a pause
    #[arg(
        long,
        env = "SWITCHBOARD_CALLED_DEVICE_BURST",
        default_value = "2000",
        value_name = "COUNT"
    )]
    pub called_device_burst: NonZeroU32,

    /// Calls without a waiting caller (async, or taken from a queue) that this node may have under way, further ones are
    /// refused or wait; protects memory
    #[arg(
        long,
        env = "SWITCHBOARD_KEPT_CALLS_UNDER_WAY",
        default_value_t = 4_096,
        value_name = "COUNT"
    )]
    pub kept_calls_under_way: u16,

    /// Calls that may wait for one device; protects the database
    #[arg(
        long,
        env = "SWITCHBOARD_QUEUED_CALLS_PER_DEVICE",
        default_value_t = 1_000,
        value_name = "COUNT"
    )]
    pub queued_calls_per_device: u32,

    /// Calls that may wait in one organisation; protects the database
    #[arg(
        long,
        env = "SWITCHBOARD_QUEUED_CALLS_PER_ORG",
        default_value_t = 10_000,
        value_name = "COUNT"
    )]
    pub queued_calls_per_org: u32,

    /// Between two looks at queues whose devices nobody told of, and for calls that have expired
    #[arg(
        long,
        env = "SWITCHBOARD_QUEUE_SWEEP_MS",
        default_value_t = 5_000,
        value_parser = clap::value_parser!(u64).range(50..=600_000),
        value_name = "MS"
    )]
    pub queue_sweep_ms: u64,
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
            ..HttpLimits::default()
        }
    }
}
