//! The keys that access tokens are signed with.
//! Never: two keys that sign at the same time.

use std::fmt;

use chrono::{DateTime, Utc};
use secrecy::SecretBox;

use crate::{Store, StoreError, database::bounded};

/// An Ed25519 key about to be stored.
#[derive(Debug)]
pub struct NewSigningKey {
    /// Its public name.
    pub kid: String,
    /// The private key.
    pub seed: SecretBox<[u8; 32]>,
}

/// An Ed25519 key as it is stored.
#[derive(Debug)]
pub struct StoredSigningKey {
    /// Its public name.
    pub kid: String,
    /// The private key.
    pub seed: SecretBox<[u8; 32]>,
    /// Since when it only verifies; `None` for the one that signs.
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
    /// All keys that may have signed a living token; the one that signs now comes first.
    ///
    /// # Errors
    /// As every query.
    pub async fn signing_keys(&self) -> Result<Vec<StoredSigningKey>, StoreError> {
        let query = sqlx::query!(
            "SELECT kid, seed, retired_at FROM signing_keys ORDER BY retired_at DESC NULLS FIRST, kid"
        );
        let rows = bounded(async { query.fetch_all(&mut *self.throughout().await?).await }).await?;
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

    /// Stores this key unless one signs already; false when one did. Of several replicas one succeeds.
    ///
    /// # Errors
    /// As every query.
    pub async fn add_first_signing_key(&self, key: &NewSigningKey) -> Result<bool, StoreError> {
        let seed: &[u8] = secrecy::ExposeSecret::expose_secret(&key.seed);
        let query = sqlx::query!(
            "INSERT INTO signing_keys (kid, seed) VALUES ($1, $2) ON CONFLICT DO NOTHING",
            key.kid,
            seed
        );
        Ok(
            bounded(async { query.execute(&mut *self.throughout().await?).await })
                .await?
                .rows_affected()
                > 0,
        )
    }
}
