//! Latency from a model's first output, of a fake provider, to the device: with nodes, and in one `up`.

use anyhow::Context as _;

use super::{
    control_plane::ControlPlane,
    environment::BenchEnv,
    postgres::Postgres,
    report::Report,
    server::free_address,
    subject::{Subject, run_rounds},
    system::{Service, UNLIMITED_TURNS, edge},
    worker::Worker,
};

/// Numbers of turns in flight, one row per subject.
const IN_FLIGHT: [u32; 2] = [1, 16];
pub(crate) const SEPARATE_SERVICES: &str = "Switchboard, a model's word";
pub(crate) const SINGLE_PROCESS: &str = "the same within `up`";

/// Measures both subjects in turn.
pub(crate) async fn measure(bench: &BenchEnv<'_>, report: &mut Report) -> anyhow::Result<()> {
    let mut subjects = [
        separate_services(bench).await?,
        single_process(bench).await?,
    ];
    for in_flight in IN_FLIGHT {
        let measured = run_rounds(&mut subjects, in_flight, bench.options).await?;
        report.chat.extend(measured);
    }
    Ok(())
}

/// Path: provider → chat → Redis → edge → device.
pub(crate) async fn separate_services(bench: &BenchEnv<'_>) -> anyhow::Result<Subject> {
    let plane = ControlPlane::start(bench).await?;
    let edge = edge(bench, &plane.stores.redis).await?;
    let provider = ProviderAddress::new()?;
    let chat = plane
        .stores
        .serve(bench, "chat", &provider.arguments())
        .await?;
    let endpoints = Endpoints {
        devices: edge.address.to_string(),
        control: plane.control.address.to_string(),
        api_key: plane.api_key.clone(),
    };
    Ok(Subject {
        name: SEPARATE_SERVICES,
        caller: endpoints.caller(bench, &["turn-caller"], &provider).await?,
        devices: None,
        servers: [vec![("chat", chat.process)], plane.servers(&edge)].concat(),
        counts_caller: false,
        counts_devices: false,
    })
}

/// Path: provider → `up` → device.
async fn single_process(bench: &BenchEnv<'_>) -> anyhow::Result<Subject> {
    let postgres = Postgres::start(bench.folder()).await?;
    let provider = ProviderAddress::new()?;
    let data = bench.folder().join("up");
    let data = data.to_str().context("folder name is not valid UTF-8")?;
    let arguments = ["up", "--data-dir", data];
    let arguments = [
        &arguments[..],
        &["--device-listen", "127.0.0.1:0"],
        &["--http-listen", "127.0.0.1:0"],
        &UNLIMITED_TURNS,
        &provider.arguments(),
    ];
    let environment = [("DATABASE_URL", postgres.url.as_str())];
    let up = Service::start(bench, &arguments.concat(), &environment, "http_url").await?;
    let member = |name: &str| {
        let value = up.ready[name].as_str().map(str::to_owned);
        value.with_context(|| format!("no {name} in {}", up.ready))
    };
    let endpoints = Endpoints {
        devices: member("device_addr")?,
        control: up.address.to_string(),
        api_key: member("api_key")?,
    };
    Ok(Subject {
        name: SINGLE_PROCESS,
        caller: endpoints.caller(bench, &["turn-caller"], &provider).await?,
        devices: None,
        servers: vec![("up", up.process), ("postgres", postgres.process)],
        counts_caller: false,
        counts_devices: false,
    })
}

/// Addresses of the fake providers, which run in the caller process.
pub(crate) struct ProviderAddress {
    listen: String,
    pub(crate) endpoint: String,
}

impl ProviderAddress {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let address = free_address()?;
        Ok(Self {
            listen: address.to_string(),
            endpoint: format!("http://{address}/v1"),
        })
    }

    /// Arguments of a service that uses the model.
    pub(crate) fn arguments(&self) -> [&str; 6] {
        [
            // All turns are of one organisation, which has a quarter.
            "--chat-turns",
            "512",
            "--completions-endpoint",
            &self.endpoint,
            "--completions-model",
            "fake-model",
        ]
    }
}

/// Addresses that devices connect to and get their tokens from.
pub(crate) struct Endpoints {
    pub(crate) devices: String,
    pub(crate) control: String,
    pub(crate) api_key: String,
}

impl Endpoints {
    /// Starts a caller with this role and its own arguments.
    pub(crate) async fn caller(
        &self,
        bench: &BenchEnv<'_>,
        role: &[&str],
        provider: &ProviderAddress,
    ) -> anyhow::Result<Worker> {
        let token_url = format!("http://{}/v1/tokens", self.control);
        let arguments = [
            "--listen",
            &provider.listen,
            "--address",
            &self.devices,
            "--token-url",
            &token_url,
            "--api-key",
            &self.api_key,
        ];
        bench.worker(&[role, &arguments].concat()).await
    }
}
