//! What the holder of a connection has: the connection, and its permits of the gate.
//! Invariant: permits are returned after the connection, also when a statement is cancelled: the
//! server still executes it, and the connection is not idle before its end.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use sqlx::{Executor, PgConnection, Postgres, pool::PoolConnection};
use switchboard_runtime::{
    budget::{self, Budget, Budgets, Exhausted, Kind, Permit},
    shutdown::Shutdown,
};
use tokio::time::{Instant, timeout};
use tracing::Span;

/// How long a connection may take to become idle. Above the timeout of a statement.
const RETURN_TIMEOUT: Duration = Duration::from_secs(15);

/// The bounds before the pool: the owners of statements take turns, and each has a share.
#[derive(Debug)]
pub(crate) struct Gate {
    /// One for each connection of the pool. An organisation holds at most four fifths of them,
    /// because it decides how long a statement of its own waits for a lock. A smaller share would
    /// slow down the only organisation of an installation.
    connections: Budget,
    /// Transactions that lock the row of their organisation: one at a time, so that the others
    /// wait without a connection.
    org_rows: Budget,
    /// The tasks that return connections to the pool.
    returns: Shutdown,
}

/// The permits of one connection.
#[derive(Debug)]
pub(crate) struct Permits {
    _connection: Permit,
    org_row: Option<Permit>,
}

impl Gate {
    /// A gate for a pool of this size.
    pub(crate) fn new(budgets: &Budgets, limit: u32) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let four_fifths = Kind::Held {
            share: (limit * 4 / 5).max(1),
        };
        Self {
            connections: budgets.slots("database_connections", limit, four_fifths),
            org_rows: budgets.slots("database_org_rows", limit, Kind::Held { share: 1 }),
            returns: Shutdown::new(),
        }
    }

    /// Waits for the permits of a connection. `locks_org` is set for a transaction that locks the
    /// row of its organisation.
    pub(crate) async fn enter(
        &self,
        owner: budget::Owner,
        locks_org: bool,
        deadline: Instant,
    ) -> Result<Permits, Exhausted> {
        // First: a transaction that waits for it must not hold a connection.
        let org_row = match locks_org {
            true => Some(self.org_rows.acquire(owner, 1, deadline).await?),
            false => None,
        };
        Ok(Permits {
            _connection: self.connections.acquire(owner, 1, deadline).await?,
            org_row,
        })
    }
}

/// A connection whose scope is set.
#[derive(Debug)]
pub(crate) struct ScopedConnection {
    /// Present until this value is dropped.
    connection: Option<PoolConnection<Postgres>>,
    permits: Option<Permits>,
    gate: Arc<Gate>,
    in_transaction: bool,
}

/// A transaction whose scope is set. Dropped without [`ScopedTransaction::commit`], it is rolled
/// back.
#[derive(Debug)]
pub(crate) struct ScopedTransaction(ScopedConnection);

impl ScopedConnection {
    pub(crate) const fn new(
        connection: PoolConnection<Postgres>,
        permits: Permits,
        gate: Arc<Gate>,
    ) -> Self {
        Self {
            connection: Some(connection),
            permits: Some(permits),
            gate,
            in_transaction: false,
        }
    }
}

impl Deref for ScopedConnection {
    type Target = PgConnection;

    #[expect(clippy::expect_used, reason = "only `drop` takes the connection")]
    fn deref(&self) -> &PgConnection {
        self.connection.as_ref().expect("present until the drop")
    }
}

impl DerefMut for ScopedConnection {
    #[expect(clippy::expect_used, reason = "only `drop` takes the connection")]
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.connection.as_mut().expect("present until the drop")
    }
}

impl Drop for ScopedConnection {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        let (permits, in_transaction) = (self.permits.take(), self.in_transaction);
        self.gate.returns.spawn_in(Span::none(), async move {
            give_back(connection, in_transaction).await;
            drop(permits);
        });
    }
}

/// Returns a connection to the pool after its current statement, or closes it if the server does
/// not answer: the permits of the connection are not held for longer.
async fn give_back(mut connection: PoolConnection<Postgres>, in_transaction: bool) {
    if in_transaction {
        let undone = timeout(RETURN_TIMEOUT, (&mut *connection).execute("ROLLBACK")).await;
        if !matches!(undone, Ok(Ok(_))) {
            // The server rolls back when the connection is closed.
            drop(connection.detach());
            return;
        }
    }
    let _ = timeout(RETURN_TIMEOUT, connection.return_to_pool()).await;
}

impl ScopedTransaction {
    pub(crate) async fn begin(mut connection: ScopedConnection) -> Result<Self, sqlx::Error> {
        // Before the statement: one that is cancelled may have taken effect.
        connection.in_transaction = true;
        (&mut *connection).execute("BEGIN").await?;
        Ok(Self(connection))
    }

    pub(crate) async fn commit(self) -> Result<(), sqlx::Error> {
        self.end("COMMIT").await
    }

    pub(crate) async fn rollback(self) -> Result<(), sqlx::Error> {
        self.end("ROLLBACK").await
    }

    async fn end(mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        (&mut *self.0).execute(statement).await?;
        self.0.in_transaction = false;
        // The server has released the row.
        if let Some(permits) = &mut self.0.permits {
            permits.org_row = None;
        }
        Ok(())
    }
}

impl Deref for ScopedTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0
    }
}

impl DerefMut for ScopedTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}
