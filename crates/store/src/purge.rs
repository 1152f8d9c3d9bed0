//! Old rows go step by step.
//! Never: a statement that holds its locks for long because much is old.

use crate::{StoreError, database::bounded};

/// How many rows one statement removes.
pub(crate) const PURGE_STEP: i64 = 5_000;

/// Removes step by step until one is not whole; says how many rows that were. A step removes [`PURGE_STEP`] rows if
/// there are as many, and says how many it did.
///
/// # Errors
/// As the step that fails; what was removed until then stays removed.
pub(crate) async fn in_steps<S>(mut step: impl FnMut() -> S) -> Result<u64, StoreError>
where
    S: Future<Output = Result<u64, sqlx::Error>>,
{
    let mut purged = 0;
    loop {
        let removed = bounded(step()).await?;
        purged += removed;
        if removed < PURGE_STEP.unsigned_abs() {
            return Ok(purged);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn steps_go_on_until_one_is_not_whole() {
        async fn check(steps: &[i64], taken: usize, expected: Option<u64>) {
            let mut begun = 0;
            let purged = in_steps(|| {
                let removed = steps.get(begun).copied();
                begun += 1;
                let removed = removed.map(i64::unsigned_abs);
                async move { removed.ok_or(sqlx::Error::PoolTimedOut) }
            });
            assert_eq!(purged.await.ok(), expected, "{steps:?}");
            assert_eq!(begun, taken, "{steps:?}");
        }
        let whole = PURGE_STEP;
        check(&[0, 7], 1, Some(0)).await;
        check(&[whole - 1, 7], 1, Some(4_999)).await;
        check(&[whole, 0, 7], 2, Some(5_000)).await;
        // What removes a table's rows with those of another counts the more.
        check(&[whole, whole + 1, 3, 7], 3, Some(10_004)).await;
        check(&[whole], 2, None).await;
    }
}
