//! Our whole system as callers over HTTP find it: control plane, gateway, edge, and the stores behind them.
//! Never: a limit left where it would be measured instead of the system.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use super::{
    bed::Bed,
    calls::connect_the_rest,
    control_plane::ControlPlane,
    ours::{Service, edge},
    subject::Subject,
    worker::Worker,
};

const FIRST_DEVICE_WITHIN: Duration = Duration::from_secs(15);

/// Far above what one machine does, so that no bucket runs dry: rates that protect are not what is measured.
const UNREACHED: &str = "1000000";

/// Ends with all its processes when dropped.
pub(crate) struct Installation {
    edge: Service,
    gateway: Service,
    // All of them connected and registered, of the plane's organisation, as long as it lives.
    _devices: Worker,
    pub(crate) plane: ControlPlane,
}

impl Installation {
    /// Starts everything and connects the devices.
    pub(crate) async fn start(bed: &Bed<'_>) -> anyhow::Result<Self> {
        let plane = ControlPlane::start(bed).await?;
        let edge = edge(bed, &plane.stores.redis).await?;
        let rates = [
            "--caller-rate-per-s",
            "--caller-burst",
            "--called-device-rate-per-s",
            "--called-device-burst",
        ];
        let rates = rates.map(|flag| [flag, UNREACHED]);
        let gateway = plane.stores.serve(bed, "gateway", rates.as_flattened());
        let gateway = gateway.await?;
        let mut devices = devices(bed, &edge, &plane).await?;
        connect_the_rest(bed, &mut devices).await?;
        Ok(Self {
            edge,
            gateway,
            _devices: devices,
            plane,
        })
    }

    /// It under measurement, with this role as its caller. Its devices must outlive that.
    pub(crate) async fn called_by(
        &self,
        bed: &Bed<'_>,
        name: &'static str,
        role: &[&str],
    ) -> anyhow::Result<Subject> {
        let gateway = ("gateway", Arc::clone(&self.gateway.process));
        let servers = [vec![gateway], self.plane.with(&self.edge)].concat();
        Ok(Subject {
            name,
            caller: http_caller(bed, role, self.gateway.address, &self.plane.api_key).await?,
            devices: None,
            servers,
            counts_caller: false,
            counts_devices: false,
        })
    }
}

/// A role that posts to this address, as a client with this key.
pub(crate) async fn http_caller(
    bed: &Bed<'_>,
    role: &[&str],
    address: SocketAddr,
    api_key: &str,
) -> anyhow::Result<Worker> {
    let (address, count) = (address.to_string(), bed.options.devices.to_string());
    let whom = ["--address", &address, "--devices", &count];
    let arguments = [role, &whom, &["--api-key", api_key]].concat();
    bed.worker(&arguments).await
}

/// Devices of the plane's organisation that dial this edge, with tokens issued for each; the first is there.
pub(crate) async fn devices(
    bed: &Bed<'_>,
    edge: &Service,
    plane: &ControlPlane,
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
    let mut devices = bed.worker(&arguments).await?;
    devices.open_first(FIRST_DEVICE_WITHIN).await?;
    Ok(devices)
}
