//! Keys that sign access tokens.
//! Invariant: one key signs at a time.

use chrono::{DateTime, Utc};
use secrecy::{ExposeSecret, SecretBox};
use switchboard_protocol::id::OrgId;

use super::{master_keys::Row, wrapped_keys::StoredKey};
use crate::{Store, StoreError, database::with_timeout};

/// An Ed25519 key to insert.
#[derive(Debug)]
pub struct NewSigningKey {
    /// Its key id.
    pub kid: String,
    /// The private key.
    pub seed: SecretBox<[u8; 32]>,
}

/// A stored Ed25519 key.
#[derive(Debug)]
pub struct StoredSigningKey {
    /// Its key id.
    pub kid: String,
    /// The private key.
    pub seed: SecretBox<[u8; 32]>,
    /// Since when it only verifies; `None` for the key that signs.
    pub retired_at: Option<DateTime<Utc>>,
}

impl Store {
    /// All keys that may have signed an unexpired token; the current one first.
    ///
    /// # Errors
    /// [`StoreError::MasterKey`] if one of them is encrypted and cannot be decrypted, or the errors
    /// of the query.
    pub async fn signing_keys(&self) -> Result<Vec<StoredSigningKey>, StoreError> {
        self.read_signing_keys(None).await
    }

    /// The same for a request of an organisation, with a connection of its share.
    ///
    /// # Errors
    /// As [`Self::signing_keys`].
    pub async fn signing_keys_for(&self, org: OrgId) -> Result<Vec<StoredSigningKey>, StoreError> {
        self.read_signing_keys(Some(org)).await
    }

    async fn read_signing_keys(
        &self,
        requester: Option<OrgId>,
    ) -> Result<Vec<StoredSigningKey>, StoreError> {
        let query = sqlx::query!(
            "SELECT kid, seed, wrapped, master_key_id, retired_at FROM signing_keys ORDER BY retired_at DESC NULLS FIRST, kid"
        );
        let rows = with_timeout(async {
            let mut connection = match requester {
                Some(org) => self.system_conn_for(org).await?,
                None => self.system_conn().await?,
            };
            query.fetch_all(&mut *connection).await
        })
        .await?;
        rows.into_iter()
            .map(|row| {
                let stored = StoredKey::from_row(row.seed, row.wrapped, row.master_key_id);
                Ok(StoredSigningKey {
                    seed: stored.open(self.master_keys(), &Row::Signing(&row.kid))?,
                    kid: row.kid,
                    retired_at: row.retired_at,
                })
            })
            .collect()
    }

    /// Stores this key unless one signs already; false if one does. Of several replicas one
    /// succeeds.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn add_first_signing_key(&self, key: &NewSigningKey) -> Result<bool, StoreError> {
        let row = Row::Signing(&key.kid);
        let stored = StoredKey::new(self.master_keys(), &row, key.seed.expose_secret());
        let query = sqlx::query!(
            "INSERT INTO signing_keys (kid, seed, wrapped, master_key_id) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
            key.kid,
            stored.clear(),
            stored.wrapped,
            stored.master_key_id
        );
        Ok(
            with_timeout(async { query.execute(&mut *self.system_conn().await?).await })
                .await?
                .rows_affected()
                > 0,
        )
    }
}
