//! `switchboard gateway`: calls over HTTP, over Redis and Postgres.
//! Never: state of its own; any replica serves any request.

use std::process::ExitCode;

use anyhow::Context as _;
use switchboard_identity::Authenticator;
use switchboard_runtime::admin::Need;
use tokio::net::TcpListener;

use crate::{
    arguments::{self, AdminArguments, DrainArguments},
    exit::Failure,
    process::{self, Process, Ready},
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
    gateway: switchboard_gateway::Config,
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
    let bus = arguments::bus_config(&arguments.bus, "gateway")?.following_offers();
    let bus = arguments::start_bus(bus, &process.registry, &process.stages.bus)?;
    arguments::watch_bus("redis", &bus, &process.readiness);
    arguments::watch_trust(&bus, &process.readiness);
    // Calls with access tokens, and with keys used lately, go on without it.
    arguments::watch_database(&store, Need::Helpful, process);
    arguments::watch_objects(&store, process);
    let authenticator = Authenticator::new(store.clone(), bus.clone());
    let gateway = &arguments.gateway;
    let router = switchboard_gateway::router(
        gateway,
        store,
        bus.clone(),
        authenticator,
        &process.registry,
        &process.stages.serving,
    )
    .context("the gateway's metrics cannot be registered")?;
    let router = router.merge(switchboard_gateway::document().routes());
    process.serve_http(http, router, gateway.http_limits());
    arguments::await_bus(&bus).await;
    Ok(ready)
}
