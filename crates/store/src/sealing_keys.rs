//! The keys that state is sealed with on its way through clients, one for each purpose.
//! Never: two keys for one purpose; replicas that start together agree on the first.

use secrecy::{ExposeSecret, SecretBox};

use crate::{Store, StoreError, database::bounded};

impl Store {
    /// The key for this purpose: 32 bytes, the same for every node. `fresh` becomes it if there was none.
    ///
    /// # Errors
    /// As every query.
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
        bounded(async { insert.execute(&mut *self.throughout().await?).await }).await?;
        let select =
            sqlx::query_scalar!("SELECT key FROM sealing_keys WHERE purpose = $1", purpose);
        let key = bounded(async { select.fetch_one(&mut *self.throughout().await?).await }).await?;
        Ok(SecretBox::new(Box::new(key)))
    }
}
