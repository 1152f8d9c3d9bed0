//! `switchboard control`: the service that manages organisations, keys, tokens and settings.

use std::process::ExitCode;

use anyhow::Context as _;
use switchboard_control as control;
use switchboard_runtime::{admin::Need, http::HttpLimits};
use switchboard_store::MasterKeyConfig;

use crate::{
    exit::Failure,
    http_service::{Deps, HttpService, HttpServiceArguments},
    process::{Process, Telemetry},
    stored_keys::StoredKeys,
};

/// Manages organisations, keys, tokens and settings, using DATABASE_URL and REDIS_URL.
///
/// Prints {"event":"ready","http_url","admin_url"} on stdout when ready; logs go to stderr. Starts
/// even if Redis or Postgres is unavailable, reports that on the admin port, and becomes ready when
/// both are reachable. The database schema must be current: see `switchboard migrate`.
///
/// Exit codes: 0 ended normally, 1 failed, 64 invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Address of the HTTP port
    #[arg(long, env, default_value = "0.0.0.0:8081", value_name = "HOST:PORT")]
    http_listen: String,
    /// Port that devices dial on the host of the API; the console shows it
    #[arg(long, env, default_value_t = 7700, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    device_port: u16,
    #[command(flatten)]
    service: HttpServiceArguments,
    #[command(flatten)]
    master_key: MasterKeyConfig,
    #[command(flatten)]
    control: control::Config,
}

pub(crate) async fn run(arguments: Arguments, telemetry: Telemetry) -> Result<ExitCode, Failure> {
    let service = HttpService {
        name: "control",
        configure_bus: std::convert::identity,
        database: Need::Required,
        needs_token_keys: false,
        stored_keys: StoredKeys::Own(arguments.master_key),
        document: control::document(),
    };
    let config = arguments.control;
    let start = |deps: Deps, process: &Process| {
        let deps = control::Deps {
            store: deps.store,
            bus: deps.bus,
            authenticator: deps.authenticator,
            registry: deps.registry,
            budgets: deps.budgets,
            public_keys: control::PublicKeys::default(),
            sign_in_code: None,
            device_port: arguments.device_port,
        };
        let router = control::run(&config, deps, &process.stages.background)
            .context("the control plane cannot start")?;
        let limits = HttpLimits {
            larger_bodies: control::LARGER_BODIES,
            ..HttpLimits::default()
        };
        Ok((router, limits))
    };
    let listen = &arguments.http_listen;
    arguments
        .service
        .run(listen, service, telemetry, start)
        .await
}
