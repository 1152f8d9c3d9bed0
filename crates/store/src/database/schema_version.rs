//! The schema version of a database.

use crate::{
    Store, StoreError,
    database::{MIGRATOR, with_timeout},
};

/// The schema version of a database, and the one of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaVersion {
    /// The last applied migration; 0 before the first.
    pub applied: i64,
    /// The last migration of this program.
    pub known: i64,
}

impl Store {
    /// Compares the database's schema version with this program's.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn schema_version(&self) -> Result<SchemaVersion, StoreError> {
        // The migrator creates this table, so no checked query can name it.
        let initialized = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL");
        let initialized: bool = with_timeout(async {
            initialized
                .fetch_one(&mut *self.unscoped_conn().await?)
                .await
        })
        .await?;
        let applied = if initialized {
            let last = "SELECT COALESCE(max(version), 0) FROM _sqlx_migrations WHERE success";
            let last = sqlx::query_scalar(last);
            with_timeout(async { last.fetch_one(&mut *self.unscoped_conn().await?).await }).await?
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
