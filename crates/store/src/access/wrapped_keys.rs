//! Keys in the database: in the clear, or encrypted with a master key.
//!
//! Invariant: a key is written only by a process that has read it, or has generated it.

use std::fmt;

use secrecy::{ExposeSecret, SecretBox, SecretSlice};

use super::master_keys::{MasterKeys, Row, Wrapped};
use crate::{
    Store, StoreError,
    database::{decode_error, with_timeout},
};

/// A key as it is stored: in the clear, or encrypted.
#[derive(Default)]
pub(super) struct StoredKey {
    pub(super) clear: Option<SecretSlice<u8>>,
    pub(super) wrapped: Option<Vec<u8>>,
    pub(super) master_key_id: Option<String>,
}

/// How many keys [`Store::rewrap_keys`] has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewrapped {
    /// All keys.
    pub keys: usize,
    /// Those that were stored in the clear, or encrypted with a former master key.
    pub changed: usize,
}

/// A key that is not 32 bytes long, or is stored neither in the clear nor encrypted.
#[derive(Debug)]
struct BadKey;

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key in the database is not 32 bytes long")
    }
}

impl std::error::Error for BadKey {}

/// A row of either table.
struct KeyRow {
    id: String,
    clear: Option<Vec<u8>>,
    wrapped: Option<Vec<u8>>,
    master_key_id: Option<String>,
}

impl StoredKey {
    /// The key for this row, encrypted if there is a master key.
    pub(super) fn new(master_keys: &MasterKeys, row: &Row<'_>, key: &[u8; 32]) -> Self {
        match master_keys.wrap(row, key) {
            Some(wrapped) => Self {
                wrapped: Some(wrapped.bytes),
                master_key_id: Some(wrapped.master_key_id),
                clear: None,
            },
            None => Self {
                clear: Some(key.to_vec().into()),
                ..Self::default()
            },
        }
    }

    pub(super) fn from_row(
        clear: Option<Vec<u8>>,
        wrapped: Option<Vec<u8>>,
        master_key_id: Option<String>,
    ) -> Self {
        Self {
            clear: clear.map(Into::into),
            wrapped,
            master_key_id,
        }
    }

    pub(super) fn clear(&self) -> Option<&[u8]> {
        self.clear.as_ref().map(ExposeSecret::expose_secret)
    }

    pub(super) fn open(
        self,
        master_keys: &MasterKeys,
        row: &Row<'_>,
    ) -> Result<SecretBox<[u8; 32]>, StoreError> {
        if let (Some(bytes), Some(master_key_id)) = (self.wrapped, self.master_key_id) {
            let wrapped = Wrapped {
                bytes,
                master_key_id,
            };
            return Ok(master_keys.unwrap(row, &wrapped)?);
        }
        let clear = self.clear.ok_or_else(|| decode_error(BadKey))?;
        SecretBox::try_init_with(|| <[u8; 32]>::try_from(clear.expose_secret()))
            .map_err(|_| decode_error(BadKey))
    }
}

impl Store {
    /// Checks that this process can read all keys in the database.
    ///
    /// # Errors
    /// [`StoreError::MasterKey`] if a master key is missing, or the errors of the queries.
    pub async fn check_keys(&self) -> Result<(), StoreError> {
        with_timeout(async {
            let mut connection = self.system_conn().await?;
            let signing = sqlx::query_as!(
                KeyRow,
                "SELECT kid AS id, seed AS clear, wrapped, master_key_id FROM signing_keys"
            )
            .fetch_all(&mut *connection)
            .await?;
            let sealing = sqlx::query_as!(
                KeyRow,
                "SELECT purpose AS id, key AS clear, wrapped, master_key_id FROM sealing_keys"
            )
            .fetch_all(&mut *connection)
            .await?;
            self.replacements(signing, |id| Row::Signing(id))?;
            self.replacements(sealing, |id| Row::Sealing(id))?;
            Ok::<_, StoreError>(())
        })
        .await
    }

    /// Encrypts all keys in the database with the current master key, in one transaction. Without
    /// one, stores them in the clear.
    ///
    /// # Errors
    /// [`StoreError::MasterKey`] if a master key is missing, or the errors of the queries. Nothing
    /// is changed then.
    pub async fn rewrap_keys(&self) -> Result<Rewrapped, StoreError> {
        with_timeout(async {
            let mut transaction = self.begin_system().await?;
            let signing = sqlx::query_as!(
                KeyRow,
                "SELECT kid AS id, seed AS clear, wrapped, master_key_id FROM signing_keys FOR UPDATE"
            )
            .fetch_all(&mut *transaction)
            .await?;
            let sealing = sqlx::query_as!(
                KeyRow,
                "SELECT purpose AS id, key AS clear, wrapped, master_key_id FROM sealing_keys FOR UPDATE"
            )
            .fetch_all(&mut *transaction)
            .await?;
            let keys = signing.len() + sealing.len();
            let signing = self.replacements(signing, |id| Row::Signing(id))?;
            let sealing = self.replacements(sealing, |id| Row::Sealing(id))?;
            let changed = signing.len() + sealing.len();
            for (kid, key) in signing {
                sqlx::query!(
                    "UPDATE signing_keys SET seed = $2, wrapped = $3, master_key_id = $4 WHERE kid = $1",
                    kid,
                    key.clear(),
                    key.wrapped,
                    key.master_key_id
                )
                .execute(&mut *transaction)
                .await?;
            }
            for (purpose, key) in sealing {
                sqlx::query!(
                    "UPDATE sealing_keys SET key = $2, wrapped = $3, master_key_id = $4 WHERE purpose = $1",
                    purpose,
                    key.clear(),
                    key.wrapped,
                    key.master_key_id
                )
                .execute(&mut *transaction)
                .await?;
            }
            transaction.commit().await?;
            Ok::<_, StoreError>(Rewrapped { keys, changed })
        })
        .await
    }

    /// The rows that are not encrypted with the current master key, with what replaces them.
    /// Opens all rows, so that no error is found after a change.
    fn replacements(
        &self,
        rows: Vec<KeyRow>,
        name: impl Fn(&str) -> Row<'_>,
    ) -> Result<Vec<(String, StoredKey)>, StoreError> {
        let master_keys = self.master_keys();
        let mut replacements = Vec::new();
        for row in rows {
            let is_current = row.master_key_id.as_deref() == master_keys.current_id();
            let stored = StoredKey::from_row(row.clear, row.wrapped, row.master_key_id);
            let key = stored.open(master_keys, &name(&row.id))?;
            if !is_current {
                let new = StoredKey::new(master_keys, &name(&row.id), key.expose_secret());
                replacements.push((row.id, new));
            }
        }
        Ok(replacements)
    }
}
