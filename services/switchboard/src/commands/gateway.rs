//! `switchboard gateway`: calls over HTTP, over Redis and Postgres.
//! Never: state of its own; any replica serves any request.

use std::process::ExitCode;

use anyhow::Context as _;
use axum::Router;
use switchboard_bus::BusConfig;
use switchboard_runtime::{admin::Need, http::HttpLimits};

use crate::{
    arguments,
    exit::Failure,
    http_service::{HttpServiceArguments, Kind, Parts},
    process::{Process, Telemetry},
};

/// Takes calls over HTTP, against DATABASE_URL and REDIS_URL.
///
/// Prints {"event":"ready","http_url","admin_url"} on stdout when it can serve; logs go to stderr.
/// Starts while Redis or Postgres is away, says so on the admin port, and serves when Redis is there:
/// callers with access tokens need no Postgres. Ends on SIGTERM, when requests under way are answered.
///
/// Exit codes: 0 ended as asked, 1 failed, 64 wrong settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Where callers are served
    #[arg(
        long,
        env = "SWITCHBOARD_HTTP_LISTEN",
        default_value = "0.0.0.0:8080",
        value_name = "HOST:PORT"
    )]
    http_listen: String,
    #[command(flatten)]
    service: HttpServiceArguments,
    #[command(flatten)]
    gateway: switchboard_gateway::Config,
}

pub(crate) async fn run(arguments: Arguments, telemetry: Telemetry) -> Result<ExitCode, Failure> {
    let kind = Kind {
        name: "gateway",
        on_bus: BusConfig::following_offers,
        // Calls with access tokens, and with keys used lately, go on without it.
        database: Need::Helpful,
    };
    let serve = |process: &Process, parts| serve(&arguments.gateway, process, parts);
    let service = arguments.service;
    service
        .run(&arguments.http_listen, kind, telemetry, serve)
        .await
}

fn serve(
    gateway: &switchboard_gateway::Config,
    process: &Process,
    parts: Parts,
) -> Result<(Router, HttpLimits), Failure> {
    arguments::watch_trust(&parts.bus, &process.readiness);
    let router = switchboard_gateway::router(
        gateway,
        parts.store,
        parts.bus,
        parts.authenticator,
        &process.registry,
        &process.stages.serving,
    )
    .context("the gateway's metrics cannot be registered")?;
    let router = router.merge(switchboard_gateway::document().routes());
    Ok((router, gateway.http_limits()))
}
