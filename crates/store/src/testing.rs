//! A database per test, dropped when the test ends. Requires the feature `testing`.

mod template;

use secrecy::{ExposeSecret, SecretString};
use sqlx::{AssertSqlSafe, Connection, PgConnection, postgres::PgConnectOptions};
use uuid::Uuid;

use crate::{Store, StoreError};

/// The server for test databases unless `DATABASE_URL` is set.
const DEFAULT_SERVER: &str = "postgres://postgres@127.0.0.1:5432/postgres";

/// A database that is dropped with this value.
#[derive(Debug)]
pub struct TestDatabase {
    server: PgConnectOptions,
    name: String,
    url: SecretString,
    store: Store,
}

/// A transaction in progress, rolled back with this value. One that locks a table simulates a database
/// that does not respond.
#[derive(Debug)]
pub struct OpenTransaction {
    connection: PgConnection,
}

impl OpenTransaction {
    /// Whether a statement waits for a lock.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn is_waited_for(&mut self) -> Result<bool, StoreError> {
        // A statement that waits for a row waits for a transaction, which is of no database.
        let waits =
            "SELECT EXISTS (SELECT FROM pg_locks LEFT JOIN pg_database d ON d.oid = database
                     WHERE NOT granted AND (d.datname = current_database()
                         OR transactionid = pg_current_xact_id_if_assigned()::xid))";
        let waits = sqlx::query_scalar(waits);
        Ok(waits.fetch_one(&mut self.connection).await?)
    }

    /// Commits it.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn commit(self) -> Result<(), StoreError> {
        self.end("COMMIT").await
    }

    /// Rolls it back: its locks are released when this returns.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn release(self) -> Result<(), StoreError> {
        self.end("ROLLBACK").await
    }

    async fn end(mut self, statement: &'static str) -> Result<(), StoreError> {
        sqlx::raw_sql(statement)
            .execute(&mut self.connection)
            .await?;
        Ok(())
    }
}

impl TestDatabase {
    /// Creates the database as a copy of a migrated one.
    ///
    /// # Errors
    /// If the server is unavailable, or the user may not create databases.
    pub async fn create() -> Result<Self, StoreError> {
        let (_, server) = server()?;
        let template = template::name(&server);
        let options = format!("TEMPLATE {template}");
        match Self::create_with(&options).await {
            Err(error) if template::is_missing(&error) => {
                template::create_template(&server, &template).await?;
                Self::create_with(&options).await
            }
            created => created,
        }
    }

    /// Creates a database without tables.
    ///
    /// # Errors
    /// As [`TestDatabase::create`].
    pub async fn create_empty() -> Result<Self, StoreError> {
        Self::create_with("").await
    }

    /// Creates a database in the locale C, like the one of `switchboard up`, and migrates it.
    ///
    /// # Errors
    /// As [`TestDatabase::create`].
    pub async fn create_in_locale_c() -> Result<Self, StoreError> {
        Self::create_migrated("TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'").await
    }

    async fn create_migrated(options: &str) -> Result<Self, StoreError> {
        let database = Self::create_with(options).await?;
        database.store.migrate().await?;
        Ok(database)
    }

    async fn create_with(options: &str) -> Result<Self, StoreError> {
        let database = Self::with_name(format!("switchboard_test_{}", Uuid::now_v7().simple()))?;
        database.create_database(options).await?;
        Ok(database)
    }

    /// Does not create the database yet.
    fn with_name(name: String) -> Result<Self, StoreError> {
        let (address, server) = server()?;
        let url = SecretString::from(with_database(&address, &name));
        let store = Store::open(&url)?;
        Ok(Self {
            server,
            name,
            url,
            store,
        })
    }

    async fn create_database(&self, options: &str) -> Result<(), StoreError> {
        let sql = format!("CREATE DATABASE {} {options}", self.name);
        administer(&self.server, sql).await
    }

    /// The store on this database.
    #[must_use]
    pub fn store(&self) -> Store {
        self.store.clone()
    }

    /// The URL of the database.
    #[must_use]
    pub const fn url(&self) -> &SecretString {
        &self.url
    }

    /// Executes SQL that the store does not contain.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn execute(&self, sql: &str) -> Result<(), StoreError> {
        administer(&self.server.clone().database(&self.name), sql.to_owned()).await
    }

    /// Locks a table against all access, including reads.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn lock(&self, table: &str) -> Result<OpenTransaction, StoreError> {
        self.begin(&format!("LOCK TABLE {table}")).await
    }

    /// Begins a transaction with SQL that the store does not contain.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn begin(&self, sql: &str) -> Result<OpenTransaction, StoreError> {
        let options = self.server.clone().database(&self.name);
        let mut connection = PgConnection::connect_with(&options).await?;
        sqlx::raw_sql(AssertSqlSafe(format!("BEGIN; {sql}")))
            .execute(&mut connection)
            .await?;
        Ok(OpenTransaction { connection })
    }

    /// Terminates all connections and rejects new ones, or accepts them again.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn set_unavailable(&self, unavailable: bool) -> Result<(), StoreError> {
        let name = &self.name;
        administer(
            &self.server,
            format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {}", !unavailable),
        )
        .await?;
        if unavailable {
            let end = format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            );
            administer(&self.server, end).await?;
        }
        Ok(())
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // The test's runtime is shutting down: a thread with its own runtime drops the database.
        let cleanup = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let dropped = runtime.block_on(administer(
                &server,
                format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
            ));
            dropped.map_err(|error| std::io::Error::other(error.report()))
        });
        match cleanup.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, database = %self.name, "a test database could not be dropped")
            }
            Err(_) => tracing::warn!(database = %self.name, "a test database could not be dropped"),
        }
    }
}

/// Executes SQL in the database at this URL.
///
/// # Errors
/// [`StoreError`] if the query fails; [`StoreError::Setting`] if the URL is invalid.
pub async fn execute(url: &SecretString, sql: &str) -> Result<(), StoreError> {
    let unusable =
        StoreError::Setting("the database URL must be postgres://user@host:port/database");
    let server: PgConnectOptions = url.expose_secret().parse().map_err(|_| unusable)?;
    administer(&server, sql.to_owned()).await
}

/// The server of all tests, and its URL.
fn server() -> Result<(String, PgConnectOptions), StoreError> {
    let address = std::env::var("DATABASE_URL").unwrap_or_else(|_| DEFAULT_SERVER.to_owned());
    let unusable = StoreError::Setting("DATABASE_URL must be postgres://user@host:port/database");
    let server = address.parse().map_err(|_| unusable)?;
    Ok((address, server))
}

async fn administer(server: &PgConnectOptions, sql: String) -> Result<(), StoreError> {
    let mut connection = PgConnection::connect_with(server).await?;
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut connection)
        .await?;
    connection.close().await?;
    Ok(())
}

/// The same URL with another database name.
fn with_database(address: &str, name: &str) -> String {
    let (base, query) = match address.split_once('?') {
        Some((base, query)) => (base, format!("?{query}")),
        None => (address, String::new()),
    };
    let host_ends = base.find("://").map_or(0, |scheme| scheme + 3);
    let host = base
        .get(host_ends..)
        .and_then(|rest| rest.find('/'))
        .map_or(base, |path| base.get(..host_ends + path).unwrap_or(base));
    format!("{host}/{name}{query}")
}
