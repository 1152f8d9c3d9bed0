//! Keys that sign access tokens.
//! Invariant: one key signs at a time.

use std::fmt;

use chrono::{DateTime, Utc};
use secrecy::SecretBox;

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

/// A stored seed that is not 32 bytes long.
#[derive(Debug)]
struct SeedLength;

impl fmt::Display for SeedLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a signing key is not 32 bytes long")
    }
}

impl std::error::Error for SeedLength {}

impl Store {
    /// All keys that may have signed an unexpired token; the current one first.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn signing_keys(&self) -> Result<Vec<StoredSigningKey>, StoreError> {
        let query = sqlx::query!(
            "SELECT kid, seed, retired_at FROM signing_keys ORDER BY retired_at DESC NULLS FIRST, kid"
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await }).await?;
        rows.into_iter()
            .map(|row| {
                let seed = <[u8; 32]>::try_from(row.seed).map_err(|_| {
                    StoreError::Unexpected(sqlx::Error::Decode(Box::new(SeedLength)))
                })?;
                Ok(StoredSigningKey {
                    kid: row.kid,
                    seed: SecretBox::new(Box::new(seed)),
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
        let seed: &[u8] = secrecy::ExposeSecret::expose_secret(&key.seed);
        let query = sqlx::query!(
            "INSERT INTO signing_keys (kid, seed) VALUES ($1, $2) ON CONFLICT DO NOTHING",
            key.kid,
            seed
        );
        Ok(
            with_timeout(async { query.execute(&mut *self.system_conn().await?).await })
                .await?
                .rows_affected()
                > 0,
        )
    }
}
