//! Keys that seal state which clients carry, one per purpose.
//! Invariant: all nodes agree on one key per purpose.

use secrecy::{ExposeSecret, SecretBox};

use super::{master_keys::Row, wrapped_keys::StoredKey};
use crate::{Store, StoreError, database::with_timeout};

impl Store {
    /// The key for this purpose: 32 bytes, the same on every node. Stores `fresh` if there is none.
    ///
    /// # Errors
    /// [`StoreError::MasterKey`] if the key is encrypted and cannot be decrypted, or the errors of
    /// the queries.
    pub async fn sealing_key(
        &self,
        purpose: &str,
        fresh: &SecretBox<[u8; 32]>,
    ) -> Result<SecretBox<Vec<u8>>, StoreError> {
        let row = Row::Sealing(purpose);
        let fresh = StoredKey::new(self.master_keys(), &row, fresh.expose_secret());
        let insert = sqlx::query!(
            "INSERT INTO sealing_keys (purpose, key, wrapped, master_key_id) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
            purpose,
            fresh.clear(),
            fresh.wrapped,
            fresh.master_key_id
        );
        with_timeout(async { insert.execute(&mut *self.system_conn().await?).await }).await?;
        let stored = self.existing_sealing_key(purpose).await?;
        stored.ok_or(StoreError::Unavailable(None))
    }

    /// The key for this purpose, if there is one; see [`Self::sealing_key`].
    ///
    /// # Errors
    /// As [`Self::sealing_key`].
    pub async fn existing_sealing_key(
        &self,
        purpose: &str,
    ) -> Result<Option<SecretBox<Vec<u8>>>, StoreError> {
        let select = sqlx::query!(
            "SELECT key, wrapped, master_key_id FROM sealing_keys WHERE purpose = $1",
            purpose
        );
        let stored =
            with_timeout(async { select.fetch_optional(&mut *self.system_conn().await?).await });
        let Some(stored) = stored.await? else {
            return Ok(None);
        };
        let stored = StoredKey::from_row(stored.key, stored.wrapped, stored.master_key_id);
        let key = stored.open(self.master_keys(), &Row::Sealing(purpose))?;
        Ok(Some(SecretBox::new(Box::new(key.expose_secret().to_vec()))))
    }
}
