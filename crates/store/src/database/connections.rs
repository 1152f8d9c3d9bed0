//! The tenant boundary: pooled connections whose scope PostgreSQL enforces by row-level security.
//! Invariant: no statement runs on a pooled connection whose scope was not set in this use of it.

use std::{convert::Infallible, sync::Arc, time::Duration};

use sqlx::{
    AssertSqlSafe, Executor, PgConnection, PgPool, Postgres,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use switchboard_protocol::id::OrgId;
use switchboard_runtime::budget::{self, Budgets};
use tokio::{sync::Mutex, time::Instant};

use super::{
    primary::{Servers, refuse_standby},
    scoped::{Gate, ScopedConnection, ScopedTransaction},
};
use crate::{Owner, Store};

/// How long a request waits for a working connection: an idle one, or a new one.
pub(crate) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an unused connection stays in the pool.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Interval at which a request that waits for a connection looks for the primary.
const PRIMARY_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The rows that the statements of one connection can see and write.
///
/// A scope is two session settings: the SQL role that statements run under, and the setting
/// `switchboard.speaker`, which the row-level security policies compare with each row's owner.
#[derive(Debug, Clone, Copy)]
enum TenantScope {
    /// One owner's rows. An organisation reads public rows as well.
    Tenant(Owner),
    /// The rows of [`Self::Tenant`], charged to the process.
    Operator(Owner),
    /// The skills books that the owner can read, and the chunks of every book; read-only.
    Search(Owner),
    /// All rows of all organisations and of the installation.
    System,
    /// The rows of [`Self::System`], charged to an organisation.
    SystemFor(OrgId),
    /// No rows; the login role of the database URL, with its own rights on the schema.
    Unscoped,
}

/// The SQL role that statements run under.
#[derive(Debug, Clone, Copy)]
enum RlsRole {
    /// Reads and writes all tables within the policies; owns nothing.
    Service,
    /// Reads `skills_books` and `skills_book_chunks` only.
    Search,
    /// The role of the database URL.
    Login,
}

impl RlsRole {
    const fn sql(self) -> &'static str {
        match self {
            Self::Service => "switchboard_service",
            Self::Search => "switchboard_search",
            Self::Login => "NONE",
        }
    }
}

impl TenantScope {
    const fn role(self) -> RlsRole {
        match self {
            Self::Tenant(_) | Self::Operator(_) | Self::System | Self::SystemFor(_) => {
                RlsRole::Service
            }
            Self::Search(_) => RlsRole::Search,
            Self::Unscoped => RlsRole::Login,
        }
    }

    /// The value of `switchboard.speaker`, as the policies in `migrations/0013_row_security.sql`
    /// compare it.
    fn setting(self) -> String {
        match self {
            Self::Tenant(owner) | Self::Operator(owner) | Self::Search(owner) => match owner {
                Owner::Org(org) => org.uuid().to_string(),
                Owner::Installation => "installation".to_owned(),
            },
            Self::System | Self::SystemFor(_) => "everyone".to_owned(),
            Self::Unscoped => String::new(),
        }
    }

    /// To whom the connection is charged. Work that belongs to no single owner is the process's.
    fn holder(self) -> budget::Owner {
        match self {
            Self::Tenant(owner) | Self::Search(owner) => owner.into(),
            Self::SystemFor(org) => Owner::from(org).into(),
            Self::Operator(_) | Self::System | Self::Unscoped => budget::Owner::System,
        }
    }

    /// The first statement on every acquired connection. It also detects a dead connection, since
    /// the pool does not test one before handing it out.
    fn session_settings(self, actor: Option<&str>) -> String {
        let role = self.role().sql();
        let scope = self.setting();
        // The audit log's trigger reads the actor.
        let actor = actor.unwrap_or_default().replace('\'', "''");
        format!(
            "SET ROLE {role}; SET switchboard.speaker = '{scope}'; SET switchboard.actor = '{actor}'"
        )
    }
}

/// The server lacks a role that statements run under, or the login role may not assume it.
#[derive(Debug, thiserror::Error)]
#[error("the database role for statements is missing or not granted to this user")]
pub(crate) struct MissingRole(#[source] sqlx::Error);

/// The connection pool, and with it the tenant boundary.
///
/// The pool is private to this module, so every statement of the crate runs on a connection that
/// one of these methods of [`Store`] returned:
///
/// | method | rows | for |
/// |---|---|---|
/// | [`tenant_conn`], [`begin_tenant`] | one owner's; public ones to read | requests of a caller |
/// | [`operator_conn`] | one owner's; public ones to read | requests of the operator about it |
/// | [`search_conn`] | that owner's and public books, to read | the book search |
/// | [`system_conn`], [`begin_system`] | **all** | authentication, jobs, purges |
/// | [`system_conn_for`] | **all** | keys of the installation that a request of an organisation needs |
/// | [`unscoped_conn`] | none | schema version, catalogue, health checks |
///
/// A gate is before the pool: an organisation holds at most its share of the connections, and
/// owners that wait take turns. [`begin_tenant_in_turn`] is for transactions that lock the row of
/// their organisation: of one organisation one holds a connection, and the others wait for it.
///
/// The states of a connection:
///
/// ```text
/// idle ──gate, acquire──▶ unverified ──settings confirmed──▶ scoped ──drop──▶ idle
///                             │
///                             └── error, timeout, cancellation ──▶ closed
/// ```
///
/// - *idle*: in the pool. It may be dead, and it still has the settings of its last use.
/// - *unverified*: taken from the pool; the scope is not set. It never returns to the pool.
/// - *scoped*: the server confirmed role, scope and actor. A transaction can change its scope
///   with [`set_local_tenant`] and [`set_local_system`] until it ends.
///
/// Settings are overwritten on acquire rather than reset on release: a release can fail or be
/// cancelled, whereas a failed acquire returns no connection. Dead connections are replaced within
/// [`ACQUIRE_TIMEOUT`], at most as many as the pool can contain.
///
/// [`tenant_conn`]: Store::tenant_conn
/// [`begin_tenant`]: Store::begin_tenant
/// [`begin_tenant_in_turn`]: Store::begin_tenant_in_turn
/// [`operator_conn`]: Store::operator_conn
/// [`search_conn`]: Store::search_conn
/// [`system_conn`]: Store::system_conn
/// [`system_conn_for`]: Store::system_conn_for
/// [`begin_system`]: Store::begin_system
/// [`unscoped_conn`]: Store::unscoped_conn
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    pool: PgPool,
    servers: Servers,
    /// Held by the request that looks for the primary.
    search: Arc<Mutex<()>>,
    limit: u32,
    gate: Arc<Gate>,
}

impl Connections {
    /// Creates the pool, with a gate of these budgets. It connects on first use, to the first
    /// server unless another one turns out to be the primary.
    pub(crate) fn open(servers: Servers, limit: u32, budgets: &Budgets) -> Self {
        let pool = PgPoolOptions::new()
            .max_connections(limit)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .idle_timeout(IDLE_TIMEOUT)
            .test_before_acquire(false)
            .after_connect(|connection, _| Box::pin(refuse_standby(connection)))
            .connect_lazy_with(servers.first().clone());
        let gate = Arc::new(Gate::new(budgets, limit));
        Self {
            pool,
            servers,
            search: Arc::default(),
            limit,
            gate,
        }
    }

    /// The same pool, with a gate of these budgets.
    pub(crate) fn with_budgets(self, budgets: &Budgets) -> Self {
        let gate = Arc::new(Gate::new(budgets, self.limit));
        Self { gate, ..self }
    }

    /// The options for a connection outside the pool. Of several servers, asks which one is the
    /// primary.
    pub(crate) async fn primary_options(&self) -> PgConnectOptions {
        self.find_primary().await;
        (*self.pool.connect_options()).clone()
    }

    /// Directs new connections to the primary, if one of several servers answers that it is.
    async fn find_primary(&self) {
        if let Some(primary) = self.servers.find_primary().await {
            self.pool.set_connect_options(primary.clone());
        }
    }

    /// Looks for the primary for as long as a request waits for a connection: the pool retries
    /// with the options of the moment.
    async fn follow_primary(&self) -> Infallible {
        loop {
            tokio::time::sleep(PRIMARY_POLL_INTERVAL).await;
            if let Ok(_search) = self.search.try_lock() {
                self.find_primary().await;
            }
        }
    }

    /// The number of open connections, and of idle ones among them.
    pub(crate) fn pool_sizes(&self) -> (usize, usize) {
        let all = usize::try_from(self.pool.size()).unwrap_or(usize::MAX);
        (all, self.pool.num_idle())
    }

    /// Closes all connections after their current statements.
    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }

    async fn acquire_scoped(
        &self,
        scope: TenantScope,
        actor: Option<&str>,
        locks_org: bool,
    ) -> Result<ScopedConnection, sqlx::Error> {
        let deadline = Instant::now() + ACQUIRE_TIMEOUT;
        let settings = scope.session_settings(actor);
        let scoped = async {
            let permits = self.gate.enter(scope.holder(), locks_org, deadline).await;
            let permits = permits.map_err(|_| sqlx::Error::PoolTimedOut)?;
            let connection = match self.configure_idle(&settings).await? {
                Some(connection) => connection,
                // Boxed: these futures are large, and every query's future contains them.
                None => Box::pin(self.connect(&settings)).await?,
            };
            Ok(ScopedConnection::new(
                connection,
                permits,
                Arc::clone(&self.gate),
            ))
        };
        let scoped = tokio::time::timeout_at(deadline, scoped).await;
        scoped.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    /// Sets the scope of an idle connection. `None` if there is none, or it had died.
    async fn configure_idle(
        &self,
        settings: &str,
    ) -> Result<Option<PoolConnection<Postgres>>, sqlx::Error> {
        let Some(idle) = self.pool.try_acquire() else {
            return Ok(None);
        };
        match Unverified(Some(idle)).configure(settings).await {
            Ok(connection) => Ok(Some(connection)),
            Err(error) => skip_dead(error, &mut 1).map(|()| None),
        }
    }

    /// Waits for a connection, idle or new, and sets its scope.
    async fn connect(&self, settings: &str) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        let connected = async {
            let mut attempts_left = self.limit;
            loop {
                let acquired = match self.pool.acquire().await {
                    // The pool retries only a refused connection.
                    Err(sqlx::Error::Io(_)) if self.servers.are_several() => {
                        tokio::time::sleep(PRIMARY_POLL_INTERVAL).await;
                        continue;
                    }
                    acquired => acquired?,
                };
                match Unverified(Some(acquired)).configure(settings).await {
                    Ok(connection) => return Ok(connection),
                    Err(error) => skip_dead(error, &mut attempts_left)?,
                }
            }
        };
        tokio::select! {
            connected = connected => connected,
            never = self.follow_primary() => match never {},
        }
    }

    async fn begin_scoped(
        &self,
        scope: TenantScope,
        actor: Option<&str>,
        locks_org: bool,
    ) -> Result<ScopedTransaction, sqlx::Error> {
        let connection = self.acquire_scoped(scope, actor, locks_org).await?;
        ScopedTransaction::begin(connection).await
    }
}

/// A connection from the pool whose scope is not set yet. Dropped in this state, it is closed: the
/// pool would wait for a dead or silent connection, and its slot would stay taken.
struct Unverified(Option<PoolConnection<Postgres>>);

impl Unverified {
    async fn configure(mut self, settings: &str) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        let connection = self.0.as_mut().ok_or(sqlx::Error::PoolClosed)?;
        let settings = AssertSqlSafe(settings.to_owned());
        connection.execute(settings).await?;
        self.0.take().ok_or(sqlx::Error::PoolClosed)
    }
}

impl Drop for Unverified {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}

/// `Ok` when the error means that this idle connection had died and another may work. After a
/// restart of the server, all idle connections have died.
fn skip_dead(error: sqlx::Error, attempts_left: &mut u32) -> Result<(), sqlx::Error> {
    match attempts_left.checked_sub(1) {
        Some(fewer) if is_connection_lost(&error) => {
            tracing::debug!(%error, "idle database connection was dead; trying another");
            *attempts_left = fewer;
            Ok(())
        }
        _ if is_role_refused(&error) => {
            Err(sqlx::Error::Configuration(Box::new(MissingRole(error))))
        }
        _ => Err(error),
    }
}

/// Whether the server rejected `SET ROLE`: no such role (22023), or it is not granted (42501).
fn is_role_refused(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code == "22023" || code == "42501")
}

/// Whether the error concerns this connection only, so that another one may work.
fn is_connection_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        // Connection exceptions, and connections that the server was ordered to terminate.
        sqlx::Error::Database(error) => error
            .code()
            .is_some_and(|code| code.starts_with("08") || code.starts_with("57P")),
        _ => false,
    }
}

/// Restricts the transaction to another owner's rows until it ends.
pub(crate) async fn set_local_tenant(
    transaction: &mut PgConnection,
    owner: impl Into<Owner>,
) -> Result<(), sqlx::Error> {
    set_local_scope(transaction, TenantScope::Tenant(owner.into())).await
}

/// Opens all rows of all organisations to the transaction until it ends. For the single step of a
/// tenant's transaction that has to check or write another owner's row.
pub(crate) async fn set_local_system(transaction: &mut PgConnection) -> Result<(), sqlx::Error> {
    set_local_scope(transaction, TenantScope::System).await
}

async fn set_local_scope(
    transaction: &mut PgConnection,
    scope: TenantScope,
) -> Result<(), sqlx::Error> {
    let sql = format!("SET LOCAL switchboard.speaker = '{}'", scope.setting());
    transaction.execute(AssertSqlSafe(sql)).await.map(drop)
}

impl Store {
    /// A connection that sees and writes one owner's rows, and reads public ones.
    ///
    /// The default choice: for every statement whose owner is known.
    pub(crate) async fn tenant_conn(
        &self,
        owner: impl Into<Owner>,
    ) -> Result<ScopedConnection, sqlx::Error> {
        let scope = TenantScope::Tenant(owner.into());
        self.connections
            .acquire_scoped(scope, self.actor(), false)
            .await
    }

    /// A connection with the rows of [`Store::tenant_conn`], outside the share of the owner.
    ///
    /// Only for what the installation or its operator does to an organisation: its own requests
    /// must not delay that.
    pub(crate) async fn operator_conn(
        &self,
        owner: impl Into<Owner>,
    ) -> Result<ScopedConnection, sqlx::Error> {
        let scope = TenantScope::Operator(owner.into());
        self.connections
            .acquire_scoped(scope, self.actor(), false)
            .await
    }

    /// A connection that sees and writes **all rows of all organisations**.
    ///
    /// Only for statements that belong to no single owner: authentication (the owner is the
    /// result), device events, queues and claims of workers, purges, keys of the installation. Not
    /// for a statement that serves one caller's request: its owner is known.
    pub(crate) async fn system_conn(&self) -> Result<ScopedConnection, sqlx::Error> {
        self.connections
            .acquire_scoped(TenantScope::System, self.actor(), false)
            .await
    }

    /// A connection with the rows of [`Store::system_conn`], **all of them**, in the share of the
    /// organisation whose request needs a key of the installation.
    pub(crate) async fn system_conn_for(
        &self,
        org: OrgId,
    ) -> Result<ScopedConnection, sqlx::Error> {
        self.connections
            .acquire_scoped(TenantScope::SystemFor(org), self.actor(), false)
            .await
    }

    /// A read-only connection that sees the skills books which `owner` can read, and chunks of
    /// every book.
    ///
    /// Only for the skills book search, whose index a row-level policy would disable. The statement
    /// must join `skills_books`, which the policies do restrict.
    pub(crate) async fn search_conn(&self, owner: Owner) -> Result<ScopedConnection, sqlx::Error> {
        let scope = TenantScope::Search(owner);
        self.connections
            .acquire_scoped(scope, self.actor(), false)
            .await
    }

    /// A connection that sees no rows and runs under the login role of the database URL.
    ///
    /// For statements about the database itself, which work before the first migration: the schema
    /// version, installed extensions, health checks.
    pub(crate) async fn unscoped_conn(&self) -> Result<ScopedConnection, sqlx::Error> {
        self.connections
            .acquire_scoped(TenantScope::Unscoped, self.actor(), false)
            .await
    }

    /// A transaction with the rows of [`Store::tenant_conn`].
    pub(crate) async fn begin_tenant(
        &self,
        owner: impl Into<Owner>,
    ) -> Result<ScopedTransaction, sqlx::Error> {
        let scope = TenantScope::Tenant(owner.into());
        self.connections
            .begin_scoped(scope, self.actor(), false)
            .await
    }

    /// A transaction with the rows of [`Store::operator_conn`], outside the share of the owner.
    ///
    /// Only for what the installation does to an organisation: its own requests must not delay that.
    pub(crate) async fn begin_operator(
        &self,
        owner: impl Into<Owner>,
    ) -> Result<ScopedTransaction, sqlx::Error> {
        let scope = TenantScope::Operator(owner.into());
        self.connections
            .begin_scoped(scope, self.actor(), false)
            .await
    }

    /// As [`Store::begin_tenant`] for a transaction that locks the row of its organisation. Other ones of this
    /// process wait without a connection until it ends.
    pub(crate) async fn begin_tenant_in_turn(
        &self,
        org: OrgId,
    ) -> Result<ScopedTransaction, sqlx::Error> {
        let scope = TenantScope::Tenant(org.into());
        self.connections
            .begin_scoped(scope, self.actor(), true)
            .await
    }

    /// A transaction with the rows of [`Store::system_conn`]: **all of them**. The same
    /// restrictions on its use apply.
    pub(crate) async fn begin_system(&self) -> Result<ScopedTransaction, sqlx::Error> {
        self.connections
            .begin_scoped(TenantScope::System, self.actor(), false)
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
    async fn connections_run_under_their_role_and_scope() {
        async fn check(connection: &mut PgConnection, role: &str, scope: &str) {
            let sql = "SELECT current_user::text, current_setting('switchboard.speaker')";
            let row: (String, String) = sqlx::query_as(sql).fetch_one(connection).await.unwrap();
            assert_eq!(row, (role.to_owned(), scope.to_owned()));
        }
        let database = TestDatabase::create().await.unwrap();
        let store = database.store();
        let org = OrgId::from_uuid(Uuid::now_v7());
        let (service, id) = ("switchboard_service", org.uuid().to_string());
        check(&mut store.tenant_conn(org).await.unwrap(), service, &id).await;
        check(&mut store.operator_conn(org).await.unwrap(), service, &id).await;
        check(&mut store.system_conn().await.unwrap(), service, "everyone").await;
        let owner = Owner::Installation;
        check(
            &mut store.search_conn(owner).await.unwrap(),
            "switchboard_search",
            "installation",
        )
        .await;
        let mut transaction = store.begin_tenant(org).await.unwrap();
        check(&mut transaction, service, &id).await;
        set_local_system(&mut transaction).await.unwrap();
        check(&mut transaction, service, "everyone").await;
        transaction.rollback().await.unwrap();
        let acting = store.with_actor("o'hara'; DROP TABLE orgs; --");
        let mut connection = acting.tenant_conn(org).await.unwrap();
        let actor = sqlx::query_scalar("SELECT current_setting('switchboard.actor')");
        let actor: String = actor.fetch_one(&mut *connection).await.unwrap();
        assert_eq!(actor, "o'hara'; DROP TABLE orgs; --");
        let mut transaction = store.begin_system().await.unwrap();
        check(&mut transaction, service, "everyone").await;
    }
}
