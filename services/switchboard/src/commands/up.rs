//! `switchboard up`: all services in one process, with a private Postgres.

mod terminal;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context as _;
use axum::Router;
use secrecy::SecretString;
use switchboard_bus::{Bus, BusConfig, LocalHub};
use switchboard_chat as chat;
use switchboard_control as control;
use switchboard_edge::Listeners;
use switchboard_embeddings::{Endpoint, QueryEmbedder};
use switchboard_gateway as gateway;
use switchboard_identity::Authenticator;
use switchboard_runtime::{
    admin::Need,
    http::{HttpConfig, HttpLimits, HttpListeners},
    settings::{Given, Values},
};
use switchboard_store::{MasterKeyConfig, MasterKeys, Objects, Store, StoreError};

use self::terminal::Steps;
use crate::{
    arguments::{self, DataArguments, DrainArguments},
    commands::chat::start_failure,
    data_folder::{DataFolder, Instance},
    exit::Failure,
    http_service::Deps,
    postgres::{self, PostgresError},
    process::{self, Process, Ready, Telemetry},
    stored_keys,
    tls::{HttpTlsArguments, TlsArguments},
};

/// Timeout for the publication of the first token keys.
const TOKEN_KEYS_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs all services in one process, with a private Postgres.
///
/// Prints {"event":"ready","device_addr","http_url","admin_url","org_id","api_key","console_url"} on
/// stdout when ready, with "tls_addr" and "https_url" where TLS is on, and on a terminal a summary
/// instead; logs go to stderr. Ctrl-C waits for what is in progress; a second one stops at once.
///
/// console_url signs a browser of this machine in, once and within 10 minutes.
///
/// The API key is created at the first start and stored, with the database, in --data-dir. Other
/// subcommands such as `switchboard device`, `call` and `token` find it there.
///
/// The private Postgres listens on a socket that only its user can reach. It is not started if
/// DATABASE_URL is set. Under root it runs as the user `postgres` (or `nobody`); if that user
/// cannot reach --data-dir, its data is in /var/lib/switchboard, with a link to it; `switchboard
/// doctor` finds such data when its --data-dir is gone.
///
/// Exit codes: 0 ended normally, 1 failed, 64 invalid settings, 69 PostgreSQL is not installed.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    data: DataArguments,
    /// Print the line of JSON also on a terminal
    #[arg(long)]
    json: bool,
    /// Address of the device port; 0.0.0.0:7700 admits other machines
    #[arg(long, env, default_value = "127.0.0.1:7700", value_name = "HOST:PORT")]
    device_listen: String,
    /// Address of the HTTP port
    #[arg(long, env, default_value = "127.0.0.1:8080", value_name = "HOST:PORT")]
    http_listen: String,
    /// Address of the admin port: /healthz, /readyz, /metrics. Do not expose it publicly
    #[arg(long, env, default_value = "127.0.0.1:9600", value_name = "HOST:PORT")]
    admin_listen: String,
    #[command(flatten)]
    tls: TlsArguments,
    /// Folder of PostgreSQL's programs (`postgres`, `initdb`). Default: PATH and the usual install
    /// locations
    #[arg(long, env, value_name = "FOLDER")]
    postgres_bin_dir: Option<PathBuf>,
    #[command(flatten)]
    database: switchboard_store::Config,
    #[command(flatten)]
    master_key: MasterKeyConfig,
    #[command(flatten)]
    objects: switchboard_store::ObjectsConfig,
    #[command(flatten)]
    drain: DrainArguments,
    #[command(flatten)]
    http: HttpConfig,
    #[command(flatten)]
    http_tls: HttpTlsArguments,
    #[command(flatten)]
    edge: switchboard_edge::Config,
    #[command(flatten)]
    gateway: switchboard_gateway::Config,
    #[command(flatten)]
    control: switchboard_control::Config,
    #[command(flatten)]
    chat: switchboard_chat::Config,
}

/// Ports, bound before anything starts.
struct Ports {
    devices: Listeners,
    http: HttpListeners,
}

/// The parts that a build can leave out, each with whether this one has it.
const PARTS: [(&str, bool); 2] = [
    ("PDF skills books", cfg!(feature = "pdf")),
    ("the page of the API", cfg!(feature = "api-page")),
];

pub(crate) async fn run(
    Given { arguments, values }: Given<Arguments>,
    telemetry: Telemetry,
) -> Result<ExitCode, Failure> {
    log_missing_parts();
    let folder = DataFolder::open(&arguments.data.path()?)?;
    let admin = process::listen("--admin-listen", &arguments.admin_listen)?;
    let plain = process::listen("--device-listen", &arguments.device_listen)?;
    let ports = Ports {
        devices: Listeners {
            plain,
            tls: arguments.tls.listen()?,
        },
        http: arguments
            .http_tls
            .listen(process::listen("--http-listen", &arguments.http_listen)?)?,
    };
    let drain = arguments.drain.drain();
    let start = async |process: &Process| start(arguments, values, ports, &folder, process).await;
    Process::begin(admin, telemetry)?.run(drain, start).await
}

fn log_missing_parts() {
    let missing = PARTS.iter().filter(|(_, is_present)| !is_present);
    let missing: Vec<_> = missing.map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        let missing = missing.join(" and ");
        tracing::info!("this build leaves out {missing}; `./up --release` has everything");
    }
}

async fn start(
    mut arguments: Arguments,
    settings: Values,
    ports: Ports,
    folder: &DataFolder,
    process: &Process,
) -> Result<Ready, Failure> {
    let mut steps = Steps::begin(arguments.json);
    let is_default_folder = arguments.data.data_dir.is_none();
    let mut instance = folder.instance()?.unwrap_or_else(Instance::new);
    // Stored before the key is used, so that a crash does not leave data behind a lost key.
    folder.save(&instance)?;
    let api_key = SecretString::from(instance.api_key.as_str());
    let has_private_database = arguments.database.database_url.is_none();
    let store = open_store(&mut arguments, folder, process).await?;
    arguments::register_store_metrics(&store, process)?;
    await_database(&store, process).await;
    arguments::check_database_version(&store).await?;
    steps.done("database started");
    migrate(&store).await?;
    steps.done("migrations applied");
    let master_keys = match arguments.master_key.keys() {
        Some(keys) => keys.clone(),
        None if has_private_database => private_master_keys(&store, folder).await?,
        None => MasterKeys::default(),
    };
    let store = store.with_master_keys(master_keys);
    stored_keys::warn_without_master_key(store.master_keys());
    stored_keys::rewrap(&store)
        .await
        .map_err(|error| Failure::general(error.report()))?;
    let org = control::bootstrap(&store, &api_key)
        .await
        .map_err(|error| {
            Failure::general(format!(
                "cannot create the first organisation: {}",
                error.report()
            ))
        })?;

    let http_url = process::url(&ports.http.plain)?;
    let (sign_in_code, code) = control::SignInCode::generate(api_key);
    let ready = Ready {
        device_addr: Some(process::reachable(&ports.devices.plain)?.to_string()),
        tls_addr: process::tls_addr(&ports.devices)?,
        console_url: Some(format!("{http_url}/console/#code={code}")),
        http_url: Some(http_url),
        https_url: process::https_url(&ports.http)?,
        org_id: Some(org.to_string()),
        api_key: Some(instance.api_key.clone()),
        ..process.ready()
    };
    if arguments.control.operator_key.is_none() {
        arguments.control.operator_key = Some(instance.operator_key.as_str().into());
    }
    let bus = serve(arguments, ports, (store, sign_in_code), process)?;
    // The first device may connect as soon as the line is printed; its token must be verifiable.
    bus.wait_for_keys(TOKEN_KEYS_TIMEOUT)
        .await
        .context("the token keys were not published")?;
    instance.set_addresses(&ready);
    instance.settings = settings;
    folder.save(&instance)?;
    steps.done("services started");
    Ok(Ready {
        summary: steps.summary(&ready, folder.path(), is_default_folder),
        ..ready
    })
}

/// Starts the private Postgres unless a database is configured. Objects are stored in the data
/// folder unless an object store is configured.
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
    let store =
        arguments::open_store_with_objects(&arguments.database, &arguments.objects, process)?;
    if store.objects().is_some() {
        return Ok(store);
    }
    let objects = Objects::in_folder(&folder.path().join("objects")).map_err(Failure::general)?;
    Ok(store.with_objects(Some(objects)))
}

async fn await_database(store: &Store, process: &Process) {
    let mut answer = arguments::watch_store(store, Need::Required, process);
    arguments::await_database(&mut answer).await;
}

async fn migrate(store: &Store) -> Result<(), Failure> {
    store.migrate().await.map_err(|error| {
        Failure::general(format!("cannot migrate the database: {}", error.report()))
    })
}

/// Reads the master key in the data folder. Creates it, unless a former one encrypted the keys in
/// the database.
async fn private_master_keys(store: &Store, folder: &DataFolder) -> Result<MasterKeys, Failure> {
    if let Some(keys) = folder.master_keys()? {
        return Ok(keys);
    }
    match store.check_keys().await {
        Ok(()) => folder.create_master_key(),
        Err(StoreError::MasterKey(error)) => Err(Failure::general(format!(
            "{} is missing; restore it from a backup, or delete the keys in the database as \
             docs/operations.md describes: {error}",
            folder.master_key_path().display()
        ))),
        Err(error) => Err(Failure::general(error.report())),
    }
}

/// Starts all services on an in-process bus.
fn serve(
    arguments: Arguments,
    ports: Ports,
    (store, sign_in_code): (Store, control::SignInCode),
    process: &Process,
) -> Result<Bus, Failure> {
    let bus = Bus::start(
        BusConfig::local(&LocalHub::default(), "up").watching_catalog(),
        &process.registry,
        &process.stages.bus,
    )
    .context("the bus does not start")?;
    arguments::watch_bus("bus", &bus, &process.readiness);
    process.publish_status(&bus);
    arguments::watch_token_keys(&bus, &process.readiness);
    let deps = Deps {
        authenticator: process.with_auth_metrics(Authenticator::new(
            store.clone(),
            bus.clone(),
            &process.budgets,
        ))?,
        bus: bus.clone(),
        store,
        registry: process.registry.clone(),
        budgets: process.budgets.clone(),
    };
    arguments.http.create_budgets(&process.budgets);
    let device_port = process::reachable(&ports.devices.plain)?.port();
    let router = start_http_services(&arguments, deps, (sign_in_code, device_port), process)?;
    let limits = HttpLimits {
        larger_bodies: control::LARGER_BODIES,
        ..arguments.gateway.http_limits()
    };
    process.serve_http(ports.http, router, arguments.http.apply(limits));
    process.serve_devices(ports.devices, &arguments.edge, &bus)?;
    Ok(bus)
}

/// Starts control plane, gateway and chat, and merges their routes.
fn start_http_services(
    arguments: &Arguments,
    deps: Deps,
    (sign_in_code, device_port): (control::SignInCode, u16),
    process: &Process,
) -> Result<Router, Failure> {
    let (serving, background) = (&process.stages.serving, &process.stages.background);
    let control_deps = control::Deps {
        store: deps.store.clone(),
        bus: deps.bus.clone(),
        authenticator: deps.authenticator.clone(),
        registry: deps.registry.clone(),
        budgets: deps.budgets.clone(),
        public_keys: control::PublicKeys::default(),
        sign_in_code: Some(sign_in_code),
        device_port,
    };
    let settings = control::run(&arguments.control, control_deps, background)
        .context("the control plane cannot start")?;
    let chat_deps = chat::Deps {
        bus: deps.bus.clone(),
        store: deps.store.clone(),
        authenticator: deps.authenticator.clone(),
        embedder: Endpoint::from_config(&arguments.control.embeddings)
            .map(|endpoint| QueryEmbedder::new(endpoint, &deps.budgets)),
        registry: deps.registry.clone(),
        budgets: deps.budgets.clone(),
    };
    let conversations = chat::run(&arguments.chat, chat_deps, serving).map_err(start_failure)?;
    let gateway_deps = gateway::Deps {
        store: deps.store,
        bus: deps.bus,
        authenticator: deps.authenticator,
        registry: deps.registry,
        budgets: deps.budgets,
        forwarding: gateway::Forwarding::default(),
    };
    let calls = gateway::run(&arguments.gateway, gateway_deps, serving)
        .context("the gateway cannot start")?;
    let document = gateway::document()
        .merged(chat::document())
        .merged(control::document());
    Ok(calls
        .merge(conversations)
        .merge(settings)
        .merge(switchboard_console::routes())
        .merge(document.routes("up")))
}
