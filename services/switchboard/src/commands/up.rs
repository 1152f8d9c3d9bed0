//! `switchboard up`: everything in one process, nothing to configure.
//! Never: a service of its own; it wires the same ones that run alone.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context as _;
use secrecy::SecretString;
use switchboard_bus::{Bus, BusConfig, LocalHub};
use switchboard_edge::Listeners;
use switchboard_embeddings::{Endpoint, Questions};
use switchboard_identity::Authenticator;
use switchboard_protocol::id::OrgId;
use switchboard_runtime::{admin::Need, http::HttpLimits};
use switchboard_store::{Objects, Store};
use tokio::net::TcpListener;

use crate::{
    arguments::{self, DataArguments, DrainArguments},
    data_folder::{DataFolder, Instance},
    exit::Failure,
    postgres::{self, PostgresError},
    process::{self, Process, Ready, Telemetry},
    tls::TlsArguments,
};

/// How long publishing the first keys may take.
const TRUST_WITHIN: Duration = Duration::from_secs(10);

/// Runs everything in one process: device port, calls over HTTP, conversations, settings, and a private Postgres.
///
/// Prints {"event":"ready","device_addr","http_url","admin_url","org_id","api_key"} on stdout when it
/// can serve; everything else goes to stderr. The API key is made at the first start and kept, with
/// the database, in --data-dir; `switchboard device`, `call` and `token` find it there.
///
/// The private Postgres listens on a socket that only its user can reach. It is not started when
/// DATABASE_URL is given. Under root it runs as the user `postgres` (else `nobody`), and when that
/// user cannot reach --data-dir, its data lie in /var/lib/switchboard, with a link to them.
///
/// Exit codes: 0 ended as asked, 1 failed, 64 wrong settings, 69 no PostgreSQL on this machine.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: DataArguments,
    /// Where devices dial in; 0.0.0.0:7700 lets them in from other machines
    #[arg(
        long,
        env = "SWITCHBOARD_DEVICE_LISTEN",
        default_value = "127.0.0.1:7700",
        value_name = "HOST:PORT"
    )]
    device_listen: String,
    /// Where callers are served and settings made
    #[arg(
        long,
        env = "SWITCHBOARD_HTTP_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "HOST:PORT"
    )]
    http_listen: String,
    /// Admin port: /healthz, /readyz, /metrics; not meant for the outside
    #[arg(
        long,
        env = "SWITCHBOARD_ADMIN_LISTEN",
        default_value = "127.0.0.1:9600",
        value_name = "HOST:PORT"
    )]
    admin_listen: String,
    #[command(flatten)]
    tls: TlsArguments,
    /// Where PostgreSQL's programs are (`postgres`, `initdb`), instead of on PATH and in the usual places
    #[arg(long, env = "SWITCHBOARD_POSTGRES_BIN_DIR", value_name = "FOLDER")]
    postgres_bin_dir: Option<PathBuf>,
    #[command(flatten)]
    database: switchboard_store::Config,
    #[command(flatten)]
    objects: switchboard_store::ObjectsConfig,
    #[command(flatten)]
    drain: DrainArguments,
    #[command(flatten)]
    edge: switchboard_edge::Config,
    #[command(flatten)]
    gateway: switchboard_gateway::Config,
    #[command(flatten)]
    control: switchboard_control::Config,
    #[command(flatten)]
    chat: switchboard_chat::Config,
}

/// What was bound before anything was started.
struct Ports {
    devices: Listeners,
    http: TcpListener,
}

pub(crate) async fn run(arguments: Arguments, telemetry: Telemetry) -> Result<ExitCode, Failure> {
    let folder = DataFolder::open(&arguments.data.path()?)?;
    let admin = process::listen("--admin-listen", &arguments.admin_listen)?;
    let plain = process::listen("--device-listen", &arguments.device_listen)?;
    let ports = Ports {
        devices: Listeners {
            plain,
            tls: arguments.tls.listen()?,
        },
        http: process::listen("--http-listen", &arguments.http_listen)?,
    };
    let drain = arguments.drain.drain();
    let start = async |process: &Process| start(arguments, ports, &folder, process).await;
    Process::begin(admin, telemetry)?.run(drain, start).await
}

async fn start(
    mut arguments: Arguments,
    ports: Ports,
    folder: &DataFolder,
    process: &Process,
) -> Result<Ready, Failure> {
    let mut instance = folder.instance()?.unwrap_or_else(Instance::new);
    // Kept before the key is used anywhere: a crash in between does not orphan what it opens.
    folder.keep(&instance)?;
    let api_key = SecretString::from(instance.api_key.as_str());
    let store = open_store(&mut arguments, folder, process).await?;
    arguments::count_questions(&store, process)?;
    let org = prepare(&store, &api_key, process).await?;

    let ready = Ready {
        device_addr: Some(process::reachable(&ports.devices.plain)?.to_string()),
        tls_addr: process::tls_addr(&ports.devices)?,
        http_url: Some(process::url(&ports.http)?),
        org_id: Some(org.to_string()),
        api_key: Some(instance.api_key.clone()),
        ..process.ready()
    };
    if arguments.control.operator_key.is_none() {
        arguments.control.operator_key = Some(instance.operator_key.as_str().into());
    }
    let bus = serve(arguments, ports, store, process)?;
    // The first device may dial in as soon as it reads the line: its token must be checkable.
    bus.trusted(TRUST_WITHIN)
        .await
        .context("the keys that sign tokens were not published")?;
    instance.describe(&ready);
    folder.keep(&instance)?;
    Ok(ready)
}

/// Starts the private Postgres, unless a database was given. Pictures are kept in the data folder, unless a place for
/// them was given.
async fn open_store(
    arguments: &mut Arguments,
    folder: &DataFolder,
    process: &Process,
) -> Result<Store, Failure> {
    if arguments.database.database_url.is_none() {
        let binaries = arguments.postgres_bin_dir.as_deref();
        let started = postgres::start(folder.path(), binaries, &process.stages.database).await;
        let url = started.map_err(|error| match error {
            PostgresError::NotFound => Failure::unavailable(error),
            _ => Failure::general(error),
        })?;
        arguments.database.database_url = Some(url);
    }
    let store = arguments::open_store_with_objects(&arguments.database, &arguments.objects)?;
    if store.objects().is_some() {
        return Ok(store);
    }
    let objects = Objects::in_folder(&folder.path().join("objects")).map_err(Failure::general)?;
    Ok(store.with_objects(Some(objects)))
}

/// Waits for the database, brings it up to date and makes sure that the key opens an organisation.
async fn prepare(
    store: &Store,
    api_key: &SecretString,
    process: &Process,
) -> Result<OrgId, Failure> {
    let mut answer = arguments::watch_store(store, Need::Required, process);
    arguments::await_database(&mut answer).await;
    store.migrate().await.map_err(|error| {
        Failure::general(format!(
            "the database was not brought up to date: {}",
            error.report()
        ))
    })?;
    switchboard_control::bootstrap(store, api_key)
        .await
        .map_err(|error| {
            Failure::general(format!(
                "the first organisation was not made: {}",
                error.report()
            ))
        })
}

/// Starts the services on one bus inside this process.
fn serve(
    arguments: Arguments,
    ports: Ports,
    store: Store,
    process: &Process,
) -> Result<Bus, Failure> {
    let hub = LocalHub::default();
    let bus = Bus::start(
        BusConfig::local(&hub, "up").following_offers(),
        &process.registry,
        &process.stages.bus,
    )
    .context("the bus does not start")?;
    arguments::watch_bus("bus", &bus, &process.readiness);
    arguments::watch_trust(&bus, &process.readiness);
    let Arguments {
        edge,
        gateway,
        control,
        chat,
        ..
    } = arguments;
    let (registry, background) = (&process.registry, &process.stages.background);
    let taken = "the metrics cannot be registered";
    switchboard_control::start(&control, store.clone(), bus.clone(), registry, background)
        .context(taken)?;
    let authenticator = process.counted(Authenticator::new(store.clone(), bus.clone()))?;
    let identity = authenticator.clone();
    let serving = &process.stages.serving;
    let calls = switchboard_gateway::router(
        &gateway,
        store.clone(),
        bus.clone(),
        identity,
        registry,
        serving,
    )
    .context(taken)?;
    let deps = switchboard_chat::Deps {
        bus: bus.clone(),
        store: store.clone(),
        authenticator: authenticator.clone(),
        questions: Endpoint::from_config(&control.embeddings).map(Questions::new),
    };
    let talk =
        switchboard_chat::start(&chat, deps, registry, serving).map_err(super::chat::failure)?;
    let settings =
        switchboard_control::router(&control, store, bus.clone(), authenticator, registry)
            .context(taken)?;
    let limits = HttpLimits {
        larger_bodies: switchboard_control::LARGER_BODIES,
        ..gateway.http_limits()
    };
    let document = switchboard_gateway::document()
        .merged(switchboard_chat::document())
        .merged(switchboard_control::document());
    let router = calls.merge(talk).merge(settings).merge(document.routes());
    process.serve_http(ports.http, router, limits);
    process.serve_devices(ports.devices, edge, &bus);
    Ok(bus)
}
