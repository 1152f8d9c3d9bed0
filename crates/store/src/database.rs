//! The database handle: address, timeouts and migrations.
//! Invariant: no operation waits for the database without a timeout.

pub(crate) mod batches;
pub(crate) mod connections;
pub(crate) mod job_turn;
mod lease;
mod metrics;
pub(crate) mod page;
mod primary;
pub(crate) mod purge;
pub(crate) mod row_security;
pub(crate) mod schema_version;
mod scoped;
pub(crate) mod server_version;
mod tls;
pub(crate) mod transaction;

use std::{future::Future, sync::Arc, time::Duration};

use secrecy::{ExposeSecret, SecretString};
use sqlx::{
    AssertSqlSafe, Connection, Executor as _, PgConnection,
    migrate::{Migrate as _, Migrator},
    postgres::types::PgInterval,
};
use switchboard_runtime::budget::Budgets;

use crate::{
    Config, MasterKeys, Objects, StoreError,
    calls::idempotent_calls::{Ending, Reservation},
};
use batches::Batches;
use connections::Connections;
use metrics::Outcome;
use primary::Servers;
pub(crate) use scoped::ScopedConnection;

/// The server's timeout of a statement.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of a query including its transmission, in case the server's response is lost.
const QUERY_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a statement of a migration waits for a lock. Statements of other processes on the same
/// table wait behind it.
const MIGRATION_LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The schemes of a PostgreSQL URL; libpq accepts both.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

pub(crate) static MIGRATOR: Migrator = sqlx::migrate!("../../migrations");

/// A database; cheap to clone, clones share the connections.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) connections: Connections,
    pub(crate) reservations: Arc<Batches<Reservation>>,
    pub(crate) endings: Arc<Batches<Ending>>,
    objects: Option<Objects>,
    master_keys: MasterKeys,
    actor: Option<Arc<str>>,
}

impl Store {
    /// Opens the database at this URL with the default number of connections. Connects on first
    /// use, so it succeeds while PostgreSQL is unavailable. Its budgets are its own.
    ///
    /// # Errors
    /// [`StoreError::Setting`] if the URL cannot be parsed.
    pub fn open(database_url: &SecretString) -> Result<Self, StoreError> {
        Self::with_connections(database_url, Config::DEFAULT_CONNECTIONS)
    }

    /// Opens the configured database, like [`Store::open`].
    ///
    /// # Errors
    /// [`StoreError::Setting`] if there is no URL or it cannot be parsed.
    pub fn from_config(config: &Config) -> Result<Self, StoreError> {
        let missing =
            StoreError::Setting("there is no database URL; set --database-url or DATABASE_URL");
        let database_url = config.database_url.as_ref().ok_or(missing)?;
        Self::with_connections(database_url, config.database_connections)
    }

    fn with_connections(database_url: &SecretString, connections: u32) -> Result<Self, StoreError> {
        // The parser's message could contain the password.
        let unreadable = || {
            StoreError::Setting(
                "--database-url or DATABASE_URL must be postgres://user[:password]@host[:port][,host[:port]]/database",
            )
        };
        let url = database_url.expose_secret();
        // The parser does not check the scheme.
        if !SCHEMES.iter().any(|scheme| url.starts_with(scheme)) {
            return Err(unreadable());
        }
        let servers = Servers::parse(url).map_err(|_| unreadable())?;
        let budgets = Budgets::new(&prometheus::Registry::new())
            .map_err(|_| StoreError::Setting("the budgets of the database cannot be created"))?;
        Ok(Self {
            connections: Connections::open(servers, connections, &budgets),
            reservations: Batches::new(),
            endings: Batches::new(),
            objects: None,
            master_keys: MasterKeys::default(),
            actor: None,
        })
    }

    /// The same database, with the budgets of this process. Clones that were made before keep
    /// theirs.
    #[must_use]
    pub fn with_budgets(mut self, budgets: &Budgets) -> Self {
        self.connections = self.connections.with_budgets(budgets);
        self
    }

    /// The same database, with an object store.
    #[must_use]
    pub fn with_objects(mut self, objects: Option<Objects>) -> Self {
        self.objects = objects;
        self
    }

    /// The object store; `None` if none is configured.
    #[must_use]
    pub const fn objects(&self) -> Option<&Objects> {
        self.objects.as_ref()
    }

    /// The same database, with these master keys for the keys in it.
    #[must_use]
    pub fn with_master_keys(mut self, master_keys: MasterKeys) -> Self {
        self.master_keys = master_keys;
        self
    }

    /// The master keys; by default there are none.
    #[must_use]
    pub const fn master_keys(&self) -> &MasterKeys {
        &self.master_keys
    }

    /// The same database, with this actor in the audit log.
    #[must_use]
    pub fn with_actor(&self, actor: &str) -> Self {
        Self {
            actor: Some(Arc::from(actor)),
            ..self.clone()
        }
    }

    pub(crate) fn actor(&self) -> Option<&str> {
        self.actor.as_deref()
    }

    /// Applies pending migrations. Concurrent processes wait for each other.
    ///
    /// # Errors
    /// [`StoreError::UnsupportedPostgres`] if the server is too old,
    /// [`StoreError::NewerSchema`] if the database is newer than this program,
    /// [`StoreError::MigrationBlocked`] if a statement or transaction of another process kept a
    /// table locked, [`StoreError::Migration`] if a migration failed, or
    /// [`StoreError::Unavailable`].
    pub async fn migrate(&self) -> Result<(), StoreError> {
        // On a dedicated connection without a statement timeout: waiting for another process, or
        // rewriting a large table, takes long.
        let options = self.connections.primary_options().await.options([
            ("statement_timeout", "0"),
            // Row-level security applies to the tables' owner too, and migrations change rows of
            // all organisations.
            ("switchboard.speaker", "everyone"),
        ]);
        let mut connection = with_timeout(PgConnection::connect_with(&options)).await?;
        server_version::check(&connection)?;
        // The lock of the migrator, before the timeout of locks: another process may migrate for
        // hours.
        connection.lock().await?;
        let timeout = MIGRATION_LOCK_TIMEOUT.as_millis();
        let timeout = AssertSqlSafe(format!("SET lock_timeout = {timeout}"));
        with_timeout(connection.execute(timeout)).await?;
        let mut migrator = Migrator::with_migrations(MIGRATOR.iter().cloned().collect());
        migrator.set_locking(false).run(&mut connection).await?;
        // The migrations are committed: a failed close changes nothing.
        drop(connection.close().await);
        Ok(())
    }

    /// Checks the connection to the database.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if there is no response within `timeout`.
    pub async fn ping(&self, timeout: Duration) -> Result<(), StoreError> {
        // Acquiring a connection executes a statement on it.
        let connection = tokio::time::timeout(timeout, self.unscoped_conn());
        connection
            .await
            .map_err(|_| StoreError::Unavailable(None))??;
        Ok(())
    }

    /// Registers the metrics: the duration of this process's queries, and the number of
    /// connections.
    ///
    /// # Errors
    /// If the registry contains these metrics already.
    pub fn register(&self, registry: &prometheus::Registry) -> Result<(), prometheus::Error> {
        metrics::register(registry, self.connections.clone())
    }

    /// Closes all connections after their current statements.
    pub async fn close(&self) {
        self.connections.close().await;
    }
}

/// Applies the timeout to a query, and records its duration and outcome.
pub(crate) async fn with_timeout<T, E>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, StoreError>
where
    StoreError: From<E>,
{
    let timer = metrics::start_query_timer();
    match tokio::time::timeout(QUERY_TIMEOUT, work).await {
        Ok(Ok(connection)) => {
            timer.observe(Outcome::Ok);
            Ok(connection)
        }
        Ok(Err(error)) => {
            let error = StoreError::from(error);
            timer.observe(Outcome::from_error(&error));
            Err(error)
        }
        Err(_) => {
            timer.observe(Outcome::Timeout);
            Err(StoreError::Unavailable(None))
        }
    }
}

/// The error for a stored value that this version cannot decode.
pub(crate) fn decode_error(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Unexpected(sqlx::Error::Decode(Box::new(error)))
}

/// PostgreSQL counts in 64-bit microseconds; longer durations are truncated.
pub(crate) fn interval(duration: Duration) -> PgInterval {
    PgInterval {
        months: 0,
        days: 0,
        microseconds: i64::try_from(duration.as_micros()).unwrap_or(i64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::connections::ACQUIRE_TIMEOUT;

    #[tokio::test]
    async fn database_url_error_does_not_contain_password() {
        fn check(url: &str, usable: bool) {
            let opened = Store::open(&SecretString::from(url));
            assert_eq!(opened.is_ok(), usable, "{url}");
            if let Err(error) = opened {
                assert!(!error.report().contains("hunter2"), "{}", error.report());
                assert!(
                    error.report().contains("DATABASE_URL"),
                    "{}",
                    error.report()
                );
            }
        }
        check("postgres://someone:hunter2@127.0.0.1:1/db", true);
        check("postgres://someone:hunter2@host:port/db", false);
        check("mysql://someone:hunter2@host/db?sslmode=hunter2", false);
        check("mysql://someone@host/db", false);
        check("postgresql://someone@host/db", true);
        check("", false);
    }

    #[tokio::test]
    async fn unreachable_database_fails_within_timeout() {
        let store = Store::open(&SecretString::from("postgres://nobody@127.0.0.1:1/none")).unwrap();
        let error = store.ping(Duration::from_millis(50)).await.unwrap_err();
        assert!(error.is_unavailable());
        let started = std::time::Instant::now();
        let error = store.ping(QUERY_TIMEOUT).await.unwrap_err();
        assert!(error.is_unavailable(), "{}", error.report());
        assert!(started.elapsed() < ACQUIRE_TIMEOUT + Duration::from_secs(2));
    }
}

#[cfg(test)]
#[cfg(feature = "testing")]
mod migration_tests {
    use super::*;
    use crate::testing::TestDatabase;

    async fn connect(database: &TestDatabase) -> PgConnection {
        let options = database.store().connections.primary_options().await;
        let options = options.options([("switchboard.speaker", "everyone")]);
        PgConnection::connect_with(&options).await.unwrap()
    }

    #[tokio::test]
    async fn blocked_migration_names_the_remedy_and_can_be_repeated() {
        let database = TestDatabase::create_empty().await.unwrap();
        let store = database.store();
        let before = MIGRATOR.iter().filter(|migration| migration.version < 24);
        let before = Migrator::with_migrations(before.cloned().collect());
        before.run(&mut connect(&database).await).await.unwrap();
        let lock = database.lock("devices").await.unwrap();
        let migrated = tokio::time::timeout(6 * MIGRATION_LOCK_TIMEOUT, store.migrate());
        let error = migrated.await.expect("it does not wait").unwrap_err();
        let message = error.report();
        assert!(
            message.contains("migration 24 was rolled back"),
            "{message}"
        );
        assert!(message.contains("pg_stat_activity"), "{message}");
        lock.release().await.unwrap();
        store.migrate().await.unwrap();
        assert!(store.signing_keys().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn migration_waits_longer_for_another_process_that_migrates() {
        let database = TestDatabase::create_empty().await.unwrap();
        let mut other = connect(&database).await;
        other.lock().await.unwrap();
        let store = database.store();
        let mut migrating = std::pin::pin!(store.migrate());
        let longer = MIGRATION_LOCK_TIMEOUT + Duration::from_secs(2);
        let ended = tokio::time::timeout(longer, migrating.as_mut()).await;
        assert!(ended.is_err(), "it waits");
        other.unlock().await.unwrap();
        migrating.await.unwrap();
    }
}
