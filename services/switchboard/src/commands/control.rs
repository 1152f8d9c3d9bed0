//! `switchboard control`: settings, keys and tokens over HTTP, over Redis and Postgres.
//! Never: a call to a device.

use std::process::ExitCode;

use anyhow::Context as _;
use axum::Router;
use switchboard_runtime::{admin::Need, http::HttpLimits};

use crate::{
    exit::Failure,
    http_service::{HttpServiceArguments, Kind, Parts},
    process::{Process, Telemetry},
};

/// Serves organisations, keys, tokens, settings and registrations, against DATABASE_URL and REDIS_URL.
///
/// Prints {"event":"ready","http_url","admin_url"} on stdout when it can serve; logs go to stderr.
/// Starts while Redis or Postgres is away, says so on the admin port, and serves when they are there.
/// The database must be up to date: see `switchboard migrate`.
///
/// Exit codes: 0 ended as asked, 1 failed, 64 wrong settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Where the API is served
    #[arg(
        long,
        env = "SWITCHBOARD_HTTP_LISTEN",
        default_value = "0.0.0.0:8081",
        value_name = "HOST:PORT"
    )]
    http_listen: String,
    #[command(flatten)]
    service: HttpServiceArguments,
    #[command(flatten)]
    control: switchboard_control::Config,
}

pub(crate) async fn run(arguments: Arguments, telemetry: Telemetry) -> Result<ExitCode, Failure> {
    let kind = Kind {
        name: "control",
        on_bus: std::convert::identity,
        database: Need::Required,
    };
    let serve = |process: &Process, parts| serve(&arguments.control, process, parts);
    let service = arguments.service;
    service
        .run(&arguments.http_listen, kind, telemetry, serve)
        .await
}

fn serve(
    control: &switchboard_control::Config,
    process: &Process,
    parts: Parts,
) -> Result<(Router, HttpLimits), Failure> {
    let Parts {
        store,
        bus,
        authenticator,
    } = parts;
    let (registry, background) = (&process.registry, &process.stages.background);
    let taken = "the control plane's metrics cannot be registered";
    switchboard_control::start(control, store.clone(), bus.clone(), registry, background)
        .context(taken)?;
    let router =
        switchboard_control::router(control, store, bus, authenticator, registry).context(taken)?;
    let router = router.merge(switchboard_control::document().routes());
    let limits = HttpLimits {
        larger_bodies: switchboard_control::LARGER_BODIES,
        ..HttpLimits::default()
    };
    Ok((router, limits))
}
