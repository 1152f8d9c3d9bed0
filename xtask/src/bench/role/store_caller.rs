//! Makes the statements of the control plane by itself: what the database takes, without HTTP in front of it.
//! Never: a statement of its own; the store's are the ones that are measured.

use anyhow::{Context as _, ensure};
use clap::Args;
use secrecy::SecretString;
use switchboard_protocol::id::{OrgId, TemplateId};
use switchboard_store::{Owner, Store, TemplateSettings, TemplateWrite};
use uuid::Uuid;

use super::closed_loop::Caller;
use crate::bench::settings::{Operation, template};

/// Where the database is, and what is done there.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// `postgres://…`
    #[arg(long)]
    database_url: SecretString,
    /// Whose templates
    #[arg(long)]
    org: OrgId,
    /// What is done over and over
    #[arg(long)]
    operation: Operation,
    /// The template that is read
    #[arg(long)]
    template: TemplateId,
}

/// A store that only this process uses.
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
        found.map(drop).context("the template is not there")
    }

    async fn write(&self) -> anyhow::Result<()> {
        let id = TemplateId::from_uuid(Uuid::now_v7());
        let written = self
            .store
            .create_template(self.owner, id, &self.settings)
            .await?;
        ensure!(
            matches!(written, TemplateWrite::Written(_)),
            "ended as {written:?}"
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
