//! `switchboard gateway`: the service that accepts calls over REST and MCP.

use std::process::ExitCode;

use anyhow::Context as _;
use switchboard_bus::BusConfig;
use switchboard_gateway as gateway;
use switchboard_runtime::admin::Need;
use switchboard_store::MasterKeyConfig;

use crate::{
    exit::Failure,
    http_service::{Deps, HttpService, HttpServiceArguments},
    process::{Process, Telemetry},
    stored_keys::StoredKeys,
};

/// Accepts calls over REST and MCP, using DATABASE_URL and REDIS_URL.
///
/// Prints {"event":"ready","http_url","admin_url"} on stdout when ready; logs go to stderr. Starts
/// even if Redis or Postgres is unavailable, reports that on the admin port, and becomes ready as
/// soon as Redis is reachable: callers with access tokens do not need Postgres. On SIGTERM, it
/// finishes the requests in progress and exits.
///
/// Exit codes: 0 ended normally, 1 failed, 64 invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Address of the HTTP port
    #[arg(long, env, default_value = "0.0.0.0:8080", value_name = "HOST:PORT")]
    http_listen: String,
    #[command(flatten)]
    service: HttpServiceArguments,
    #[command(flatten)]
    master_key: MasterKeyConfig,
    #[command(flatten)]
    gateway: gateway::Config,
}

pub(crate) async fn run(arguments: Arguments, telemetry: Telemetry) -> Result<ExitCode, Failure> {
    let service = HttpService {
        name: "gateway",
        configure_bus: BusConfig::watching_catalog,
        // Access tokens and cached API keys work without it.
        database: Need::Optional,
        needs_token_keys: true,
        stored_keys: StoredKeys::Read(arguments.master_key),
        document: gateway::document,
    };
    let config = arguments.gateway;
    let start = |deps: Deps, process: &Process| {
        let deps = gateway::Deps {
            store: deps.store,
            bus: deps.bus,
            authenticator: deps.authenticator,
            registry: deps.registry,
            budgets: deps.budgets,
        };
        let router = gateway::run(&config, deps, &process.stages.serving)
            .context("the gateway cannot start")?;
        Ok((router, config.http_limits()))
    };
    let listen = &arguments.http_listen;
    arguments
        .service
        .run(listen, service, telemetry, start)
        .await
}
