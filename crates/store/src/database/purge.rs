//! Batched deletion of old rows.
//! Invariant: the number of rows that one statement locks is bounded.

use sqlx::{Postgres, postgres::PgArguments, query::Query};

use crate::{Store, StoreError, database::with_timeout};

/// The maximum number of rows that one statement deletes.
pub(crate) const PURGE_BATCH_SIZE: i64 = 5_000;

impl Store {
    /// Executes `query`, which deletes at most [`PURGE_BATCH_SIZE`] rows, until a batch is
    /// incomplete; returns the number of deleted rows.
    ///
    /// # Errors
    /// [`StoreError`] if a batch fails; earlier batches stay deleted.
    pub(crate) async fn purge<'q>(
        &self,
        query: impl Fn() -> Query<'q, Postgres, PgArguments>,
    ) -> Result<u64, StoreError> {
        in_batches(|| async {
            let done = query().execute(&mut *self.system_conn().await?).await?;
            Ok(done.rows_affected())
        })
        .await
    }
}

/// Repeats `delete_batch` until a batch is incomplete; returns the number of deleted rows. Each
/// call deletes at most [`PURGE_BATCH_SIZE`] rows and returns how many.
///
/// # Errors
/// The error of the failed batch; earlier batches stay deleted.
pub(crate) async fn in_batches<S>(mut delete_batch: impl FnMut() -> S) -> Result<u64, StoreError>
where
    S: Future<Output = Result<u64, sqlx::Error>>,
{
    let mut purged = 0;
    loop {
        let deleted = with_timeout(delete_batch()).await?;
        purged += deleted;
        if deleted < PURGE_BATCH_SIZE.unsigned_abs() {
            return Ok(purged);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn batches_continue_until_one_is_incomplete() {
        async fn check(batches: &[i64], calls: usize, expected: Option<u64>) {
            let mut calls_made = 0;
            let purged = in_batches(|| {
                let deleted = batches.get(calls_made).copied();
                calls_made += 1;
                let deleted = deleted.map(i64::unsigned_abs);
                async move { deleted.ok_or(sqlx::Error::PoolTimedOut) }
            });
            assert_eq!(purged.await.ok(), expected, "{batches:?}");
            assert_eq!(calls_made, calls, "{batches:?}");
        }
        let full = PURGE_BATCH_SIZE;
        check(&[0, 7], 1, Some(0)).await;
        check(&[full - 1, 7], 1, Some(4_999)).await;
        check(&[full, 0, 7], 2, Some(5_000)).await;
        // Cascading deletes can increase the count beyond the batch size.
        check(&[full, full + 1, 3, 7], 3, Some(10_004)).await;
        check(&[full], 2, None).await;
    }
}
