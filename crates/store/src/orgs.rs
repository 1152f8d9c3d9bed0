//! Organisations.
//! Never: an organisation without a key, which nobody could use.

use switchboard_protocol::id::OrgId;

use crate::{ApiKey, Creation, NewApiKey, Store, StoreError, api_keys, database::bounded};

impl Store {
    /// As [`Creation::create_org`], in a transaction of its own.
    ///
    /// # Errors
    /// As there.
    pub async fn create_org(
        &self,
        org: OrgId,
        name: &str,
        first_key: &NewApiKey,
    ) -> Result<ApiKey, StoreError> {
        let mut creation = self.begin().await?;
        let key = creation.create_org(org, name, first_key).await?;
        creation.commit().await?;
        Ok(key)
    }
}

impl Creation {
    /// Creates an organisation together with its first API key.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the id or the key exists already, else as every query.
    pub async fn create_org(
        &mut self,
        org: OrgId,
        name: &str,
        first_key: &NewApiKey,
    ) -> Result<ApiKey, StoreError> {
        bounded(async {
            sqlx::query!(
                "INSERT INTO orgs (id, name) VALUES ($1, $2)",
                org.uuid(),
                name
            )
            .execute(self.connection())
            .await?;
            api_keys::insert(self.connection(), org, first_key).await
        })
        .await
    }
}
