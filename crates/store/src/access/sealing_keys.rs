//! Keys that seal state which clients carry, one per purpose.
//! Invariant: all nodes agree on one key per purpose.

use secrecy::{ExposeSecret, SecretBox};

use crate::{Store, StoreError, database::with_timeout};

impl Store {
    /// The key for this purpose: 32 bytes, the same on every node. Stores `fresh` if there is none.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn sealing_key(
        &self,
        purpose: &str,
        fresh: &SecretBox<[u8; 32]>,
    ) -> Result<SecretBox<Vec<u8>>, StoreError> {
        let fresh: &[u8] = fresh.expose_secret();
        let insert = sqlx::query!(
            "INSERT INTO sealing_keys (purpose, key) VALUES ($1, $2) ON CONFLICT DO NOTHING",
            purpose,
            fresh
        );
        with_timeout(async { insert.execute(&mut *self.system_conn().await?).await }).await?;
        let select =
            sqlx::query_scalar!("SELECT key FROM sealing_keys WHERE purpose = $1", purpose);
        let key =
            with_timeout(async { select.fetch_one(&mut *self.system_conn().await?).await }).await?;
        Ok(SecretBox::new(Box::new(key)))
    }
}
