//! Settings of the HTTP port that all services have.

use clap::Args;
use ipnet::IpNet;

use super::HttpLimits;

/// Settings of the HTTP port of a service.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "HTTP")]
#[group(skip)]
pub struct HttpConfig {
    /// Maximum bytes of all request bodies above 16 KiB at the same time, of which one organisation
    /// gets a quarter; further ones are refused. Protects memory
    #[arg(long, env, default_value_t = HttpLimits::default().bodies_bytes, value_name = "BYTES")]
    pub http_bodies_bytes: usize,

    /// Networks of HTTP proxies and balancers, such as `10.0.0.0/8`. A connection from there
    /// carries many clients: it is exempt from the limits of one address and is never closed in
    /// favour of another one
    #[arg(long, env, value_delimiter = ',', value_name = "NETWORK,…")]
    pub http_trusted_proxies: Vec<IpNet>,
}

impl HttpConfig {
    /// Returns `limits` with these settings.
    #[must_use]
    pub fn apply(&self, limits: HttpLimits) -> HttpLimits {
        HttpLimits {
            bodies_bytes: self.http_bodies_bytes,
            trusted_proxies: self.http_trusted_proxies.clone(),
            ..limits
        }
    }
}
