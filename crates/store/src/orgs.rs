//! Organisations.
//! Never: an organisation without a key, which nobody could use.

use switchboard_protocol::id::OrgId;

use crate::{
    ApiKey, Creation, NewApiKey, Owner, Store, StoreError, api_keys, connections::speak_within,
    database::bounded,
};

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
        let mut creation = self.begin(Owner::Installation).await?;
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
        let owner = self.owner();
        bounded(async {
            speak_within(self.connection(), org).await?;
            sqlx::query!(
                "INSERT INTO orgs (id, name) VALUES ($1, $2)",
                org.uuid(),
                name
            )
            .execute(self.connection())
            .await?;
            let key = api_keys::insert(self.connection(), org, first_key).await?;
            speak_within(self.connection(), owner).await?;
            Ok::<_, sqlx::Error>(key)
        })
        .await
    }
}
