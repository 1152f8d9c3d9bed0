//! Settings that several subcommands share, and what is made of them.
//! Never: a setting of a service; those live in the service's own `Config`.

use std::{path::PathBuf, time::Duration};

use prometheus::Registry;
use switchboard_bus::{Bus, BusConfig, BusError, TrustError};
use switchboard_runtime::{
    admin::{Need, Readiness},
    shutdown::Shutdown,
};
use switchboard_store::{Objects, ObjectsConfig, Store};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{exit::Failure, process::Process};

/// How often the database is asked whether it is there, and how long it may take to say so.
const DATABASE_PROBE: Duration = Duration::from_secs(1);
/// How often the place for objects is asked whether it is there: buckets charge for each question.
const OBJECTS_PROBE: Duration = Duration::from_secs(20);
/// How long one wait for the bus lasts; there is always another.
const BUS_WAIT: Duration = Duration::from_secs(60);

/// Opens the store with the place for large objects beside it, if there is one; Postgres need not be there yet.
///
/// # Errors
/// When a URL is missing or no URL, or the place cannot be used.
pub(crate) fn open_store_with_objects(
    config: &switchboard_store::Config,
    objects: &ObjectsConfig,
) -> Result<Store, Failure> {
    let objects = Objects::from_config(objects).map_err(Failure::usage)?;
    Ok(open_store(config)?.with_objects(objects))
}

/// Opens the store; Postgres need not be there yet.
///
/// # Errors
/// When the URL is missing or no URL.
pub(crate) fn open_store(config: &switchboard_store::Config) -> Result<Store, Failure> {
    if config.database_url.is_none() {
        return Err(Failure::usage(
            "DATABASE_URL is not set: give --database-url or the environment variable DATABASE_URL \
             (postgres://USER:PASSWORD@HOST:PORT/DATABASE)",
        ));
    }
    Store::from_config(config)
        .map_err(|error| Failure::usage(format!("DATABASE_URL (--database-url): {error}")))
}

/// Has what is asked of the database counted.
///
/// # Errors
/// When it is counted already.
pub(crate) fn count_questions(store: &Store, process: &Process) -> Result<(), Failure> {
    let counted = store.register(&process.registry);
    counted.map_err(|error| {
        Failure::general(format!(
            "the metrics of the database cannot be registered: {error}"
        ))
    })
}

/// Starts this node on the bus; Redis need not be there yet.
///
/// # Errors
/// When the URL is missing or no URL.
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

/// Starts this process on the bus over Redis, and says whether calls can cross it.
///
/// # Errors
/// As [`start_bus`].
pub(crate) fn enter_bus(config: BusConfig, process: &Process) -> Result<Bus, Failure> {
    let bus = start_bus(config, &process.registry, &process.stages.bus)?;
    watch_bus("redis", &bus, &process.readiness);
    Ok(bus)
}

/// The bus of a service that runs alone.
///
/// # Errors
/// When no Redis is configured.
pub(crate) fn bus_config(
    config: &switchboard_bus::Config,
    service: &str,
) -> Result<BusConfig, Failure> {
    let Some(url) = &config.redis_url else {
        return Err(Failure::usage(
            "REDIS_URL is not set: give --redis-url or the environment variable REDIS_URL \
             (redis://HOST:PORT/NUMBER, redis+sentinel://HOST:PORT,HOST:PORT/NAME or \
             redis+cluster://HOST:PORT,HOST:PORT)",
        ));
    };
    let name = config.node_name.as_deref().unwrap_or(service);
    Ok(BusConfig::redis(url, name, config.redis_prefix.as_str()))
}

/// Where health and metrics of a service are served.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AdminArguments {
    /// Admin port: /healthz, /readyz, /metrics; not meant for the outside
    #[arg(
        long,
        env = "SWITCHBOARD_ADMIN_LISTEN",
        default_value = "0.0.0.0:9600",
        value_name = "HOST:PORT"
    )]
    pub(crate) admin_listen: String,
}

/// How a service ends.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DrainArguments {
    /// Seconds that what is under way gets to finish after SIGTERM: protects a restart from hanging
    #[arg(
        long,
        env = "SWITCHBOARD_DRAIN_TIMEOUT_S",
        default_value_t = 30,
        value_name = "SECONDS"
    )]
    drain_timeout_s: u16,
    /// Milliseconds after SIGTERM in which everything is still served, though /readyz says that it ends: for balancers that look
    /// there, so that nothing new comes when the ports close
    #[arg(
        long,
        env = "SWITCHBOARD_LEAVE_MS",
        default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(..=60_000),
        value_name = "MS"
    )]
    leave_ms: u32,
}

/// How long what takes at the end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drain {
    /// Everything is served, and unready.
    pub(crate) leave: Duration,
    /// What is under way finishes.
    pub(crate) within: Duration,
}

impl DrainArguments {
    /// The times as such.
    pub(crate) fn drain(&self) -> Drain {
        Drain {
            leave: Duration::from_millis(self.leave_ms.into()),
            within: Duration::from_secs(self.drain_timeout_s.into()),
        }
    }
}

/// Where `up` keeps its data, and where other subcommands find a running `up`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DataArguments {
    /// Folder of `switchboard up`: database, keys, address of the running instance; without it
    /// $XDG_DATA_HOME/switchboard, or ~/.local/share/switchboard
    #[arg(long, env = "SWITCHBOARD_DATA_DIR", value_name = "FOLDER")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// Adds whether calls can cross the bus.
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

/// Adds whether the public keys that verify access tokens have arrived.
pub(crate) fn watch_trust(bus: &Bus, readiness: &Readiness) {
    let bus = bus.clone();
    readiness.register("trust", Need::Required, move || {
        let trouble = || format!("{}; has `switchboard control` run?", TrustError::NoKeys);
        bus.has_keys().then_some(()).ok_or_else(trouble)
    });
}

/// Waits for as long as it takes until calls can cross the bus, which says itself what it waits for.
pub(crate) async fn await_bus(bus: &Bus) {
    while bus.ready(BUS_WAIT).await.is_err() {}
}

/// Keeps asking Postgres and the place for large objects whether they are there, and reports their last answers to
/// readiness; Postgres's are received here as well.
pub(crate) fn watch_store(
    store: &Store,
    need: Need,
    process: &Process,
) -> watch::Receiver<Option<String>> {
    watch_objects(store, process);
    watch_database(store, need, process)
}

fn watch_database(store: &Store, need: Need, process: &Process) -> watch::Receiver<Option<String>> {
    let watched = Watched {
        name: "postgres",
        spoken: "Postgres",
        need,
        every: DATABASE_PROBE,
    };
    let store = store.clone();
    watched.start(process, move || {
        let store = store.clone();
        async move {
            let answer = store.ping(DATABASE_PROBE).await;
            answer.map_err(|error| error.to_string())
        }
    })
}

/// Keeps asking the place for large objects whether it is there, if one is set. Everything but pictures and skills
/// books goes on without it.
fn watch_objects(store: &Store, process: &Process) {
    let Some(objects) = store.objects().cloned() else {
        return;
    };
    let watched = Watched {
        name: "objects",
        spoken: "the object store",
        need: Need::Helpful,
        every: OBJECTS_PROBE,
    };
    watched.start(process, move || {
        let objects = objects.clone();
        async move {
            let answer = objects.probe().await;
            answer.map_err(|error| error.to_string())
        }
    });
}

/// What is asked again and again whether it is there.
struct Watched {
    name: &'static str,
    /// What people call it.
    spoken: &'static str,
    need: Need,
    every: Duration,
}

impl Watched {
    fn start<F>(
        self,
        process: &Process,
        ask: impl Fn() -> F + Send + 'static,
    ) -> watch::Receiver<Option<String>>
    where
        F: Future<Output = Result<(), String>> + Send,
    {
        let (tell, answer) = watch::channel(Some("not asked yet".to_owned()));
        let last = answer.clone();
        let probe = move || last.borrow().clone().map_or(Ok(()), Err);
        process.readiness.register(self.name, self.need, probe);
        let stage = process.stages.database.clone();
        process.stages.database.spawn(async move {
            let mut known: Option<bool> = None;
            while !stage.is_stopping() {
                let trouble = ask().await.err();
                self.log(&mut known, trouble.as_deref());
                tell.send_replace(trouble);
                tokio::select! {
                    () = tokio::time::sleep(self.every) => {}
                    () = stage.stopping() => {}
                }
            }
        });
        answer
    }

    fn log(&self, known: &mut Option<bool>, trouble: Option<&str>) {
        let well = trouble.is_none();
        let spoken = self.spoken;
        match (*known, trouble) {
            (Some(false), None) => info!("{spoken} is back"),
            (None | Some(true), Some(detail)) => {
                warn!(
                    detail,
                    "{spoken} cannot be reached; asking again until it can"
                );
            }
            _ => {}
        }
        *known = Some(well);
    }
}

/// Waits for as long as it takes until Postgres answers.
pub(crate) async fn await_database(answer: &mut watch::Receiver<Option<String>>) {
    // Err means that the watcher has stopped: the process is ending, so this wait is dropped too.
    if answer.wait_for(Option::is_none).await.is_err() {
        std::future::pending::<()>().await;
    }
}
