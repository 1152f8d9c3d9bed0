//! News of calls that have ended, from every process on this database: one connection that listens.
//! Never: news taken for a record; what was missed while the connection was away is not told again.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use switchboard_protocol::id::CallId;

use crate::{Store, StoreError, database::bounded};

/// Where ends are told; the statements that end calls name it as well.
const CHANNEL: &str = "switchboard_calls";
/// How long a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// Listens to the ends of calls.
#[derive(Debug)]
pub struct CallEnds(PgListener);

impl Store {
    /// Begins to listen, on a connection of its own.
    ///
    /// # Errors
    /// As every query.
    pub async fn call_ends(&self) -> Result<CallEnds, StoreError> {
        let options = self.connections.options();
        bounded(async {
            let pool = PgPoolOptions::new()
                .max_connections(1)
                .acquire_timeout(CONNECT_LIMIT)
                .idle_timeout(None)
                .max_lifetime(None)
                .connect_with(options)
                .await?;
            let mut listener = PgListener::connect_with(&pool).await?;
            // It would be connected anew in silence; who listens must look at what was missed.
            listener.eager_reconnect(false);
            listener.listen(CHANNEL).await?;
            Ok::<_, sqlx::Error>(CallEnds(listener))
        })
        .await
    }
}

impl CallEnds {
    /// The next call that ended. Waits until there is one.
    ///
    /// # Errors
    /// When the connection is gone: ends may have been missed from then on.
    pub async fn next(&mut self) -> Result<CallId, StoreError> {
        loop {
            let heard = self.0.try_recv().await?;
            let heard = heard.ok_or(StoreError::Unavailable(None))?;
            // What is no id was not told by us.
            if let Ok(id) = heard.payload().parse() {
                return Ok(CallId::from_uuid(id));
            }
        }
    }
}
