//! How far a database has been migrated.
//! Never: a change to it.

use crate::{
    Store, StoreError,
    database::{MIGRATOR, bounded},
};

/// A database's schema, next to the one this program works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaVersion {
    /// The last migration that the database has seen; 0 before the first.
    pub applied: i64,
    /// The last migration of this program.
    pub known: i64,
}

impl Store {
    /// Compares the database's schema with this program's.
    ///
    /// # Errors
    /// As every query.
    pub async fn schema_version(&self) -> Result<SchemaVersion, StoreError> {
        // Written by the migrator itself, so that no checked query can know the table.
        let begun = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL");
        let begun: bool =
            bounded(async { begun.fetch_one(&mut *self.outside().await?).await }).await?;
        let applied = if begun {
            let last = "SELECT COALESCE(max(version), 0) FROM _sqlx_migrations WHERE success";
            let last = sqlx::query_scalar(last);
            bounded(async { last.fetch_one(&mut *self.outside().await?).await }).await?
        } else {
            0
        };
        let known = MIGRATOR
            .iter()
            .map(|step| step.version)
            .max()
            .unwrap_or_default();
        Ok(SchemaVersion { applied, known })
    }
}
