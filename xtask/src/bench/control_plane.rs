//! The control plane with the stores behind it, and an organisation of its own.
//! Never: a store that others use too.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    bed::Bed,
    ours::{Service, switchboard},
    postgres::Postgres,
    server::{Server, redis},
    subject::Servers,
};

/// Ends with all its processes when dropped.
pub(crate) struct ControlPlane {
    pub(crate) control: Service,
    pub(crate) stores: Stores,
    /// An organisation's.
    pub(crate) api_key: String,
}

/// Postgres, up to date, and Redis, with the operator key that goes with them.
pub(crate) struct Stores {
    pub(crate) postgres: Postgres,
    pub(crate) redis: Server,
    operator_key: String,
}

impl Stores {
    pub(crate) async fn start(bed: &Bed<'_>) -> anyhow::Result<Self> {
        let stores = Self {
            postgres: Postgres::start(bed.folder()).await?,
            redis: redis(bed.folder()).await?,
            operator_key: Uuid::new_v4().simple().to_string(),
        };
        stores.migrate(bed).await?;
        Ok(stores)
    }

    /// A service over HTTP that uses them.
    pub(crate) async fn serve(
        &self,
        bed: &Bed<'_>,
        name: &str,
        more: &[&str],
    ) -> anyhow::Result<Service> {
        let redis_url = self.redis.redis_url();
        let arguments = [&[name, "--http-listen", "127.0.0.1:0"], more].concat();
        Service::start(bed, &arguments, &self.environment(&redis_url), "http_url").await
    }

    async fn migrate(&self, bed: &Bed<'_>) -> anyhow::Result<()> {
        let redis_url = self.redis.redis_url();
        let environment = self.environment(&redis_url);
        let mut command = switchboard(bed.switchboard()?, bed.folder(), &environment);
        let output = command.arg("migrate").kill_on_drop(true).output().await?;
        let why = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "switchboard migrate failed: {why}");
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
    /// All processes of it and this edge.
    pub(crate) fn with(&self, edge: &Service) -> Servers {
        vec![
            ("edge", Arc::clone(&edge.process)),
            ("redis", Arc::clone(&self.stores.redis.process)),
            ("control", Arc::clone(&self.control.process)),
            ("postgres", Arc::clone(&self.stores.postgres.process)),
        ]
    }

    pub(crate) async fn start(bed: &Bed<'_>) -> anyhow::Result<Self> {
        let stores = Stores::start(bed).await?;
        let control = stores.serve(bed, "control", &[]).await?;
        let api_key = new_org(&control, &stores.operator_key).await?;
        Ok(Self {
            control,
            stores,
            api_key,
        })
    }
}

/// A new organisation's API key.
async fn new_org(control: &Service, operator_key: &str) -> anyhow::Result<String> {
    let url = format!("http://{}/v1/orgs", control.address);
    let request = reqwest::Client::new().post(url).bearer_auth(operator_key);
    let answer = request
        .json(&json!({ "name": "bench" }))
        .send()
        .await?
        .error_for_status()?;
    let org: Value = answer.json().await?;
    let key = org["api_key"]
        .as_str()
        .context("an organisation without an API key")?;
    Ok(key.to_owned())
}
