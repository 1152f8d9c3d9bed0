//! The versions of PostgreSQL that are supported.
//! Invariant: no migration runs on a server that is older than all of them.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection};

use crate::{Store, StoreError};

/// The oldest supported major version of PostgreSQL: foreign keys set single columns to null
/// (`ON DELETE SET NULL (…)`, since PostgreSQL 15).
pub const MIN_POSTGRES_VERSION: u32 = 15;
/// The newest major version of PostgreSQL that is tested. Newer ones are used with a warning.
pub const MAX_TESTED_POSTGRES_VERSION: u32 = 18;

/// Limits the check, so that an unreachable server does not delay a start for long.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// The version of a PostgreSQL server that is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostgresVersion {
    /// The major version.
    pub major: u32,
}

impl PostgresVersion {
    /// What to warn of when the server is newer than those that are tested.
    #[must_use]
    pub fn warning(self) -> Option<String> {
        let Self { major } = self;
        (major > MAX_TESTED_POSTGRES_VERSION).then(|| {
            format!(
                "the server is PostgreSQL {major}, and versions {MIN_POSTGRES_VERSION} to {MAX_TESTED_POSTGRES_VERSION} are tested"
            )
        })
    }
}

impl Store {
    /// Reads the version of the server.
    ///
    /// # Errors
    /// [`StoreError::UnsupportedPostgres`] if it is too old, [`StoreError::Unavailable`] if there is
    /// no response within 3 s.
    pub async fn postgres_version(&self) -> Result<PostgresVersion, StoreError> {
        let options = self.connections.primary_options().await;
        let connection = PgConnection::connect_with(&options);
        let connection = tokio::time::timeout(CHECK_TIMEOUT, connection).await;
        let connection = connection.map_err(|_| StoreError::Unavailable(None))??;
        let version = check(&connection);
        // The version is known whether or not the server confirms the end.
        drop(connection.close().await);
        version
    }
}

/// Returns the version of the server that this connection leads to.
///
/// # Errors
/// [`StoreError::UnsupportedPostgres`] if it is too old.
pub(super) fn check(connection: &PgConnection) -> Result<PostgresVersion, StoreError> {
    // 150014 is 15.14. A server that does not report its version is of another make.
    let number = connection.server_version_num().unwrap_or_default();
    supported(number / 10_000)
}

const fn supported(major: u32) -> Result<PostgresVersion, StoreError> {
    if major < MIN_POSTGRES_VERSION {
        return Err(StoreError::UnsupportedPostgres { found: major });
    }
    Ok(PostgresVersion { major })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_outside_of_the_range_names_both_versions() {
        let old = supported(MIN_POSTGRES_VERSION - 1).unwrap_err().to_string();
        assert!(old.contains("PostgreSQL 14") && old.contains("15"), "{old}");
        for major in [MIN_POSTGRES_VERSION, MAX_TESTED_POSTGRES_VERSION] {
            assert_eq!(supported(major).unwrap().warning(), None);
        }
        let new = supported(MAX_TESTED_POSTGRES_VERSION + 1).unwrap();
        let warning = new.warning().unwrap();
        assert!(
            warning.contains("PostgreSQL 19") && warning.contains("18"),
            "{warning}"
        );
    }
}
