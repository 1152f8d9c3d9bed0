//! Template databases: one migrated database per schema and server, copied by tests.
//! Invariant: a database with a template's name is completely migrated, and accepts no connections.

use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Connection, PgConnection, postgres::PgConnectOptions};

use super::{TestDatabase, administer};
use crate::{StoreError, database::MIGRATOR};

/// The prefix of all templates' names.
const PREFIX: &str = "switchboard_template_";
/// The advisory lock that is held while a template is created.
const CREATION_LOCK: i64 = 0x7377_6974_6368_0001;
/// How many templates a user retains on a server, one per schema; bounds the disk usage. A deleted
/// one is created again on demand.
const MAX_TEMPLATES: i64 = 8;

/// The name of this schema's template for this user, who owns its tables.
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

/// Whether a database was not created because its template does not exist.
pub(super) fn is_missing(error: &StoreError) -> bool {
    let StoreError::Unavailable(Some(cause)) = error else {
        return false;
    };
    let code = cause.as_database_error().and_then(|answer| answer.code());
    code.is_some_and(|code| code == "3D000")
}

/// Creates a template, unless another process has done so.
///
/// # Errors
/// As [`TestDatabase::create`].
pub(super) async fn create_template(
    server: &PgConnectOptions,
    name: &str,
) -> Result<(), StoreError> {
    let mut connection = PgConnection::connect_with(server).await?;
    // Concurrent processes wait here for the first; the lock ends with its connection.
    sqlx::query("SELECT pg_advisory_lock($1)")
        .bind(CREATION_LOCK)
        .execute(&mut connection)
        .await?;
    let exists = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)";
    let exists = sqlx::query_scalar(exists).bind(name);
    if !exists.fetch_one(&mut connection).await? {
        finish(TestDatabase::create_migrated("").await?, name).await?;
        drop_but_newest(&mut connection, PREFIX, MAX_TEMPLATES).await?;
    }
    Ok(connection.close().await?)
}

/// In one statement batch: a database with the name is complete, and no connection blocks copies of
/// it.
async fn finish(created: TestDatabase, name: &str) -> Result<(), StoreError> {
    created.store.close().await;
    let database = &created.name;
    let sql = format!(
        "ALTER DATABASE {database} ALLOW_CONNECTIONS false; ALTER DATABASE {database} RENAME TO {name}"
    );
    administer(&created.server, sql).await
}

/// Drops this user's databases with the prefix, except for the newest ones.
async fn drop_but_newest(
    connection: &mut PgConnection,
    prefix: &str,
    count: i64,
) -> Result<(), StoreError> {
    let older: Vec<String> = sqlx::query_scalar(
        "SELECT datname::text FROM pg_database
         WHERE starts_with(datname::text, $1) AND pg_get_userbyid(datdba) = current_user
         ORDER BY oid DESC OFFSET $2",
    )
    .bind(prefix)
    .bind(count)
    .fetch_all(&mut *connection)
    .await?;
    for name in older {
        // Waits until running copies of it are complete.
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
    async fn concurrent_creation_yields_one_complete_template() {
        let name = format!("switchboard_test_{}", Uuid::now_v7().simple());
        // Dropped at the end.
        let template = TestDatabase::with_name(name.clone()).unwrap();
        let (server, options) = (&template.server, format!("TEMPLATE {name}"));
        let missed = TestDatabase::create_with(&options).await.unwrap_err();
        assert!(is_missing(&missed), "{missed}");

        let create = || create_template(server, &name);
        let created = tokio::join!(create(), create(), create());
        assert!(matches!(created, (Ok(()), Ok(()), Ok(()))), "{created:?}");

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
    async fn newest_templates_are_retained() {
        let prefix = format!("switchboard_test_{}_", Uuid::now_v7().simple());
        let mut created = Vec::new();
        // Not in the order of their names.
        for letter in ["b", "c", "a"] {
            let database = TestDatabase::with_name(format!("{prefix}{letter}")).unwrap();
            database.create_database("").await.unwrap();
            created.push(database);
        }
        let server = &created[0].server;
        let mut connection = PgConnection::connect_with(server).await.unwrap();
        drop_but_newest(&mut connection, &prefix, 2).await.unwrap();
        let left =
            "SELECT datname::text FROM pg_database WHERE starts_with(datname::text, $1) ORDER BY 1";
        let left = sqlx::query_scalar(left).bind(&prefix);
        let left: Vec<String> = left.fetch_all(&mut connection).await.unwrap();
        assert_eq!(left, [format!("{prefix}a"), format!("{prefix}c")]);
    }
}
