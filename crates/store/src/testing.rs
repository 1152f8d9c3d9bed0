//! A database of its own for each test, gone when the test ends.
//! Never: in a program; behind the feature `testing`.

mod template;

use secrecy::{ExposeSecret, SecretString};
use sqlx::{AssertSqlSafe, Connection, PgConnection, postgres::PgConnectOptions};
use uuid::Uuid;

use crate::{Store, StoreError};

/// Where test databases are made unless `DATABASE_URL` names another server.
const DEFAULT_SERVER: &str = "postgres://postgres@127.0.0.1:5432/postgres";

/// A database that exists as long as this value.
#[derive(Debug)]
pub struct TestDatabase {
    server: PgConnectOptions,
    name: String,
    url: SecretString,
    store: Store,
}

/// A table that nobody else can use as long as this value exists: a database that is there and does not answer.
#[derive(Debug)]
pub struct TableLock {
    connection: PgConnection,
}

impl TableLock {
    /// Lets all who wait go on.
    ///
    /// # Errors
    /// As every query.
    pub async fn release(self) -> Result<(), StoreError> {
        Ok(self.connection.close().await?)
    }
}

impl TestDatabase {
    /// Makes the database, as a copy of one that was migrated.
    ///
    /// # Errors
    /// When the server is not there, or the account may not create databases.
    pub async fn create() -> Result<Self, StoreError> {
        let (_, server) = server()?;
        let template = template::name(&server);
        let options = format!("TEMPLATE {template}");
        match Self::create_with(&options).await {
            Err(error) if template::is_missing(&error) => {
                template::make(&server, &template).await?;
                Self::create_with(&options).await
            }
            created => created,
        }
    }

    /// Makes a database without a table.
    ///
    /// # Errors
    /// As [`TestDatabase::create`].
    pub async fn create_empty() -> Result<Self, StoreError> {
        Self::create_with("").await
    }

    /// Makes a database that knows letters of ASCII only, as `switchboard up` has one, and migrates it.
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
        let database = Self::named(format!("switchboard_test_{}", Uuid::now_v7().simple()))?;
        database.make(options).await?;
        Ok(database)
    }

    /// Not made yet.
    fn named(name: String) -> Result<Self, StoreError> {
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

    async fn make(&self, options: &str) -> Result<(), StoreError> {
        let sql = format!("CREATE DATABASE {} {options}", self.name);
        administer(&self.server, sql).await
    }

    /// The store on this database.
    #[must_use]
    pub fn store(&self) -> Store {
        self.store.clone()
    }

    /// Its address.
    #[must_use]
    pub const fn url(&self) -> &SecretString {
        &self.url
    }

    /// Runs statements that no query of the store makes.
    ///
    /// # Errors
    /// As every query.
    pub async fn execute(&self, sql: &str) -> Result<(), StoreError> {
        administer(&self.server.clone().database(&self.name), sql.to_owned()).await
    }

    /// Locks a table against everybody, readers as well.
    ///
    /// # Errors
    /// As every query.
    pub async fn lock(&self, table: &str) -> Result<TableLock, StoreError> {
        let options = self.server.clone().database(&self.name);
        let mut connection = PgConnection::connect_with(&options).await?;
        sqlx::raw_sql(AssertSqlSafe(format!("BEGIN; LOCK TABLE {table}")))
            .execute(&mut connection)
            .await?;
        Ok(TableLock { connection })
    }

    /// Ends all connections and lets none in, as long as `away` says so.
    ///
    /// # Errors
    /// As every query.
    pub async fn set_away(&self, away: bool) -> Result<(), StoreError> {
        let name = &self.name;
        administer(
            &self.server,
            format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {}", !away),
        )
        .await?;
        if away {
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
        // The test's own runtime is busy with the test's end: a thread with one of its own does the work.
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let removed = runtime.block_on(administer(
                &server,
                format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
            ));
            removed.map_err(|error| std::io::Error::other(error.report()))
        });
        match removal.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, database = %self.name, "a test database was left behind")
            }
            Err(_) => tracing::warn!(database = %self.name, "a test database was left behind"),
        }
    }
}

/// Runs statements in a database that somebody else made.
///
/// # Errors
/// As every query; [`StoreError::Setting`] when this is no address.
pub async fn execute(url: &SecretString, sql: &str) -> Result<(), StoreError> {
    let unusable = StoreError::Setting("the address of a database is a postgres:// URL");
    let server: PgConnectOptions = url.expose_secret().parse().map_err(|_| unusable)?;
    administer(&server, sql.to_owned()).await
}

/// The server of all tests, and its address.
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

/// The same address with another database's name.
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
