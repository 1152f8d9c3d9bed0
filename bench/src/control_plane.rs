//! A control plane with private PostgreSQL and Redis servers and one organisation.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    environment::BenchEnv,
    installation::{UNLIMITED, UNREACHABLE_RATE},
    postgres::Postgres,
    server::{Server, redis},
    subject::Servers,
    system::{Service, switchboard},
};

/// Stops all its processes when dropped.
pub(crate) struct ControlPlane {
    pub(crate) control: Service,
    pub(crate) stores: Stores,
    /// API key of the organisation.
    pub(crate) api_key: String,
    /// Id of the organisation.
    pub(crate) org: String,
}

/// A migrated PostgreSQL, Redis, and the operator key for services that use them.
pub(crate) struct Stores {
    pub(crate) postgres: Postgres,
    pub(crate) redis: Server,
    operator_key: String,
}

impl Stores {
    pub(crate) async fn start(bench: &BenchEnv<'_>) -> anyhow::Result<Self> {
        let stores = Self {
            postgres: Postgres::start(bench.folder()).await?,
            redis: redis(bench.folder()).await?,
            operator_key: Uuid::new_v4().simple().to_string(),
        };
        stores.migrate(bench).await?;
        Ok(stores)
    }

    /// Starts an HTTP service that uses these stores.
    pub(crate) async fn serve(
        &self,
        bench: &BenchEnv<'_>,
        name: &str,
        extra: &[&str],
    ) -> anyhow::Result<Service> {
        let redis_url = self.redis.redis_url();
        let arguments = [&[name, "--http-listen", "127.0.0.1:0"], extra].concat();
        Service::start(bench, &arguments, &self.environment(&redis_url), "http_url").await
    }

    async fn migrate(&self, bench: &BenchEnv<'_>) -> anyhow::Result<()> {
        let redis_url = self.redis.redis_url();
        let environment = self.environment(&redis_url);
        let mut command = switchboard(bench.switchboard()?, bench.folder(), &environment);
        let output = command.arg("migrate").kill_on_drop(true).output().await?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "switchboard migrate failed: {stderr}"
        );
        Ok(())
    }

    fn environment<'a>(&'a self, redis_url: &'a str) -> [(&'static str, &'a str); 3] {
        [
            ("DATABASE_URL", &self.postgres.url),
            ("REDIS_URL", redis_url),
            ("SWITCHBOARD_OPERATOR_KEY", &self.operator_key),
        ]
    }
}

impl ControlPlane {
    /// The processes of the control plane, its stores and this edge.
    pub(crate) fn servers(&self, edge: &Service) -> Servers {
        vec![
            ("edge", Arc::clone(&edge.process)),
            ("redis", Arc::clone(&self.stores.redis.process)),
            ("control", Arc::clone(&self.control.process)),
            ("postgres", Arc::clone(&self.stores.postgres.process)),
        ]
    }

    pub(crate) async fn start(bench: &BenchEnv<'_>) -> anyhow::Result<Self> {
        let stores = Stores::start(bench).await?;
        let limits = [
            ["--control-org-rate-per-s", UNREACHABLE_RATE],
            ["--control-org-burst", UNREACHABLE_RATE],
            ["--quota-devices-connected", UNLIMITED],
            ["--quota-devices-known", UNLIMITED],
        ];
        let control = stores
            .serve(bench, "control", limits.as_flattened())
            .await?;
        let (org, api_key) = create_org(&control, &stores.operator_key).await?;
        Ok(Self {
            control,
            stores,
            api_key,
            org,
        })
    }
}

/// Creates an organisation and returns its id and API key.
async fn create_org(control: &Service, operator_key: &str) -> anyhow::Result<(String, String)> {
    let url = format!("http://{}/v1/orgs", control.address);
    let request = reqwest::Client::new().post(url).bearer_auth(operator_key);
    let answer = request
        .json(&json!({ "name": "bench" }))
        .send()
        .await?
        .error_for_status()?;
    let org: Value = answer.json().await?;
    let member = |name: &str| {
        let value = org[name].as_str().map(str::to_owned);
        value.with_context(|| format!("the created organisation has no {name}"))
    };
    Ok((member("org_id")?, member("api_key")?))
}
