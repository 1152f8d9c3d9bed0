//! Our whole system as callers over HTTP find it: control plane, gateway, edge, and the stores behind them.
//! Never: a limit left where it would be measured instead of the system.

use std::{net::SocketAddr, time::Duration};

use super::{
    bed::Bed,
    calls::connect_the_rest,
    control_plane::ControlPlane,
    ours::{Service, edge},
    postgres::Postgres,
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
    /// All of them connected and registered, of the plane's organisation.
    devices: Worker,
    pub(crate) plane: ControlPlane,
}

/// What calls do not go through and still must be there; its CPU is not counted.
pub(crate) struct Beside {
    // Each ends with it.
    _control: Service,
    _postgres: Postgres,
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
        let devices = devices(bed, &edge, &plane).await?;
        Ok(Self {
            edge,
            gateway,
            devices,
            plane,
        })
    }

    /// A system under measurement, whose caller is this role; what comes beside it must outlive it.
    pub(crate) async fn called_by(
        self,
        bed: &Bed<'_>,
        name: &'static str,
        role: &str,
    ) -> anyhow::Result<(Subject, Beside)> {
        let ControlPlane {
            control,
            stores,
            api_key,
        } = self.plane;
        let caller = http_caller(bed, role, self.gateway.address, &api_key).await?;
        let subject = Subject {
            name,
            caller,
            devices: Some(self.devices),
            servers: vec![
                ("gateway", self.gateway.process),
                ("edge", self.edge.process),
                ("redis", stores.redis.process),
            ],
            counts_caller: false,
            counts_devices: false,
        };
        let beside = Beside {
            _control: control,
            _postgres: stores.postgres,
        };
        Ok((subject, beside))
    }
}

/// A role that posts to this address, as a client with this key.
pub(crate) async fn http_caller(
    bed: &Bed<'_>,
    role: &str,
    address: SocketAddr,
    api_key: &str,
) -> anyhow::Result<Worker> {
    let (address, count) = (address.to_string(), bed.options.devices.to_string());
    let arguments = [
        role,
        "--address",
        &address,
        "--devices",
        &count,
        "--api-key",
        api_key,
    ];
    bed.worker(&arguments).await
}

async fn devices(bed: &Bed<'_>, edge: &Service, plane: &ControlPlane) -> anyhow::Result<Worker> {
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
    connect_the_rest(bed, &mut devices).await?;
    Ok(devices)
}
