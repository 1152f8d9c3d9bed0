//! Leases of background jobs on rows: the protocol, and the statements of a worker that holds one.

use sqlx::{Postgres, postgres::PgArguments, query::Query};

use crate::{Store, StoreError, database::with_timeout};

impl Store {
    /// Executes a statement of the worker that a job is leased to. Returns whether the lease was
    /// still its own.
    ///
    /// The protocol is the same for skills books and voices:
    ///
    /// - *claim*: takes one due job that is not leased, or whose lease has expired, with
    ///   `FOR UPDATE SKIP LOCKED`, and writes the worker's id and the end of the lease.
    /// - *renew*: extends the lease, more often than it would expire.
    /// - *write*, *complete*, *fail*: name the worker's id in their condition. A worker whose lease
    ///   was taken over changes no row, and this method returns false.
    /// - *release*: clears the worker's id, and sets the time at which the job is due again.
    ///
    /// A worker that terminates releases nothing; its job is claimed again when the lease expires.
    pub(crate) async fn execute_leased(
        &self,
        statement: Query<'_, Postgres, PgArguments>,
    ) -> Result<bool, StoreError> {
        let done = with_timeout(async { statement.execute(&mut *self.system_conn().await?).await })
            .await?;
        Ok(done.rows_affected() > 0)
    }
}
