//! `switchboard edge`: the service that terminates device connections. It does not use Postgres.

use std::process::ExitCode;

use switchboard_edge::Listeners;

use crate::{
    arguments::{self, AdminArguments, DrainArguments},
    exit::Failure,
    process::{self, Process, Ready, Telemetry},
    tls::TlsArguments,
};

/// Terminates device connections, using REDIS_URL.
///
/// Prints {"event":"ready","device_addr","tls_addr","admin_url"} on stdout when ready; logs go to
/// stderr. Starts even if Redis is unavailable, reports that on the admin port, and becomes ready
/// when it is reachable. On SIGTERM, asks devices to reconnect elsewhere, finishes the calls in
/// progress and exits.
///
/// Exit codes: 0 ended normally, 1 failed, 64 invalid settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Address of the device port
    #[arg(long, env, default_value = "0.0.0.0:7700", value_name = "HOST:PORT")]
    device_listen: String,
    #[command(flatten)]
    tls: TlsArguments,
    #[command(flatten)]
    admin: AdminArguments,
    #[command(flatten)]
    bus: switchboard_bus::Config,
    #[command(flatten)]
    drain: DrainArguments,
    #[command(flatten)]
    edge: switchboard_edge::Config,
}

pub(crate) async fn run(arguments: Arguments, telemetry: Telemetry) -> Result<ExitCode, Failure> {
    let admin = process::listen("--admin-listen", &arguments.admin.admin_listen)?;
    let plain = process::listen("--device-listen", &arguments.device_listen)?;
    let listeners = Listeners {
        plain,
        tls: arguments.tls.listen()?,
    };
    let drain = arguments.drain.drain();
    let start = async |process: &Process| start(arguments, listeners, process).await;
    Process::begin(admin, telemetry)?.run(drain, start).await
}

async fn start(
    arguments: Arguments,
    listeners: Listeners,
    process: &Process,
) -> Result<Ready, Failure> {
    let ready = Ready {
        device_addr: Some(process::reachable(&listeners.plain)?.to_string()),
        tls_addr: process::tls_addr(&listeners)?,
        ..process.ready()
    };
    let bus = arguments::connect_bus(arguments::bus_config(&arguments.bus, "edge")?, process)?;
    arguments::watch_token_keys(&bus, &process.readiness);
    process.serve_devices(listeners, &arguments.edge, &bus)?;
    arguments::await_bus(&bus).await;
    Ok(ready)
}
