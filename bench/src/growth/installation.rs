//! One process of each kind with stored devices, as in production, for the coefficients and for the
//! check of the model.

use std::sync::Arc;

use switchboard_capacity::Role;
use switchboard_test_support::process::Process;

use super::{shards::Shards, stored::wait_stored};
use crate::{
    calls::CONNECT_CONCURRENCY,
    control_plane::ControlPlane,
    environment::BenchEnv,
    installation::{devices, gateway},
    system::{Service, edge},
    usage::{Usage as _, wait_idle},
    worker::Worker,
};

/// Edge, gateway, control, Redis and PostgreSQL.
pub(super) struct Installation {
    pub(super) plane: ControlPlane,
    gateway: Service,
    edge: Service,
    shards: Shards,
    /// Devices that stay connected.
    staying: Worker,
    /// Devices that come back.
    returning: Worker,
}

/// CPU seconds and bytes of the process of a role.
#[derive(Debug, Clone, Copy)]
pub(super) struct Used {
    pub(super) role: Role,
    pub(super) cpu_s: f64,
    pub(super) bytes: f64,
}

impl Installation {
    pub(super) async fn start(bench: &BenchEnv<'_>) -> anyhow::Result<Self> {
        let plane = ControlPlane::start(bench).await?;
        let edge = edge(bench, &plane.stores.redis).await?;
        Ok(Self {
            staying: devices(bench, &edge, &plane, &["--resume"]).await?,
            returning: devices(bench, &edge, &plane, &["--resume"]).await?,
            shards: Shards::of(&plane.stores.redis).await?,
            gateway: gateway(bench, &plane).await?,
            edge,
            plane,
        })
    }

    /// A client that calls the first `devices` devices over HTTP; each worker waits before a call.
    pub(super) async fn caller(
        &self,
        bench: &BenchEnv<'_>,
        devices: u32,
        pause_ms: u32,
    ) -> anyhow::Result<Worker> {
        let address = self.gateway.address.to_string();
        let (count, pause) = (devices.to_string(), pause_ms.to_string());
        let arguments = [
            ["--address", &address],
            ["--devices", &count],
            ["--pause-ms", &pause],
            ["--api-key", &self.plane.api_key],
        ];
        bench
            .worker(&[&["rest-caller"][..], arguments.as_flattened()].concat())
            .await
    }

    /// Connects the devices below `staying`, and `returning` further ones, and waits until they are
    /// stored.
    pub(super) async fn open(&mut self, staying: u32, returning: u32) -> anyhow::Result<()> {
        // Number 0 belongs to both until it stays.
        self.returning.close().await?;
        connect(&mut self.staying, 0, staying).await?;
        connect(&mut self.returning, staying, returning).await?;
        self.wait().await
    }

    /// Disconnects the `returning` devices, and connects them again once that is stored.
    pub(super) async fn come_back(&mut self, staying: u32, returning: u32) -> anyhow::Result<()> {
        self.returning.close().await?;
        wait_stored(&mut self.shards).await?;
        connect(&mut self.returning, staying, returning).await
    }

    /// Waits until everything is stored, and all processes are idle.
    pub(super) async fn wait(&mut self) -> anyhow::Result<()> {
        wait_stored(&mut self.shards).await?;
        let processes = self.processes();
        wait_idle(&processes.map(|(_, process)| process)).await
    }

    fn processes(&self) -> [(Role, Arc<Process>); 5] {
        let stores = &self.plane.stores;
        [
            (Role::Edge, &self.edge.process),
            (Role::Gateway, &self.gateway.process),
            (Role::Control, &self.plane.control.process),
            (Role::Redis, &stores.redis.process),
            (Role::Postgres, &stores.postgres.process),
        ]
        .map(|(role, process)| (role, Arc::clone(process)))
    }

    /// What each process has used since it started.
    pub(super) fn used(&self) -> anyhow::Result<Vec<Used>> {
        let processes = self.processes().into_iter();
        let used = processes.map(|(role, process)| {
            Ok(Used {
                role,
                cpu_s: process.cpu()?.as_secs_f64(),
                bytes: process.anonymous_bytes()? as f64,
            })
        });
        used.collect()
    }
}

async fn connect(fleet: &mut Worker, first: u32, count: u32) -> anyhow::Result<()> {
    let opened = fleet.open_all(first, count, CONNECT_CONCURRENCY);
    opened.await.map(drop)
}
