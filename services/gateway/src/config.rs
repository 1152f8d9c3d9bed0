//! The settings of the gateway. Addresses and secrets belong to the process.

use std::{num::NonZeroU32, time::Duration};

use clap::Args;
use switchboard_runtime::http::HttpLimits;

use crate::mcp::{AllowedHost, AllowedOrigin};

/// The limits of the HTTP port, of calls and of MCP clients.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Gateway")]
#[group(skip)]
pub struct Config {
    /// Time for a client to send the head of a request, and to leave a connection idle; protects
    /// against slow and abandoned clients
    #[arg(long, env, default_value_t = 9_000, value_name = "MS")]
    pub http_header_timeout_ms: u64,

    /// Time for a client to send the body of a request; protects against slow clients
    #[arg(long, env, default_value_t = 9_000, value_name = "MS")]
    pub http_body_timeout_ms: u64,

    /// Time for a client to accept the next bytes of a response; protects against clients that
    /// stop reading
    #[arg(long, env, default_value_t = 30_000, value_name = "MS")]
    pub http_write_timeout_ms: u64,

    /// Maximum size of a request body; protects memory
    #[arg(long, env, default_value_t = 1_048_576, value_name = "BYTES")]
    pub http_body_limit_bytes: usize,

    /// Maximum number of HTTP connections, of which one organisation or address gets a quarter. A
    /// further one replaces one that has not authenticated or is idle, or receives 503; protects file
    /// descriptors and memory
    #[arg(long, env, default_value_t = 8_192, value_name = "COUNT")]
    pub http_connections: usize,

    /// Maximum size of the params of a call, at most the size of a frame to a device; protects the
    /// bus and the devices
    #[arg(long, env, default_value_t = 262_144, value_name = "BYTES")]
    pub params_limit_bytes: usize,

    /// Public URL of this server, such as `https://devices.example.com`. MCP clients without a
    /// token are referred to it, and its host is allowed in requests. Without it, the host of the
    /// request is used if it is allowed
    #[arg(long, env, value_name = "URL")]
    pub public_url: Option<http::Uri>,

    /// Further hosts that MCP requests may name, with an optional port, or `*` for any host.
    /// Loopback and the host of --public-url are always allowed. Protects a server on a laptop from
    /// DNS rebinding
    #[arg(long, env, value_delimiter = ',', value_name = "HOST,…")]
    pub mcp_allowed_hosts: Vec<AllowedHost>,

    /// Origins of web pages that may send MCP requests (CORS), such as
    /// `https://app.example.com:443`; without a port, or with `:*`, for any port. By default
    /// requests from web pages are refused
    #[arg(long, env, value_delimiter = ',', value_name = "ORIGIN,…")]
    pub mcp_allowed_origins: Vec<AllowedOrigin>,

    /// Authorization servers to which MCP clients are referred; they must issue the tokens of this
    /// installation
    #[arg(long, env, value_delimiter = ',', value_name = "URL,…")]
    pub mcp_authorization_servers: Vec<String>,

    /// Maximum number of open notification streams and streams of events per API key or token subject;
    /// protects connections and memory
    #[arg(long, env, default_value_t = 32, value_name = "COUNT")]
    pub mcp_listeners_per_caller: usize,

    /// Maximum number of resources in one `subscriptions/listen`; protects memory
    #[arg(long, env, default_value_t = 256, value_name = "COUNT")]
    pub mcp_resources_per_listener: usize,

    /// Maximum bytes of the stored pictures in unread responses over MCP; half for each organisation;
    /// further responses wait for 5 s, then they are refused; protects memory
    #[arg(long, env, default_value_t = 50_331_648, value_name = "BYTES")]
    pub mcp_pictures_bytes: usize,

    /// Sustained rate of requests per API key or token subject; protects other callers
    #[arg(long, env, default_value = "5000", value_name = "COUNT")]
    pub caller_rate_per_s: NonZeroU32,

    /// Burst of requests per API key or token subject
    #[arg(long, env, default_value = "10000", value_name = "COUNT")]
    pub caller_burst: NonZeroU32,

    /// Sustained rate of requests of one organisation, of all its API keys and token subjects;
    /// protects other organisations
    #[arg(long, env, default_value = "10000", value_name = "COUNT")]
    pub org_rate_per_s: NonZeroU32,

    /// Burst of requests of one organisation
    #[arg(long, env, default_value = "20000", value_name = "COUNT")]
    pub org_burst: NonZeroU32,

    /// Sustained rate of calls to one device, from all callers; protects the device
    #[arg(long, env, default_value = "1000", value_name = "COUNT")]
    pub called_device_rate_per_s: NonZeroU32,

    /// Burst of calls to one device
    #[arg(long, env, default_value = "2000", value_name = "COUNT")]
    pub called_device_burst: NonZeroU32,

    /// Maximum number of asynchronous calls in flight on this node, and of queues of queued calls;
    /// a quarter for each organisation; further asynchronous calls are refused, queued ones wait;
    /// protects memory
    #[arg(long, env, default_value_t = 4_096, value_name = "COUNT")]
    pub kept_calls_under_way: u16,

    /// Maximum bytes of the params above 4 KiB of asynchronous and queued calls in flight; a quarter
    /// for each organisation; further asynchronous calls are refused, queued ones wait
    #[arg(long, env, default_value_t = 67_108_864, value_name = "BYTES")]
    pub call_params_bytes: usize,

    /// Maximum number of calls in flight on this node whose callers read their progress as a stream
    /// of events; a quarter for each organisation; further ones are refused; protects memory
    #[arg(long, env, default_value_t = 256, value_name = "COUNT")]
    pub call_streams: u16,

    /// Maximum number of group calls in flight on this node; a quarter for each organisation; further ones
    /// are refused; protects the bus and memory
    #[arg(long, env, default_value_t = 32, value_name = "COUNT")]
    pub group_calls: u16,

    /// Maximum number of clients of this node that read what happens in their organisation as a stream
    /// of events; a quarter for each organisation; further ones are refused; protects memory
    #[arg(long, env, default_value_t = 256, value_name = "COUNT")]
    pub event_streams: u16,

    /// Maximum number of calls queued for one device; protects the database
    #[arg(long, env, default_value_t = 1_000, value_name = "COUNT")]
    pub queued_calls_per_device: u32,

    /// Maximum number of calls queued in one organisation; protects the database
    #[arg(long, env, default_value_t = 10_000, value_name = "COUNT")]
    pub queued_calls_per_org: u32,

    /// Interval between two sweeps of all queues, which also end expired calls
    #[arg(
        long,
        env,
        default_value_t = 5_000,
        value_parser = clap::value_parser!(u64).range(50..=600_000),
        value_name = "MS"
    )]
    pub queue_sweep_ms: u64,
}

impl Config {
    /// The limits of the HTTP port, for the process that serves the routes.
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
