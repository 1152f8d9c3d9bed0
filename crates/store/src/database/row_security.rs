//! Checks that row-level security is in effect. Reads only the system catalogue.

use crate::{Store, StoreError, database::with_timeout};

/// The state of row-level security.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSecurity {
    /// The role that statements run under.
    pub role: String,
    /// Whether that role bypasses row-level security, or owns tables.
    pub bypasses_policies: bool,
    /// Tables without forced row-level security, except the migrator's own.
    pub open_tables: Vec<String>,
}

impl Store {
    /// Reads the state of row-level security from the system catalogue.
    ///
    /// # Errors
    /// [`StoreError::NotMigrated`] if the role is missing or not granted, or any other
    /// [`StoreError`].
    pub async fn row_security(&self) -> Result<RowSecurity, StoreError> {
        let query = sqlx::query!(
            r#"SELECT rolname::text AS "role!",
                      (rolsuper OR rolbypassrls OR EXISTS (SELECT FROM pg_class WHERE relowner = r.oid)) AS "is_above!",
                      ARRAY(SELECT relname::text FROM pg_class
                            WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace
                                  AND relname <> '_sqlx_migrations' AND NOT (relrowsecurity AND relforcerowsecurity)
                            ORDER BY relname) AS "open_tables!"
               FROM pg_roles r WHERE rolname = current_user"#
        );
        let found =
            with_timeout(async { query.fetch_one(&mut *self.system_conn().await?).await }).await?;
        Ok(RowSecurity {
            role: found.role,
            bypasses_policies: found.is_above,
            open_tables: found.open_tables,
        })
    }
}
