//! Deletes orphaned objects: objects in the object store without a row in the database.
//!
//! Invariant: no object is deleted whose row may still be inserted.

use std::time::Duration;

use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::Store;

/// The minimum age of a deleted object: much more than the duration of any transaction.
const ORPHAN_GRACE: Duration = Duration::from_secs(24 * 3600);
/// Between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// Between a failed sweep and the next one.
const RETRY_INTERVAL: Duration = Duration::from_secs(600);

/// Sweeps until the process drains. Several processes may sweep at the same time.
pub(crate) async fn run(store: Store, shutdown: Shutdown) {
    loop {
        let removed = tokio::select! {
            removed = store.delete_orphaned_objects(ORPHAN_GRACE) => removed,
            () = shutdown.draining() => return,
        };
        let pause = match removed {
            Ok(0) => SWEEP_INTERVAL,
            Ok(objects) => {
                tracing::info!(objects, "orphaned objects deleted");
                SWEEP_INTERVAL
            }
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%error, cause, "orphaned objects cannot be deleted; retrying later");
                RETRY_INTERVAL
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.draining() => return,
        }
    }
}
