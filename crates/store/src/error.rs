//! Errors of the database, classified by what the caller can do about them.
//! Invariant: [`StoreError::public`] contains no SQL, values or messages of the server.

use std::borrow::Cow;

use sqlx::{migrate::MigrateError, postgres::PgDatabaseError};

use crate::{
    MasterKeyError,
    database::{connections::MissingRole, server_version::MIN_POSTGRES_VERSION},
};

/// An error of the database.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Unreachable, shutting down, overloaded or too slow: the same request may succeed later.
    #[error("the database is not reachable")]
    Unavailable(#[source] Option<sqlx::Error>),
    /// A row with this identity exists.
    #[error("the database contains a conflicting row")]
    Conflict(#[source] sqlx::Error),
    /// The values violate a constraint or cannot be stored; repeating the request is useless.
    #[error("the database rejected these values")]
    Refused(#[source] sqlx::Error),
    /// The database is older than this program.
    #[error("the database lacks tables, columns or roles: run `switchboard migrate`")]
    NotMigrated(#[source] sqlx::Error),
    /// The database is newer than this program.
    #[error(
        "the database was migrated by a newer version (migration {version} is unknown here): \
         run that version, or restore a backup"
    )]
    NewerSchema {
        /// The first migration that is unknown to this program.
        version: i64,
    },
    /// The server is older than all supported versions of PostgreSQL.
    #[error(
        "the server is PostgreSQL {found}, and PostgreSQL {MIN_POSTGRES_VERSION} or newer is \
         required: upgrade the server, or set DATABASE_URL to a newer one"
    )]
    UnsupportedPostgres {
        /// The server's major version; 0 if it does not report one.
        found: u32,
    },
    /// A migration waited too long for a lock.
    #[error(
        "migration {version} was rolled back: a statement or transaction of another process kept one \
         of its tables locked. Nothing was changed: repeat `switchboard migrate`, at a time without \
         backups and long queries (`SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY \
         xact_start` lists them)"
    )]
    MigrationBlocked {
        /// The migration.
        version: i64,
    },
    /// A migration failed.
    #[error("a migration failed and was rolled back")]
    Migration(#[source] MigrateError),
    /// A setting is missing or invalid.
    #[error("{0}")]
    Setting(&'static str),
    /// A key in the database is encrypted, and cannot be decrypted.
    #[error("a key in the database cannot be decrypted")]
    MasterKey(#[from] MasterKeyError),
    /// A bug, or a database that was changed by hand.
    #[error("the database returned an unexpected result")]
    Unexpected(#[source] sqlx::Error),
}

impl StoreError {
    /// The kind of the error, also a metric label.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Conflict(_) => "conflict",
            Self::Refused(_) => "refused",
            Self::NotMigrated(_) => "not_migrated",
            Self::NewerSchema { .. } => "from_the_future",
            Self::UnsupportedPostgres { .. } => "unsupported_postgres",
            Self::MigrationBlocked { .. } | Self::Migration(_) => "migration",
            Self::Setting(_) => "setting",
            Self::MasterKey(_) => "master_key",
            Self::Unexpected(_) => "unexpected",
        }
    }

    /// The message that may leave the process.
    #[must_use]
    pub const fn public(&self) -> &'static str {
        match self {
            Self::Unavailable(_)
            | Self::NotMigrated(_)
            | Self::NewerSchema { .. }
            | Self::UnsupportedPostgres { .. } => "the database is unavailable at the moment",
            Self::Conflict(_) => "a resource with this identity exists already",
            Self::Refused(_) => "a value cannot be stored",
            Self::MigrationBlocked { .. }
            | Self::Migration(_)
            | Self::Setting(_)
            | Self::MasterKey(_)
            | Self::Unexpected(_) => "this is an internal error of the server",
        }
    }

    /// Whether the same request may succeed later without a change.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }

    /// Whether a statement for several rows failed because of one: its values, or its lock.
    pub(crate) fn is_of_a_row(&self) -> bool {
        match self {
            Self::Conflict(_) | Self::Refused(_) => true,
            // A deadlock, and the timeout of a lock.
            Self::Unavailable(Some(error)) => {
                matches!(sqlstate(error).as_deref(), Some("40P01" | "55P03"))
            }
            _ => false,
        }
    }

    /// The error and all its causes on one line, for the log.
    #[must_use]
    pub fn report(&self) -> String {
        report(self)
    }
}

/// An error and all its causes on one line.
pub(crate) fn report(error: &dyn std::error::Error) -> String {
    let mut report = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        report.push_str(": ");
        report.push_str(&error.to_string());
        cause = error.source();
    }
    report
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let code = match &error {
            sqlx::Error::Database(error_response) => {
                error_response.code().map(|code| code.into_owned())
            }
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => return Self::Unavailable(Some(error)),
            sqlx::Error::Configuration(cause) if cause.is::<MissingRole>() => {
                return Self::NotMigrated(error);
            }
            _ => None,
        };
        match code.as_deref() {
            // The role exists because of another database on this server, but has no rights here. A
            // rejected write to a row has the same code.
            Some("42501") if routine(&error) == Some("aclcheck_error") => Self::NotMigrated(error),
            Some(code) => Self::from_sqlstate(code, error),
            None => Self::Unexpected(error),
        }
    }
}

/// The function of the server that raised the error.
fn routine(error: &sqlx::Error) -> Option<&str> {
    let error_response = error.as_database_error()?;
    error_response
        .try_downcast_ref::<PgDatabaseError>()?
        .routine()
}

impl StoreError {
    /// Classifies by the codes in appendix A of PostgreSQL's manual.
    fn from_sqlstate(code: &str, error: sqlx::Error) -> Self {
        match code {
            "23505" | "23P01" => Self::Conflict(error),
            "42P01" | "42703" => Self::NotMigrated(error),
            // The database does not exist: it is about to be created, or the URL is wrong.
            "3D000" => Self::Unavailable(Some(error)),
            // The server accepts no writes: a standby, or a primary that is being replaced.
            "25006" => Self::Unavailable(Some(error)),
            _ => match code.get(..2) {
                // Invalid data, violated constraints, exceeded limits of the server.
                Some("22" | "23" | "54") => Self::Refused(error),
                // Connection errors, deadlocks, resources, closed database, operator intervention,
                // system errors.
                Some("08" | "40" | "53" | "55" | "57" | "58") => Self::Unavailable(Some(error)),
                _ => Self::Unexpected(error),
            },
        }
    }
}

impl From<MigrateError> for StoreError {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::VersionMissing(version) | MigrateError::VersionTooNew(version, _) => {
                Self::NewerSchema { version }
            }
            MigrateError::Execute(error) => Self::from(error),
            MigrateError::ExecuteMigration(error, version)
                if sqlstate(&error).as_deref() == Some("55P03") =>
            {
                Self::MigrationBlocked { version }
            }
            other => Self::Migration(other),
        }
    }
}

fn sqlstate(error: &sqlx::Error) -> Option<Cow<'_, str>> {
    error.as_database_error()?.code()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstates_map_to_kinds() {
        fn check(code: &str, kind: &str) {
            let error = StoreError::from_sqlstate(code, sqlx::Error::RowNotFound);
            assert_eq!(error.kind(), kind, "{code}");
        }
        check("23505", "conflict");
        check("23503", "refused");
        check("22P02", "refused");
        check("22021", "refused");
        check("42P01", "not_migrated");
        check("57P01", "unavailable");
        check("57P03", "unavailable");
        check("57014", "unavailable");
        check("40P01", "unavailable");
        check("53300", "unavailable");
        check("25006", "unavailable");
        check("42601", "unexpected");
        check("XX000", "unexpected");
        check("", "unexpected");
    }

    #[test]
    fn newer_database_is_not_a_failed_migration() {
        let newer = StoreError::from(MigrateError::VersionMissing(12));
        assert_eq!(newer.kind(), "from_the_future");
        assert!(newer.to_string().contains("migration 12"));
        assert_eq!(
            StoreError::from(MigrateError::VersionMismatch(1)).kind(),
            "migration"
        );
    }

    #[test]
    fn report_contains_causes_message_does_not() {
        let error = StoreError::from(sqlx::Error::PoolTimedOut);
        assert!(!error.to_string().contains("pool"));
        assert!(error.report().contains("pool timed out"));
    }
}
