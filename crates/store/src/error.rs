//! What can go wrong between a process and its database, sorted by what the caller can do about it.
//! Never: SQL, values or the server's words in what may leave the process.

use sqlx::{migrate::MigrateError, postgres::PgDatabaseError};

use crate::connections::NoRole;

/// The store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Not reachable, shutting down, overloaded or too slow: the same request may succeed in a moment.
    #[error("the database is not reachable")]
    Unavailable(#[source] Option<sqlx::Error>),
    /// Something with this identity exists already.
    #[error("the database holds a row that excludes this one")]
    Conflict(#[source] sqlx::Error),
    /// The values break a constraint or cannot be stored; asking again changes nothing.
    #[error("the database refuses these values")]
    Refused(#[source] sqlx::Error),
    /// The database is older than this program.
    #[error("the database lacks tables, columns or roles: run `switchboard migrate`")]
    NotMigrated(#[source] sqlx::Error),
    /// The database is newer than this program.
    #[error(
        "the database was migrated by a newer version (migration {version} is unknown here): \
         run that version, or restore a backup"
    )]
    FromTheFuture {
        /// The first migration that this program does not know.
        version: i64,
    },
    /// A migration could not be applied.
    #[error("a migration failed; the database is as before it")]
    Migration(#[source] MigrateError),
    /// A setting that is missing or cannot be read.
    #[error("{0}")]
    Setting(&'static str),
    /// Our bug, or a database that was changed by hand.
    #[error("the database answered something that was not expected")]
    Unexpected(#[source] sqlx::Error),
}

impl StoreError {
    /// What kind of failure it is, also the metric label.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Conflict(_) => "conflict",
            Self::Refused(_) => "refused",
            Self::NotMigrated(_) => "not_migrated",
            Self::FromTheFuture { .. } => "from_the_future",
            Self::Migration(_) => "migration",
            Self::Setting(_) => "setting",
            Self::Unexpected(_) => "unexpected",
        }
    }

    /// All that may leave the process.
    #[must_use]
    pub const fn public(&self) -> &'static str {
        match self {
            Self::Unavailable(_) | Self::NotMigrated(_) | Self::FromTheFuture { .. } => {
                "the settings are not available at the moment"
            }
            Self::Conflict(_) => "something with this identity exists already",
            Self::Refused(_) => "a value cannot be stored",
            Self::Migration(_) | Self::Setting(_) | Self::Unexpected(_) => {
                "this is a fault of the server"
            }
        }
    }

    /// Whether the same request may succeed in a moment, without anybody doing anything to it.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
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
            sqlx::Error::Database(answer) => answer.code().map(|code| code.into_owned()),
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => return Self::Unavailable(Some(error)),
            sqlx::Error::Configuration(cause) if cause.is::<NoRole>() => {
                return Self::NotMigrated(error);
            }
            _ => None,
        };
        match code.as_deref() {
            // The role is there, by way of another database, and has no table here. A row that it may not write has
            // the same code.
            Some("42501") if routine(&error) == Some("aclcheck_error") => Self::NotMigrated(error),
            Some(code) => Self::from_sqlstate(code, error),
            None => Self::Unexpected(error),
        }
    }
}

/// Where in the server an error arose.
fn routine(error: &sqlx::Error) -> Option<&str> {
    let answer = error.as_database_error()?;
    answer.try_downcast_ref::<PgDatabaseError>()?.routine()
}

impl StoreError {
    /// Sorts by the classes of PostgreSQL's appendix A.
    fn from_sqlstate(code: &str, error: sqlx::Error) -> Self {
        match code {
            "23505" | "23P01" => Self::Conflict(error),
            "42P01" | "42703" => Self::NotMigrated(error),
            // The database itself is missing: somebody is about to create it, or the address is wrong.
            "3D000" => Self::Unavailable(Some(error)),
            _ => match code.get(..2) {
                // Bad data, broken constraints, over a limit of the server's.
                Some("22" | "23" | "54") => Self::Refused(error),
                // Connection, rollback by a deadlock, resources, a closed database, operator intervention, the server's disk.
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
                Self::FromTheFuture { version }
            }
            MigrateError::Execute(error) => Self::from(error),
            other => Self::Migration(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstates_are_sorted_by_what_the_caller_can_do() {
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
        check("42601", "unexpected");
        check("XX000", "unexpected");
        check("", "unexpected");
    }

    #[test]
    fn a_newer_database_is_told_apart_from_a_broken_migration() {
        let newer = StoreError::from(MigrateError::VersionMissing(12));
        assert_eq!(newer.kind(), "from_the_future");
        assert!(newer.to_string().contains("migration 12"));
        assert_eq!(
            StoreError::from(MigrateError::VersionMismatch(1)).kind(),
            "migration"
        );
    }

    #[test]
    fn the_causes_are_in_the_report_and_not_in_the_message() {
        let error = StoreError::from(sqlx::Error::PoolTimedOut);
        assert!(!error.to_string().contains("pool"));
        assert!(error.report().contains("pool timed out"));
    }
}
