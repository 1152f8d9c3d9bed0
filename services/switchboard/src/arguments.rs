//! Settings shared by several subcommands, and the construction of store and bus. Settings of a
//! service are in the service's own `Config`.

use std::{path::PathBuf, time::Duration};

use prometheus::Registry;
use switchboard_bus::{Bus, BusConfig, BusError, TokenError};
use switchboard_protocol::token::KeySetError;
use switchboard_runtime::{
    admin::{Need, Readiness},
    shutdown::Shutdown,
};
use switchboard_store::{Objects, ObjectsConfig, Store, StoreError};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{exit::Failure, process::Process};

/// Interval of database probes, and timeout of each probe.
const DATABASE_PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of object store probes; object stores charge per request.
const OBJECTS_PROBE_INTERVAL: Duration = Duration::from_secs(20);
/// Timeout of one wait for the bus; the wait is repeated.
const BUS_READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Opens the store and the object store, if one is configured, with the budgets of the process.
/// Postgres need not be reachable yet.
///
/// # Errors
/// When a URL is missing or malformed, or the object store cannot be used.
pub(crate) fn open_store_with_objects(
    config: &switchboard_store::Config,
    objects: &ObjectsConfig,
    process: &Process,
) -> Result<Store, Failure> {
    let objects = Objects::from_config(objects).map_err(Failure::usage)?;
    let store = open_store(config)?.with_budgets(&process.budgets);
    Ok(store.with_objects(objects))
}

/// Opens the store. Postgres need not be reachable yet.
///
/// # Errors
/// When the URL is missing or malformed.
pub(crate) fn open_store(config: &switchboard_store::Config) -> Result<Store, Failure> {
    if config.database_url.is_none() {
        return Err(Failure::usage(
            "DATABASE_URL is not set: use --database-url or the environment variable DATABASE_URL \
             (postgres://USER:PASSWORD@HOST:PORT/DATABASE)",
        ));
    }
    Store::from_config(config)
        .map_err(|error| Failure::usage(format!("DATABASE_URL (--database-url): {error}")))
}

/// Refuses a database server of an unsupported version. One that is unreachable is not checked: it
/// may start later, and `switchboard migrate` checks it.
///
/// # Errors
/// When the server is too old.
pub(crate) async fn check_database_version(store: &Store) -> Result<(), Failure> {
    match store.postgres_version().await {
        Ok(version) => {
            if let Some(detail) = version.warning() {
                warn!(detail, "the version of PostgreSQL is not tested");
            }
            Ok(())
        }
        Err(error @ StoreError::UnsupportedPostgres { .. }) => {
            Err(Failure::general(format!("DATABASE_URL: {error}")))
        }
        Err(_) => Ok(()),
    }
}

/// Registers the metrics of database queries.
///
/// # Errors
/// When they are already registered.
pub(crate) fn register_store_metrics(store: &Store, process: &Process) -> Result<(), Failure> {
    let counted = store.register(&process.registry);
    counted.map_err(|error| {
        Failure::general(format!(
            "cannot register the metrics of the database: {error}"
        ))
    })
}

/// Starts the bus node. Redis need not be reachable yet.
///
/// # Errors
/// When the URL is missing or malformed.
pub(crate) fn start_bus(
    config: BusConfig,
    registry: &Registry,
    shutdown: &Shutdown,
) -> Result<Bus, Failure> {
    Bus::start(config, registry, shutdown).map_err(|error| match error {
        BusError::Address(_) => Failure::usage(format!("REDIS_URL (--redis-url): {error}")),
        _ => Failure::general(error),
    })
}

/// Starts the bus node over Redis and adds it to readiness.
///
/// # Errors
/// As [`start_bus`].
pub(crate) fn connect_bus(config: BusConfig, process: &Process) -> Result<Bus, Failure> {
    let bus = start_bus(config, &process.registry, &process.stages.bus)?;
    watch_bus("redis", &bus, &process.readiness);
    process.publish_status(&bus);
    Ok(bus)
}

/// Returns the bus configuration of a service that runs alone.
///
/// # Errors
/// When Redis is not configured.
pub(crate) fn bus_config(
    config: &switchboard_bus::Config,
    service: &str,
) -> Result<BusConfig, Failure> {
    let Some(url) = &config.redis_url else {
        return Err(Failure::usage(
            "REDIS_URL is not set: use --redis-url or the environment variable REDIS_URL \
             (redis://HOST:PORT/NUMBER, redis+sentinel://HOST:PORT,HOST:PORT/NAME or \
             redis+cluster://HOST:PORT,HOST:PORT; with TLS, rediss instead of redis)",
        ));
    };
    let name = config.node_name.as_deref().unwrap_or(service);
    let node = BusConfig::redis(url, name, config.redis_prefix.as_str());
    Ok(node
        .with_registration_bytes(config.registration_bytes_per_org)
        .with_cached_entries(config.directory_cache)
        .trusting(config.redis_ca.as_deref())
        .pinning(&config.key_set_public_key))
}

/// Settings of the admin port.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AdminArguments {
    /// Address of the admin port: /healthz, /readyz, /metrics. Do not expose it publicly
    #[arg(long, env, default_value = "0.0.0.0:9600", value_name = "HOST:PORT")]
    pub(crate) admin_listen: String,
}

/// Settings of a graceful shutdown.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DrainArguments {
    /// Seconds that requests in progress may take after SIGTERM. Limits the duration of a restart
    #[arg(long, env, default_value_t = 30, value_name = "SECONDS")]
    drain_timeout_s: u16,
    /// Milliseconds to keep serving after SIGTERM while /readyz reports unready, so that load
    /// balancers stop sending new requests before the ports close
    #[arg(
        long,
        env,
        default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(..=60_000),
        value_name = "MS"
    )]
    leave_ms: u32,
}

/// Phases of a graceful shutdown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DrainTimes {
    /// The process serves but reports unready.
    pub(crate) leave_delay: Duration,
    /// Timeout for requests in progress.
    pub(crate) timeout: Duration,
}

impl DrainArguments {
    /// Returns the durations.
    pub(crate) fn drain(&self) -> DrainTimes {
        DrainTimes {
            leave_delay: Duration::from_millis(self.leave_ms.into()),
            timeout: Duration::from_secs(self.drain_timeout_s.into()),
        }
    }
}

/// Location of the data of `up`, where other subcommands find a running `up`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DataArguments {
    /// Data folder of `switchboard up`: database, keys and address of the running instance.
    /// Default: $XDG_DATA_HOME/switchboard or ~/.local/share/switchboard
    #[arg(long, env, value_name = "FOLDER")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// Adds the bus to readiness.
pub(crate) fn watch_bus(name: &'static str, bus: &Bus, readiness: &Readiness) {
    let bus = bus.clone();
    readiness.register(name, Need::Required, move || {
        let health = bus.health();
        if health.ready {
            Ok(())
        } else {
            Err(health.detail)
        }
    });
}

/// Adds the public keys that verify access tokens to readiness. A node that refuses published keys
/// works with those that it has.
pub(crate) fn watch_token_keys(bus: &Bus, readiness: &Readiness) {
    let node = bus.clone();
    readiness.register("trust", Need::Required, move || {
        let error = || format!("{}; has `switchboard control` run?", TokenError::NoKeys);
        node.has_keys().then_some(()).ok_or_else(error)
    });
    let bus = bus.clone();
    readiness.register("key_set", Need::Optional, move || {
        bus.key_set_refusal()
            .map_or(Ok(()), |reason| Err(describe_refusal(reason)))
    });
}

/// Why a node refuses the published token keys, for operators.
pub(crate) fn describe_refusal(reason: KeySetError) -> String {
    format!("the published token keys are refused: {reason}")
}

/// Waits until the bus is ready. The bus logs the reason while it is not.
pub(crate) async fn await_bus(bus: &Bus) {
    while bus.wait_ready(BUS_READY_TIMEOUT).await.is_err() {}
}

/// Probes Postgres and the object store periodically and adds both to readiness. Returns the last
/// error of Postgres, `None` if it is reachable.
pub(crate) fn watch_store(
    store: &Store,
    need: Need,
    process: &Process,
) -> watch::Receiver<Option<String>> {
    watch_objects(store, process);
    watch_database(store, need, process)
}

fn watch_database(store: &Store, need: Need, process: &Process) -> watch::Receiver<Option<String>> {
    let probe = DependencyProbe {
        name: "postgres",
        title: "Postgres",
        need,
        interval: DATABASE_PROBE_INTERVAL,
    };
    let store = store.clone();
    probe.start(process, move || {
        let store = store.clone();
        async move {
            let result = store.ping(DATABASE_PROBE_INTERVAL).await;
            result.map_err(|error| error.to_string())
        }
    })
}

/// Probes the object store, if configured. Only pictures, skills books and voices need it.
fn watch_objects(store: &Store, process: &Process) {
    let Some(objects) = store.objects().cloned() else {
        return;
    };
    let probe = DependencyProbe {
        name: "objects",
        title: "the object store",
        need: Need::Optional,
        interval: OBJECTS_PROBE_INTERVAL,
    };
    probe.start(process, move || {
        let objects = objects.clone();
        async move {
            let result = objects.probe().await;
            result.map_err(|error| error.to_string())
        }
    });
}

/// A periodic probe of a dependency.
struct DependencyProbe {
    name: &'static str,
    /// Name in log messages.
    title: &'static str,
    need: Need,
    interval: Duration,
}

impl DependencyProbe {
    fn start<F>(
        self,
        process: &Process,
        check: impl Fn() -> F + Send + 'static,
    ) -> watch::Receiver<Option<String>>
    where
        F: Future<Output = Result<(), String>> + Send,
    {
        let (sender, result) = watch::channel(Some("not probed yet".to_owned()));
        let last = result.clone();
        let probe = move || last.borrow().clone().map_or(Ok(()), Err);
        process.readiness.register(self.name, self.need, probe);
        let stage = process.stages.database.clone();
        process.stages.database.spawn(async move {
            let mut was_reachable: Option<bool> = None;
            while !stage.is_stopping() {
                let error = check().await.err();
                self.log(&mut was_reachable, error.as_deref());
                sender.send_replace(error);
                tokio::select! {
                    () = tokio::time::sleep(self.interval) => {}
                    () = stage.stopping() => {}
                }
            }
        });
        result
    }

    fn log(&self, was_reachable: &mut Option<bool>, error: Option<&str>) {
        let title = self.title;
        match (*was_reachable, error) {
            (Some(false), None) => info!("{title} is reachable again"),
            (None | Some(true), Some(detail)) => {
                warn!(detail, "{title} is unreachable; retrying");
            }
            _ => {}
        }
        *was_reachable = Some(error.is_none());
    }
}

/// Waits until Postgres is reachable.
pub(crate) async fn await_database(result: &mut watch::Receiver<Option<String>>) {
    // `Err` means that the probe has stopped because the process is ending, which also drops this
    // future.
    if result.wait_for(Option::is_none).await.is_err() {
        std::future::pending::<()>().await;
    }
}
