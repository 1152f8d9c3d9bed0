//! Whether the database keeps organisations apart by itself.
//! Never: a row of anybody's; only the catalogue is looked at.

use crate::{Store, StoreError, database::bounded};

/// How the database keeps organisations apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSecurity {
    /// The role that statements run under.
    pub role: String,
    /// Whether that role is above row security, or owns tables.
    pub is_above: bool,
    /// Tables without forced row security, but for the migrator's own.
    pub open_tables: Vec<String>,
}

impl Store {
    /// Looks at the catalogue.
    ///
    /// # Errors
    /// [`StoreError::NotMigrated`] when there is no such role or this account may not be it, else as every query.
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
            bounded(async { query.fetch_one(&mut *self.throughout().await?).await }).await?;
        Ok(RowSecurity {
            role: found.role,
            is_above: found.is_above,
            open_tables: found.open_tables,
        })
    }
}
