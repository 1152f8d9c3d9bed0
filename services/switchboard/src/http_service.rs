//! A service that runs alone and serves HTTP from the record: its settings, and its way from there to the ready line.
//! Never: what only one such service does.

use std::process::ExitCode;

use axum::Router;
use switchboard_bus::{Bus, BusConfig};
use switchboard_identity::Authenticator;
use switchboard_runtime::{admin::Need, http::HttpLimits};
use switchboard_store::Store;
use tokio::net::TcpListener;

use crate::{
    arguments::{self, AdminArguments, DrainArguments},
    exit::Failure,
    process::{self, Process, Ready, Telemetry},
};

/// What all of them are told.
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
}

/// In what they differ before they serve.
pub(crate) struct Kind {
    /// What its node on the bus is called when nobody names it.
    pub(crate) name: &'static str,
    /// What it asks of the bus beyond calls.
    pub(crate) on_bus: fn(BusConfig) -> BusConfig,
    /// Whether it is ready without Postgres.
    pub(crate) database: Need,
}

/// What each is given to serve from.
pub(crate) struct Parts {
    pub(crate) store: Store,
    pub(crate) bus: Bus,
    pub(crate) authenticator: Authenticator,
}

impl HttpServiceArguments {
    /// Binds the ports, serves what `serve` makes of the parts, and ends as a process does.
    ///
    /// # Errors
    /// When a setting is wrong or a port is taken, else as [`Process::run`].
    pub(crate) async fn run(
        self,
        http_listen: &str,
        kind: Kind,
        telemetry: Telemetry,
        serve: impl FnOnce(&Process, Parts) -> Result<(Router, HttpLimits), Failure>,
    ) -> Result<ExitCode, Failure> {
        let admin = process::listen("--admin-listen", &self.admin.admin_listen)?;
        let http = process::listen("--http-listen", http_listen)?;
        let drain = self.drain.drain();
        let start = async |process: &Process| self.start(http, kind, process, serve).await;
        Process::begin(admin, telemetry)?.run(drain, start).await
    }

    async fn start(
        &self,
        http: TcpListener,
        kind: Kind,
        process: &Process,
        serve: impl FnOnce(&Process, Parts) -> Result<(Router, HttpLimits), Failure>,
    ) -> Result<Ready, Failure> {
        let ready = Ready {
            http_url: Some(process::url(&http)?),
            ..process.ready()
        };
        let store = arguments::open_store_with_objects(&self.database, &self.objects)?;
        arguments::count_questions(&store, process)?;
        let bus = (kind.on_bus)(arguments::bus_config(&self.bus, kind.name)?);
        let bus = arguments::enter_bus(bus, process)?;
        let mut database = arguments::watch_store(&store, kind.database, process);
        let parts = Parts {
            authenticator: process.counted(Authenticator::new(store.clone(), bus.clone()))?,
            bus: bus.clone(),
            store,
        };
        let (router, limits) = serve(process, parts)?;
        process.serve_http(http, router, limits);
        arguments::await_bus(&bus).await;
        if kind.database == Need::Required {
            arguments::await_database(&mut database).await;
        }
        Ok(ready)
    }
}
