//! Our whole system as callers over HTTP find it: control plane, gateway, edge, and the stores behind them.
//! Never: a limit left where it would be measured instead of the system.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, ensure};
use serde_json::json;
use uuid::Uuid;

use super::{
    bed::Bed,
    calls::connect_the_rest,
    ours::{Service, edge, switchboard},
    postgres::Postgres,
    server::{Server, redis},
    subject::Subject,
    worker::Worker,
};

const FIRST_DEVICE_WITHIN: Duration = Duration::from_secs(15);

/// Far above what one machine does, so that no bucket runs dry: rates that protect are not what is measured.
const UNREACHED: &str = "1000000";

/// Ends with all its processes when dropped.
pub(crate) struct Installation {
    redis: Server,
    edge: Service,
    gateway: Service,
    /// All of them connected and registered.
    devices: Worker,
    /// Of the devices' organisation.
    pub(crate) api_key: String,
    beside: Beside,
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
        let postgres = Postgres::start(bed.folder()).await?;
        let redis = redis(bed.folder()).await?;
        let operator_key = Uuid::new_v4().simple().to_string();
        let redis_url = redis.redis_url();
        let environment = [
            ("DATABASE_URL", postgres.url.as_str()),
            ("REDIS_URL", redis_url.as_str()),
            ("SWITCHBOARD_OPERATOR_KEY", operator_key.as_str()),
        ];
        migrate(bed, &environment).await?;
        let control = http_service(bed, "control", &[], &environment).await?;
        let api_key = new_org(&control, &operator_key).await?;
        let edge = edge(bed, &redis).await?;
        let rates = [
            "--caller-rate-per-s",
            "--caller-burst",
            "--called-device-rate-per-s",
            "--called-device-burst",
        ];
        let rates = rates.map(|flag| [flag, UNREACHED]);
        let gateway = http_service(bed, "gateway", rates.as_flattened(), &environment).await?;
        let devices = devices(bed, &edge, &control, &api_key).await?;
        Ok(Self {
            redis,
            edge,
            gateway,
            devices,
            api_key,
            beside: Beside {
                _control: control,
                _postgres: postgres,
            },
        })
    }

    /// A system under measurement, whose caller is this role; what comes beside it must outlive it.
    pub(crate) async fn called_by(
        self,
        bed: &Bed<'_>,
        name: &'static str,
        role: &str,
    ) -> anyhow::Result<(Subject, Beside)> {
        let caller = http_caller(bed, role, self.gateway.address, &self.api_key).await?;
        let subject = Subject {
            name,
            caller,
            devices: Some(self.devices),
            servers: vec![
                ("gateway", self.gateway.process),
                ("edge", self.edge.process),
                ("redis", self.redis.process),
            ],
            counts_caller: false,
            counts_devices: false,
        };
        Ok((subject, self.beside))
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

async fn devices(
    bed: &Bed<'_>,
    edge: &Service,
    control: &Service,
    api_key: &str,
) -> anyhow::Result<Worker> {
    let address = edge.address.to_string();
    let token_url = format!("http://{}/v1/tokens", control.address);
    let arguments = [
        "wire-devices",
        "--address",
        &address,
        "--token-url",
        &token_url,
        "--api-key",
        api_key,
    ];
    let mut devices = bed.worker(&arguments).await?;
    devices.open_first(FIRST_DEVICE_WITHIN).await?;
    connect_the_rest(bed, &mut devices).await?;
    Ok(devices)
}

pub(super) async fn http_service(
    bed: &Bed<'_>,
    name: &str,
    more: &[&str],
    environment: &[(&str, &str)],
) -> anyhow::Result<Service> {
    let arguments = [&[name, "--http-listen", "127.0.0.1:0"], more].concat();
    Service::start(bed, &arguments, environment, "http_url").await
}

pub(super) async fn migrate(bed: &Bed<'_>, environment: &[(&str, &str)]) -> anyhow::Result<()> {
    let mut command = switchboard(bed.switchboard()?, bed.folder(), environment);
    let output = command.arg("migrate").kill_on_drop(true).output().await?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "switchboard migrate failed: {why}");
    Ok(())
}

/// A new organisation's API key.
pub(super) async fn new_org(control: &Service, operator_key: &str) -> anyhow::Result<String> {
    let url = format!("http://{}/v1/orgs", control.address);
    let request = reqwest::Client::new().post(url).bearer_auth(operator_key);
    let answer = request
        .json(&json!({ "name": "bench" }))
        .send()
        .await?
        .error_for_status()?;
    let org: serde_json::Value = answer.json().await?;
    let key = org["api_key"]
        .as_str()
        .context("an organisation without an API key")?;
    Ok(key.to_owned())
}
