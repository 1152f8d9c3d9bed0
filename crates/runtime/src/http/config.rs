//! Settings of the HTTP port that all services have.

use clap::Args;
use ipnet::IpNet;

use super::HttpLimits;
use crate::{budget::Budgets, response_budget};

/// Settings of the HTTP port of a service.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "HTTP")]
#[group(skip)]
pub struct HttpConfig {
    /// Maximum bytes of all request bodies above 16 KiB at the same time, of which one organisation
    /// gets a quarter; further ones are refused. Protects memory
    #[arg(long, env, default_value_t = HttpLimits::default().bodies_bytes, value_name = "BYTES")]
    pub http_bodies_bytes: usize,

    /// Maximum bytes of all unfinished request heads above 4 KiB at the same time, 16 KiB each, of
    /// which one address gets a quarter; connections with further ones are closed. Protects memory
    #[arg(long, env, default_value_t = HttpLimits::default().heads_bytes, value_name = "BYTES")]
    pub http_heads_bytes: usize,

    /// Maximum bytes of all large responses that clients have not read yet, of which one
    /// organisation gets a quarter; further pages of lists are refused, and slow readers are closed.
    /// Protects memory
    #[arg(
        long,
        env,
        default_value_t = response_budget::DEFAULT_CAPACITY_BYTES,
        value_name = "BYTES"
    )]
    pub http_responses_bytes: usize,

    /// Networks of HTTP proxies and balancers, such as `10.0.0.0/8`. A connection from there
    /// carries many clients: it is exempt from the limits of one address and is never closed in
    /// favour of another one. Its requests count for the last address of `X-Forwarded-For` that is
    /// not in these networks
    #[arg(long, env, value_delimiter = ',', value_name = "NETWORK,…")]
    pub http_trusted_proxies: Vec<IpNet>,
}

impl HttpConfig {
    /// Creates the budgets that the services and the HTTP server share. Before any of them starts.
    pub fn create_budgets(&self, budgets: &Budgets) {
        let _ = response_budget::budget(budgets, self.http_responses_bytes);
    }

    /// Returns `limits` with these settings.
    #[must_use]
    pub fn apply(&self, limits: HttpLimits) -> HttpLimits {
        HttpLimits {
            bodies_bytes: self.http_bodies_bytes,
            heads_bytes: self.http_heads_bytes,
            trusted_proxies: self.http_trusted_proxies.clone(),
            ..limits
        }
    }
}
