//! Connections that say for whom they speak, so that the database itself keeps organisations apart.
//! Never: a statement on a connection that has not said so in this use of it.

use std::time::Duration;

use sqlx::{
    AssertSqlSafe, Executor, PgConnection, PgPool, Postgres, Transaction,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::{Store, owner::Owner};

/// How long a request waits for a connection that is alive, free or new.
pub(crate) const ACQUIRE_LIMIT: Duration = Duration::from_secs(3);
/// How long an unused connection is kept.
const IDLE_LIMIT: Duration = Duration::from_secs(300);

/// Who the server takes a statement's author for, and with that whose rows it sees and writes.
#[derive(Debug, Clone, Copy)]
enum Speaker {
    /// An organisation, which reads public rows as well, or the installation, whose rows those are.
    Owner(Owner),
    /// The same, searching: see the migration that makes the roles.
    Searching(Owner),
    /// All of them: what belongs to no single one.
    Everyone,
    /// Whoever connected: what is no row of anybody's.
    Account,
}

/// The pool. Nothing else has it, so that there is no connection but those of [`Store::within`] and its like.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    pool: PgPool,
    limit: u32,
}

impl Speaker {
    fn name(self) -> String {
        match self {
            Self::Owner(Owner::Org(org)) | Self::Searching(Owner::Org(org)) => {
                org.uuid().to_string()
            }
            Self::Owner(Owner::Installation) | Self::Searching(Owner::Installation) => {
                "installation".to_owned()
            }
            Self::Everyone => "everyone".to_owned(),
            Self::Account => String::new(),
        }
    }

    /// What a connection says first. It is also how a dead connection is noticed: the pool does not ask before it.
    fn introduction(self, actor: Option<&str>) -> String {
        let role = match self {
            Self::Owner(_) | Self::Everyone => "switchboard_service",
            Self::Searching(_) => "switchboard_search",
            Self::Account => "NONE",
        };
        // For the audit log.
        let actor = actor.unwrap_or_default().replace('\'', "''");
        let name = self.name();
        format!(
            "SET ROLE {role}; SET switchboard.speaker = '{name}'; SET switchboard.actor = '{actor}'"
        )
    }
}

/// The server knows none of the roles that statements run under, or does not let this account be one of them.
#[derive(Debug, thiserror::Error)]
#[error("statements cannot run under the role that is meant for them")]
pub(crate) struct NoRole(#[source] sqlx::Error);

impl Connections {
    /// Connects when first used.
    pub(crate) fn open(options: PgConnectOptions, limit: u32) -> Self {
        let pool = PgPoolOptions::new()
            .max_connections(limit)
            .acquire_timeout(ACQUIRE_LIMIT)
            .idle_timeout(IDLE_LIMIT)
            .test_before_acquire(false)
            .connect_lazy_with(options);
        Self { pool, limit }
    }

    /// How they are made.
    pub(crate) fn options(&self) -> PgConnectOptions {
        (*self.pool.connect_options()).clone()
    }

    /// How many there are, and how many of them nobody uses.
    pub(crate) fn numbers(&self) -> (usize, usize) {
        let all = usize::try_from(self.pool.size()).unwrap_or(usize::MAX);
        (all, self.pool.num_idle())
    }

    /// Closes all of them, after what is under way on them.
    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }

    async fn introduced(
        &self,
        speaker: Speaker,
        actor: Option<&str>,
    ) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        let introduction = speaker.introduction(actor);
        // Boxed: what waits for a new connection is large, and is within every future above.
        let alive = Box::pin(async {
            let mut left = self.limit;
            loop {
                let mut unheard = Unheard(Some(self.pool.acquire().await?));
                match unheard.say(&introduction).await {
                    Ok(connection) => return Ok(connection),
                    Err(error) => pass_by(error, &mut left)?,
                }
            }
        });
        let alive = tokio::time::timeout(ACQUIRE_LIMIT, alive).await;
        alive.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    async fn begun(
        &self,
        speaker: Speaker,
        actor: Option<&str>,
    ) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
        let connection = self.introduced(speaker, actor).await?;
        Transaction::begin(connection, None).await
    }
}

/// A connection that has not been heard of since it was taken out of the pool. It goes back only when it has: the pool
/// would wait for one that is dead or silent, and keep its place.
struct Unheard(Option<PoolConnection<Postgres>>);

impl Unheard {
    async fn say(&mut self, words: &str) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        let connection = self.0.as_mut().ok_or(sqlx::Error::PoolClosed)?;
        connection.execute(AssertSqlSafe(words.to_owned())).await?;
        self.0.take().ok_or(sqlx::Error::PoolClosed)
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}

/// Connections die while nobody uses them: after a restart of the server that is each of them.
fn pass_by(error: sqlx::Error, left: &mut u32) -> Result<(), sqlx::Error> {
    match left.checked_sub(1) {
        Some(fewer) if is_gone(&error) => {
            tracing::debug!(%error, "a connection to the database had died");
            *left = fewer;
            Ok(())
        }
        _ if is_refused(&error) => Err(sqlx::Error::Configuration(Box::new(NoRole(error)))),
        _ => Err(error),
    }
}

/// Whether the server heard an introduction and did not take it: no such role, or not for this account.
fn is_refused(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|answer| answer.code());
    code.is_some_and(|code| code == "22023" || code == "42501")
}

/// Speaks for another owner from here on, until the transaction ends.
pub(crate) async fn speak_within(
    transaction: &mut PgConnection,
    owner: impl Into<Owner>,
) -> Result<(), sqlx::Error> {
    speak(transaction, Speaker::Owner(owner.into())).await
}

/// Speaks for everyone from here on, until the transaction ends.
pub(crate) async fn speak_throughout(transaction: &mut PgConnection) -> Result<(), sqlx::Error> {
    speak(transaction, Speaker::Everyone).await
}

async fn speak(transaction: &mut PgConnection, speaker: Speaker) -> Result<(), sqlx::Error> {
    let said = format!("SET LOCAL switchboard.speaker = '{}'", speaker.name());
    transaction.execute(AssertSqlSafe(said)).await.map(drop)
}

/// Whether this is the end of one connection, and says nothing of another.
fn is_gone(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        // A broken connection, or one that the server was told to end.
        sqlx::Error::Database(answer) => answer
            .code()
            .is_some_and(|code| code.starts_with("08") || code.starts_with("57P")),
        _ => false,
    }
}

impl Store {
    /// A connection that sees and writes what is this owner's, and reads what is public.
    pub(crate) async fn within(
        &self,
        owner: impl Into<Owner>,
    ) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        let speaker = Speaker::Owner(owner.into());
        self.connections.introduced(speaker, self.actor()).await
    }

    /// A connection for what belongs to no single organisation: authentication, facts, queues, housekeeping.
    pub(crate) async fn throughout(&self) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        self.connections
            .introduced(Speaker::Everyone, self.actor())
            .await
    }

    /// As [`Store::within`], for the one statement that searches skills books.
    pub(crate) async fn searching(
        &self,
        owner: Owner,
    ) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        let speaker = Speaker::Searching(owner);
        self.connections.introduced(speaker, self.actor()).await
    }

    /// A connection for questions about the database itself, whether it was migrated or not.
    pub(crate) async fn outside(&self) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        self.connections
            .introduced(Speaker::Account, self.actor())
            .await
    }

    /// As [`Store::within`], a transaction.
    pub(crate) async fn begin_within(
        &self,
        owner: impl Into<Owner>,
    ) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
        let speaker = Speaker::Owner(owner.into());
        self.connections.begun(speaker, self.actor()).await
    }

    /// As [`Store::throughout`], a transaction.
    pub(crate) async fn begin_throughout(
        &self,
    ) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
        self.connections
            .begun(Speaker::Everyone, self.actor())
            .await
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use switchboard_protocol::id::OrgId;
    use uuid::Uuid;

    use super::*;
    use crate::testing::TestDatabase;

    #[tokio::test]
    async fn statements_run_under_a_role_that_owns_nothing_and_say_for_whom() {
        async fn check(connection: &mut PgConnection, role: &str, speaker: &str) {
            let asked = "SELECT current_user::text, current_setting('switchboard.speaker')";
            let said: (String, String) = sqlx::query_as(asked).fetch_one(connection).await.unwrap();
            assert_eq!(said, (role.to_owned(), speaker.to_owned()));
        }
        let database = TestDatabase::create().await.unwrap();
        let store = database.store();
        let org = OrgId::from_uuid(Uuid::now_v7());
        let (service, id) = ("switchboard_service", org.uuid().to_string());
        check(&mut store.within(org).await.unwrap(), service, &id).await;
        check(&mut store.throughout().await.unwrap(), service, "everyone").await;
        let owner = Owner::Installation;
        check(
            &mut store.searching(owner).await.unwrap(),
            "switchboard_search",
            "installation",
        )
        .await;
        let mut transaction = store.begin_within(org).await.unwrap();
        check(&mut transaction, service, &id).await;
        speak_throughout(&mut transaction).await.unwrap();
        check(&mut transaction, service, "everyone").await;
        transaction.rollback().await.unwrap();
        let acting = store.acting("o'hara'; DROP TABLE orgs; --");
        let mut connection = acting.within(org).await.unwrap();
        let actor = sqlx::query_scalar("SELECT current_setting('switchboard.actor')");
        let actor: String = actor.fetch_one(&mut *connection).await.unwrap();
        assert_eq!(actor, "o'hara'; DROP TABLE orgs; --");
        let mut transaction = store.begin_throughout().await.unwrap();
        check(&mut transaction, service, "everyone").await;
    }
}
