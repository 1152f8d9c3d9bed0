//! Organisations.
//! Never: an organisation without a key, which nobody could use.

use switchboard_protocol::id::OrgId;

use crate::{ApiKey, NewApiKey, Store, StoreError, api_keys, database::bounded};

impl Store {
    /// Creates an organisation together with its first API key.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the id or the key exists already, else as every query.
    pub async fn create_org(
        &self,
        org: OrgId,
        name: &str,
        first_key: &NewApiKey,
    ) -> Result<ApiKey, StoreError> {
        bounded(async {
            let mut transaction = self.pool.begin().await?;
            sqlx::query!(
                "INSERT INTO orgs (id, name) VALUES ($1, $2)",
                org.uuid(),
                name
            )
            .execute(&mut *transaction)
            .await?;
            let key = api_keys::insert(&mut transaction, org, first_key).await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(key)
        })
        .await
    }
}
