//! Notifications of ended calls from all processes on this database, over one listening connection.
//! Notifications are lost while the connection is down; receivers must read the state again after
//! an error.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use switchboard_protocol::id::CallId;

use crate::{Store, StoreError, database::with_timeout};

/// The channel; the statements that end calls contain its name too.
const CHANNEL: &str = "switchboard_calls";
/// The timeout for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Receives notifications of ended calls.
#[derive(Debug)]
pub struct CallEndListener(PgListener);

impl Store {
    /// Starts to listen, on a dedicated connection.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn listen_call_ends(&self) -> Result<CallEndListener, StoreError> {
        with_timeout(async {
            let options = self.connections.primary_options().await;
            let pool = PgPoolOptions::new()
                .max_connections(1)
                .acquire_timeout(CONNECT_TIMEOUT)
                .idle_timeout(None)
                .max_lifetime(None)
                .connect_with(options)
                .await?;
            let mut listener = PgListener::connect_with(&pool).await?;
            // With eager reconnects, missed notifications would go unnoticed.
            listener.eager_reconnect(false);
            listener.listen(CHANNEL).await?;
            Ok::<_, sqlx::Error>(CallEndListener(listener))
        })
        .await
    }
}

impl CallEndListener {
    /// The next call that ended. Waits until there is one.
    ///
    /// # Errors
    /// [`StoreError`] if the connection is lost: notifications may have been missed from then on.
    pub async fn next(&mut self) -> Result<CallId, StoreError> {
        loop {
            let notification = self.0.try_recv().await?;
            let notification = notification.ok_or(StoreError::Unavailable(None))?;
            // Payloads that are no id are not from this program.
            if let Ok(id) = notification.payload().parse() {
                return Ok(CallId::from_uuid(id));
            }
        }
    }
}
