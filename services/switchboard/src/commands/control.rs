//! `switchboard control`: settings, keys and tokens over HTTP, over Redis and Postgres.
//! Never: a call to a device.

use std::process::ExitCode;

use anyhow::Context as _;
use switchboard_identity::Authenticator;
use switchboard_runtime::{admin::Need, http::HttpLimits};
use tokio::net::TcpListener;

use crate::{
    arguments::{self, AdminArguments, DrainArguments},
    exit::Failure,
    process::{self, Process, Ready},
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
    admin: AdminArguments,
    #[command(flatten)]
    database: switchboard_store::Config,
    #[command(flatten)]
    objects: switchboard_store::ObjectsConfig,
    #[command(flatten)]
    bus: switchboard_bus::Config,
    #[command(flatten)]
    drain: DrainArguments,
    #[command(flatten)]
    control: switchboard_control::Config,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let admin = process::listen("--admin-listen", &arguments.admin.admin_listen)?;
    let http = process::listen("--http-listen", &arguments.http_listen)?;
    process::raise_file_limit();
    let admin_url = process::url(&admin)?;
    let process = Process::begin(admin);
    let own = process.clone();
    process
        .run(arguments.drain.within(), async move {
            start(arguments, http, &own, admin_url).await
        })
        .await
}

async fn start(
    arguments: Arguments,
    http: TcpListener,
    process: &Process,
    admin_url: String,
) -> Result<Ready, Failure> {
    let ready = Ready {
        http_url: Some(process::url(&http)?),
        admin_url,
        ..Ready::default()
    };
    let store = arguments::open_store_with_objects(&arguments.database, &arguments.objects)?;
    let bus = arguments::bus_config(&arguments.bus, "control")?;
    let bus = arguments::start_bus(bus, &process.registry, &process.stages.bus)?;
    arguments::watch_bus("redis", &bus, &process.readiness);
    let mut database = arguments::watch_database(&store, Need::Required, process);
    arguments::watch_objects(&store, process);
    let control = &arguments.control;
    let (registry, background) = (&process.registry, &process.stages.background);
    let taken = "the control plane's metrics cannot be registered";
    switchboard_control::start(control, store.clone(), bus.clone(), registry, background)
        .context(taken)?;
    let authenticator = Authenticator::new(store.clone(), bus.clone());
    let router = switchboard_control::router(control, store, bus.clone(), authenticator, registry)
        .context(taken)?;
    let router = router.merge(switchboard_control::document().routes());
    let limits = HttpLimits {
        larger_bodies: switchboard_control::LARGER_BODIES,
        ..HttpLimits::default()
    };
    process.serve_http(http, router, limits);
    arguments::await_bus(&bus).await;
    arguments::await_database(&mut database).await;
    Ok(ready)
}
