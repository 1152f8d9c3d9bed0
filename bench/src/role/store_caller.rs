//! Runs the SQL statements of the control plane through the store, without HTTP.

use anyhow::{Context as _, ensure};
use clap::Args;
use secrecy::SecretString;
use switchboard_catalog::TemplateSettings;
use switchboard_protocol::id::{OrgId, TemplateId};
use switchboard_store::{Owner, Store, TemplateWrite};
use uuid::Uuid;

use super::closed_loop::Caller;
use crate::settings::{Operation, template};

/// Address of the database and the operation to repeat.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// `postgres://…`
    #[arg(long)]
    database_url: SecretString,
    /// Organisation of the templates
    #[arg(long)]
    org: OrgId,
    /// Operation to repeat
    #[arg(long)]
    operation: Operation,
    /// Id of the template to read
    #[arg(long)]
    template: TemplateId,
}

/// A caller that uses its own store.
pub(super) struct StoreCaller {
    store: Store,
    owner: Owner,
    operation: Operation,
    template: TemplateId,
    settings: TemplateSettings,
}

impl StoreCaller {
    pub(super) async fn start(options: Options) -> anyhow::Result<Self> {
        Ok(Self {
            store: Store::open(&options.database_url)?,
            owner: Owner::Org(options.org),
            operation: options.operation,
            template: options.template,
            settings: serde_json::from_value(template())?,
        })
    }

    async fn read(&self) -> anyhow::Result<()> {
        let found = self.store.template(self.owner, self.template).await?;
        found.map(drop).context("the template was not found")
    }

    async fn write(&self) -> anyhow::Result<()> {
        let id = TemplateId::from_uuid(Uuid::now_v7());
        let written = self
            .store
            .create_template(self.owner, id, &self.settings)
            .await?;
        ensure!(
            matches!(written, TemplateWrite::Written(_)),
            "unexpected result {written:?}"
        );
        Ok(())
    }
}

impl Caller for StoreCaller {
    async fn call(&self, _worker: usize, _sequence: u64) -> anyhow::Result<()> {
        match self.operation {
            Operation::Read => self.read().await,
            Operation::Write => self.write().await,
        }
    }
}
