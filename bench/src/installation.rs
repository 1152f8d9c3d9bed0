//! A complete installation for HTTP callers: control plane, gateway, edge, PostgreSQL and Redis.
//! Rate limits are raised so that they do not affect the measurement.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use super::{
    calls::connect_remaining_devices,
    control_plane::ControlPlane,
    environment::BenchEnv,
    subject::Subject,
    system::{Service, edge},
    worker::Worker,
};

const FIRST_DEVICE_TIMEOUT: Duration = Duration::from_secs(15);

/// A rate limit far above the throughput of one machine.
pub(crate) const UNREACHABLE_RATE: &str = "1000000";
/// A quota that limits nothing.
pub(crate) const UNLIMITED: &str = "0";

/// Stops all its processes when dropped.
pub(crate) struct Installation {
    edge: Service,
    gateway: Service,
    // Keeps all devices of the organisation connected and registered.
    _devices: Worker,
    pub(crate) plane: ControlPlane,
}

impl Installation {
    /// Starts all services and connects the devices.
    pub(crate) async fn start(bench: &BenchEnv<'_>) -> anyhow::Result<Self> {
        let plane = ControlPlane::start(bench).await?;
        let edge = edge(bench, &plane.stores.redis).await?;
        let gateway = gateway(bench, &plane).await?;
        let mut devices = devices(bench, &edge, &plane, &[]).await?;
        connect_remaining_devices(bench, &mut devices).await?;
        Ok(Self {
            edge,
            gateway,
            _devices: devices,
            plane,
        })
    }

    /// A subject that calls this installation with the given role. The installation must outlive
    /// the subject, because it keeps the devices connected.
    pub(crate) async fn subject(
        &self,
        bench: &BenchEnv<'_>,
        name: &'static str,
        role: &[&str],
    ) -> anyhow::Result<Subject> {
        let gateway = ("gateway", Arc::clone(&self.gateway.process));
        let servers = [vec![gateway], self.plane.servers(&self.edge)].concat();
        Ok(Subject {
            name,
            caller: http_caller(bench, role, self.gateway.address, &self.plane.api_key).await?,
            devices: None,
            servers,
            counts_caller: false,
            counts_devices: false,
        })
    }
}

/// A gateway whose rate limits are out of reach.
pub(crate) async fn gateway(bench: &BenchEnv<'_>, plane: &ControlPlane) -> anyhow::Result<Service> {
    let rates = [
        "--caller-rate-per-s",
        "--caller-burst",
        "--org-rate-per-s",
        "--org-burst",
        "--called-device-rate-per-s",
        "--called-device-burst",
    ];
    let rates = rates.map(|flag| [flag, UNREACHABLE_RATE]);
    let gateway = plane.stores.serve(bench, "gateway", rates.as_flattened());
    gateway.await
}

/// Starts a caller role that sends HTTP requests to this address with this API key.
pub(crate) async fn http_caller(
    bench: &BenchEnv<'_>,
    role: &[&str],
    address: SocketAddr,
    api_key: &str,
) -> anyhow::Result<Worker> {
    let (address, count) = (address.to_string(), bench.options.devices.to_string());
    let target = ["--address", &address, "--devices", &count];
    let arguments = [role, &target, &["--api-key", api_key]].concat();
    bench.worker(&arguments).await
}

/// Starts the devices of the organisation on this edge and connects the first one. Each device
/// gets its token from the control plane. `more` are further arguments of the role.
pub(crate) async fn devices(
    bench: &BenchEnv<'_>,
    edge: &Service,
    plane: &ControlPlane,
    more: &[&str],
) -> anyhow::Result<Worker> {
    let address = edge.address.to_string();
    let token_url = format!("http://{}/v1/tokens", plane.control.address);
    let arguments = [
        "wire-devices",
        "--address",
        &address,
        "--token-url",
        &token_url,
        "--api-key",
        &plane.api_key,
    ];
    let mut devices = bench.worker(&[&arguments[..], more].concat()).await?;
    devices.open_first(FIRST_DEVICE_TIMEOUT).await?;
    Ok(devices)
}
