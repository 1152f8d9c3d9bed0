//! Start-up of the services that run alone and serve HTTP: gateway, chat and control plane.

use std::process::ExitCode;

use axum::Router;
use prometheus::Registry;
use switchboard_bus::{Bus, BusConfig};
use switchboard_identity::Authenticator;
use switchboard_runtime::{
    admin::Need,
    api::Document,
    budget::Budgets,
    http::{HttpConfig, HttpLimits, HttpListeners},
};
use switchboard_store::Store;

use crate::{
    arguments::{self, AdminArguments, DrainArguments},
    exit::Failure,
    process::{self, Process, Ready, Telemetry},
    stored_keys::StoredKeys,
    tls::HttpTlsArguments,
};

/// Settings of every HTTP service.
#[derive(Debug, clap::Args)]
pub(crate) struct HttpServiceArguments {
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
    http: HttpConfig,
    #[command(flatten)]
    http_tls: HttpTlsArguments,
}

/// What distinguishes an HTTP service.
pub(crate) struct HttpService {
    /// Name of the service, and of its bus node unless --node-name sets another.
    pub(crate) name: &'static str,
    /// Adds what the service needs from the bus beyond calls.
    pub(crate) configure_bus: fn(BusConfig) -> BusConfig,
    /// Whether the service is unready without Postgres.
    pub(crate) database: Need,
    /// Whether the service is unready without the keys that verify access tokens.
    pub(crate) needs_token_keys: bool,
    /// What it does with the keys in the database.
    pub(crate) stored_keys: StoredKeys,
    /// The documentation of the API at its port.
    pub(crate) document: Document,
}

/// Dependencies of a service.
pub(crate) struct Deps {
    pub(crate) store: Store,
    pub(crate) bus: Bus,
    pub(crate) authenticator: Authenticator,
    pub(crate) registry: Registry,
    pub(crate) budgets: Budgets,
}

impl HttpServiceArguments {
    /// Binds the ports, serves the routes that `start` returns, and drains on a signal.
    ///
    /// # Errors
    /// When a setting is invalid or a port is taken, otherwise as [`Process::run`].
    pub(crate) async fn run(
        self,
        http_listen: &str,
        service: HttpService,
        telemetry: Telemetry,
        start: impl FnOnce(Deps, &Process) -> Result<(Router, HttpLimits), Failure>,
    ) -> Result<ExitCode, Failure> {
        let admin = process::listen("--admin-listen", &self.admin.admin_listen)?;
        let http = process::listen("--http-listen", http_listen)?;
        let http = self.http_tls.listen(http)?;
        let drain = self.drain.drain();
        let serve = async |process: &Process| self.serve(http, service, process, start).await;
        Process::begin(admin, telemetry)?.run(drain, serve).await
    }

    async fn serve(
        &self,
        http: HttpListeners,
        service: HttpService,
        process: &Process,
        start: impl FnOnce(Deps, &Process) -> Result<(Router, HttpLimits), Failure>,
    ) -> Result<Ready, Failure> {
        let ready = Ready {
            http_url: Some(process::url(&http.plain)?),
            https_url: process::https_url(&http)?,
            ..process.ready()
        };
        self.http.create_budgets(&process.budgets);
        let store = arguments::open_store_with_objects(&self.database, &self.objects, process)?;
        arguments::check_database_version(&store).await?;
        let store = service.stored_keys.with_master_keys(store);
        arguments::register_store_metrics(&store, process)?;
        let bus = (service.configure_bus)(arguments::bus_config(&self.bus, service.name)?);
        let bus = arguments::connect_bus(bus, process)?;
        let mut database = arguments::watch_store(&store, service.database, process);
        service.stored_keys.start(&store, process);
        if service.needs_token_keys {
            arguments::watch_token_keys(&bus, &process.readiness);
        }
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
        let (router, limits) = start(deps, process)?;
        let router = router.merge(service.document.routes(service.name));
        process.serve_http(http, router, self.http.apply(limits));
        arguments::await_bus(&bus).await;
        if service.database == Need::Required {
            arguments::await_database(&mut database).await;
        }
        Ok(ready)
    }
}
