//! Looks now and then for objects that no row names, and has them removed.
//! Never: an object removed whose row may still be made.

use std::time::Duration;

use switchboard_runtime::shutdown::Shutdown;
use switchboard_store::Store;

/// How old such an object is before it goes: much older than any transaction gets.
const GRACE: Duration = Duration::from_secs(24 * 3600);
/// How often somebody looks.
const SWEEP: Duration = Duration::from_secs(6 * 3600);
/// How long until somebody looks again when that failed.
const AGAIN: Duration = Duration::from_secs(600);

/// Ends soon after draining begins. Several processes that look at once do no harm.
pub(crate) async fn run(store: Store, shutdown: Shutdown) {
    loop {
        let removed = tokio::select! {
            removed = store.remove_leftovers(GRACE) => removed,
            () = shutdown.draining() => return,
        };
        let rest = match removed {
            Ok(0) => SWEEP,
            Ok(objects) => {
                tracing::info!(objects, "objects were removed that nothing named any more");
                SWEEP
            }
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%error, cause, "objects that nothing names are kept for now");
                AGAIN
            }
        };
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = shutdown.draining() => return,
        }
    }
}
