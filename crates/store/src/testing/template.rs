//! One migrated database for each schema on a server: those of tests are copies of it.
//! Never: a connection to one, or the name of one on a database that is not whole.

use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Connection, PgConnection, postgres::PgConnectOptions};

use super::{TestDatabase, administer};
use crate::{StoreError, database::MIGRATOR};

/// How the names of all templates begin.
const PREFIX: &str = "switchboard_template_";
/// Held by whoever makes a template: a number that is nobody else's.
const MAKING: i64 = 0x7377_6974_6368_0001;
/// How many an account keeps on a server, of as many schemas: protects the disk. One that is missed is made again.
const KEPT: i64 = 8;

/// What this program's schema is called, as this account makes it: tables belong to whoever made them.
pub(super) fn name(server: &PgConnectOptions) -> String {
    let mut hasher = Sha256::new();
    for step in MIGRATOR.iter() {
        hasher.update(step.version.to_be_bytes());
        hasher.update(&step.checksum);
    }
    hasher.update(server.get_username());
    let digest = hasher.finalize();
    let digits = digest.iter().take(16).map(|byte| format!("{byte:02x}"));
    format!("{PREFIX}{}", digits.collect::<String>())
}

/// Whether a database was not made because there is nothing of this name to copy.
pub(super) fn is_missing(error: &StoreError) -> bool {
    let StoreError::Unavailable(Some(cause)) = error else {
        return false;
    };
    let code = cause.as_database_error().and_then(|answer| answer.code());
    code.is_some_and(|code| code == "3D000")
}

/// Makes a template, unless somebody did meanwhile.
///
/// # Errors
/// As [`TestDatabase::create`].
pub(super) async fn make(server: &PgConnectOptions, name: &str) -> Result<(), StoreError> {
    let mut connection = PgConnection::connect_with(server).await?;
    // Others wait here for the first one; its end releases them, however it ends.
    sqlx::query("SELECT pg_advisory_lock($1)")
        .bind(MAKING)
        .execute(&mut connection)
        .await?;
    let is_there = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)";
    let is_there = sqlx::query_scalar(is_there).bind(name);
    if !is_there.fetch_one(&mut connection).await? {
        finish(TestDatabase::create_migrated("").await?, name).await?;
        drop_but_newest(&mut connection, PREFIX, KEPT).await?;
    }
    Ok(connection.close().await?)
}

/// In one transaction: what bears the name is whole, and nobody's connection keeps others from copying it.
async fn finish(made: TestDatabase, name: &str) -> Result<(), StoreError> {
    made.store.close().await;
    let own = &made.name;
    let sql = format!(
        "ALTER DATABASE {own} ALLOW_CONNECTIONS false; ALTER DATABASE {own} RENAME TO {name}"
    );
    administer(&made.server, sql).await
}

/// Drops this account's databases whose names begin so, but for as many as were made last.
async fn drop_but_newest(
    connection: &mut PgConnection,
    prefix: &str,
    kept: i64,
) -> Result<(), StoreError> {
    let older: Vec<String> = sqlx::query_scalar(
        "SELECT datname::text FROM pg_database
         WHERE starts_with(datname::text, $1) AND pg_get_userbyid(datdba) = current_user
         ORDER BY oid DESC OFFSET $2",
    )
    .bind(prefix)
    .bind(kept)
    .fetch_all(&mut *connection)
    .await?;
    for name in older {
        // Waits until a copy that is being made of it is whole.
        let sql = format!("DROP DATABASE IF EXISTS {name}");
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn many_at_once_make_one_that_is_whole_and_that_nobody_enters() {
        let name = format!("switchboard_test_{}", Uuid::now_v7().simple());
        // Takes it away at the end.
        let template = TestDatabase::named(name.clone()).unwrap();
        let (server, options) = (&template.server, format!("TEMPLATE {name}"));
        let missed = TestDatabase::create_with(&options).await.unwrap_err();
        assert!(is_missing(&missed), "{missed}");

        let making = || make(server, &name);
        let made = tokio::join!(making(), making(), making());
        assert!(matches!(made, (Ok(()), Ok(()), Ok(()))), "{made:?}");

        let entered = PgConnection::connect_with(&server.clone().database(&name)).await;
        assert!(entered.is_err());
        let copying = || TestDatabase::create_with(&options);
        let (one, other) = tokio::join!(copying(), copying());
        for copy in [one.unwrap(), other.unwrap()] {
            let version = copy.store().schema_version().await.unwrap();
            assert_eq!(version.applied, version.known);
        }
    }

    #[tokio::test]
    async fn the_newest_are_kept() {
        let prefix = format!("switchboard_test_{}_", Uuid::now_v7().simple());
        let mut made = Vec::new();
        // Not in the order of their names.
        for letter in ["b", "c", "a"] {
            let database = TestDatabase::named(format!("{prefix}{letter}")).unwrap();
            database.make("").await.unwrap();
            made.push(database);
        }
        let server = &made[0].server;
        let mut connection = PgConnection::connect_with(server).await.unwrap();
        drop_but_newest(&mut connection, &prefix, 2).await.unwrap();
        let left =
            "SELECT datname::text FROM pg_database WHERE starts_with(datname::text, $1) ORDER BY 1";
        let left = sqlx::query_scalar(left).bind(&prefix);
        let left: Vec<String> = left.fetch_all(&mut connection).await.unwrap();
        assert_eq!(left, [format!("{prefix}a"), format!("{prefix}c")]);
    }
}
