//! One database: its address, its time limits, and how it is brought up to date.
//! Never: waiting for the database without a limit.

use std::{future::Future, str::FromStr, sync::Arc, time::Duration};

use secrecy::{ExposeSecret, SecretString};
use sqlx::{
    Connection, PgConnection,
    migrate::Migrator,
    postgres::{PgConnectOptions, types::PgInterval},
};

use crate::{Config, Objects, StoreError, connections::Connections, metrics, metrics::Outcome};

/// How long the server works on one statement.
const STATEMENT_LIMIT: Duration = Duration::from_secs(10);
/// How long a caller waits altogether: the server cannot keep its limit when the network swallows its answers.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);

/// How the address of a PostgreSQL begins; libpq knows both.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

pub(crate) static MIGRATOR: Migrator = sqlx::migrate!("../../migrations");

/// One database; cheap to clone, all clones share the connections.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) connections: Connections,
    objects: Option<Objects>,
    actor: Option<Arc<str>>,
}

impl Store {
    /// The database at this address, with the default number of connections. Connects when first asked something,
    /// so it does not fail while PostgreSQL is down.
    ///
    /// # Errors
    /// [`StoreError::Setting`] when the URL cannot be read.
    pub fn open(database_url: &SecretString) -> Result<Self, StoreError> {
        Self::with_connections(database_url, Config::DEFAULT_CONNECTIONS)
    }

    /// The database that an operator set; otherwise as [`Store::open`].
    ///
    /// # Errors
    /// [`StoreError::Setting`] when there is no URL or it cannot be read.
    pub fn from_config(config: &Config) -> Result<Self, StoreError> {
        let missing =
            StoreError::Setting("there is no database URL; set --database-url or DATABASE_URL");
        let database_url = config.database_url.as_ref().ok_or(missing)?;
        Self::with_connections(database_url, config.database_connections)
    }

    fn with_connections(database_url: &SecretString, connections: u32) -> Result<Self, StoreError> {
        // The parser's own words could repeat the password.
        let unreadable = || {
            StoreError::Setting(
                "--database-url or DATABASE_URL must be postgres://user[:password]@host[:port]/database",
            )
        };
        let url = database_url.expose_secret();
        // The parser does not look at the scheme.
        if !SCHEMES.iter().any(|scheme| url.starts_with(scheme)) {
            return Err(unreadable());
        }
        let options = PgConnectOptions::from_str(url)
            .map_err(|_| unreadable())?
            .application_name("switchboard")
            .options([("statement_timeout", STATEMENT_LIMIT.as_millis().to_string())]);
        Ok(Self {
            connections: Connections::open(options, connections),
            objects: None,
            actor: None,
        })
    }

    /// The same database, with an object store beside it.
    #[must_use]
    pub fn with_objects(mut self, objects: Option<Objects>) -> Self {
        self.objects = objects;
        self
    }

    /// Where large bytes are; `None` when the operator set no place for them.
    #[must_use]
    pub const fn objects(&self) -> Option<&Objects> {
        self.objects.as_ref()
    }

    /// The same database, with everything done there put down to whoever is called so.
    #[must_use]
    pub fn acting(&self, actor: &str) -> Self {
        Self {
            actor: Some(Arc::from(actor)),
            ..self.clone()
        }
    }

    pub(crate) fn actor(&self) -> Option<&str> {
        self.actor.as_deref()
    }

    /// Brings the database up to date. Processes that do so at once wait for each other.
    ///
    /// # Errors
    /// [`StoreError::FromTheFuture`] when the database is newer than this program, [`StoreError::Migration`]
    /// when a step failed, or [`StoreError::Unavailable`].
    pub async fn migrate(&self) -> Result<(), StoreError> {
        // A connection of its own: waiting for another process, or rebuilding a large table, takes its time.
        let options = self.connections.options().options([
            ("statement_timeout", "0"),
            // Steps that change rows see all of them, though the tables' owner is bound as well.
            ("switchboard.speaker", "everyone"),
        ]);
        let mut connection = bounded(PgConnection::connect_with(&options)).await?;
        MIGRATOR.run(&mut connection).await?;
        // The work is done and committed: a farewell that fails changes nothing.
        drop(connection.close().await);
        Ok(())
    }

    /// Asks the database for a sign of life.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when it does not give one in time.
    pub async fn ping(&self, within: Duration) -> Result<(), StoreError> {
        // To be let in and heard is the sign.
        let answer = tokio::time::timeout(within, self.outside());
        answer.await.map_err(|_| StoreError::Unavailable(None))??;
        Ok(())
    }

    /// Registers what is counted of questions to databases, all of this process, and of this one's connections.
    ///
    /// # Errors
    /// When the registry has metrics of these names already.
    pub fn register(&self, registry: &prometheus::Registry) -> Result<(), prometheus::Error> {
        metrics::register(registry, self.connections.clone())
    }

    /// Closes all connections, after what is under way on them.
    pub async fn close(&self) {
        self.connections.close().await;
    }
}

/// Lets no caller wait for ever, whatever happened to the connection.
pub(crate) async fn bounded<T, E>(work: impl Future<Output = Result<T, E>>) -> Result<T, StoreError>
where
    StoreError: From<E>,
{
    let asked = metrics::begin();
    match tokio::time::timeout(ANSWER_LIMIT, work).await {
        Ok(Ok(answer)) => {
            asked.end(Outcome::Ok);
            Ok(answer)
        }
        Ok(Err(error)) => {
            let error = StoreError::from(error);
            asked.end(Outcome::of(&error));
            Err(error)
        }
        Err(_) => {
            asked.end(Outcome::Timeout);
            Err(StoreError::Unavailable(None))
        }
    }
}

/// What the database holds cannot be read by this version.
pub(crate) fn undecodable(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Unexpected(sqlx::Error::Decode(Box::new(error)))
}

/// PostgreSQL counts in microseconds; longer than it can count is as long as it can.
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
    use crate::connections::ACQUIRE_LIMIT;

    #[tokio::test]
    async fn an_address_is_read_without_repeating_it() {
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
    async fn a_database_that_is_away_is_unavailable_within_the_limit() {
        let store = Store::open(&SecretString::from("postgres://nobody@127.0.0.1:1/none")).unwrap();
        let error = store.ping(Duration::from_millis(50)).await.unwrap_err();
        assert!(error.is_unavailable());
        let started = std::time::Instant::now();
        let error = store.ping(ANSWER_LIMIT).await.unwrap_err();
        assert!(error.is_unavailable(), "{}", error.report());
        assert!(started.elapsed() < ACQUIRE_LIMIT + Duration::from_secs(2));
    }
}
