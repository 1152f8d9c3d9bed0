//! Calls with an idempotency key, from the reservation of the key to the outcome.
//! Invariant: a key belongs to one call until it expires, and only that call writes its outcome.

mod items;

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use switchboard_protocol::id::{CallId, OrgId};

use crate::{
    Store, StoreError,
    database::{batches::Item as _, purge::PURGE_BATCH_SIZE, with_timeout},
};
pub(crate) use items::{Ending, Reservation};

/// The idempotency key of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallKey {
    /// The organisation of the caller.
    pub org: OrgId,
    /// SHA-256 of the device, the caller and the caller's key.
    pub hash: [u8; 32],
}

/// A call to reserve a key for.
#[derive(Debug, Clone)]
pub struct NewCall {
    /// The id of the call.
    pub id: CallId,
    /// SHA-256 of the request.
    pub fingerprint: [u8; 32],
    /// The timeout of the call.
    pub timeout: Duration,
    /// How long the key belongs to it; longer than `timeout`.
    pub retention: Duration,
}

/// The call that a key belongs to; all times are the database's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedCall {
    /// The id of the call.
    pub id: CallId,
    /// SHA-256 of the request; of another length only if the database was changed by hand.
    pub fingerprint: Vec<u8>,
    /// When the key was reserved.
    pub created_at: DateTime<Utc>,
    /// When the call ends at the latest.
    pub deadline: DateTime<Utc>,
    /// When this was read.
    pub read_at: DateTime<Utc>,
    /// Its outcome, once known.
    pub outcome: Option<StoredOutcome>,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOutcome {
    /// The HTTP status, 100 to 599.
    pub status: u16,
    /// The document, byte for byte.
    pub body: Vec<u8>,
}

impl Store {
    /// Reserves the key for this call; `Some` if it belongs to another call. If the future is
    /// dropped, the key is not reserved, or is released later; it stays reserved if PostgreSQL is
    /// unavailable then.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if the organisation does not exist, or any other [`StoreError`].
    pub async fn reserve_call(
        &self,
        key: &CallKey,
        call: &NewCall,
    ) -> Result<Option<ReservedCall>, StoreError> {
        let item = Reservation {
            hash: key.hash,
            call: call.clone(),
        };
        self.reservations.execute(self, key.org, item).await
    }

    /// Writes a call's outcome; false if the key does not belong to it, or has an outcome already.
    /// If the future is dropped, the outcome may be written.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails; the outcome may have been written.
    pub async fn finish_call(
        &self,
        key: &CallKey,
        call: CallId,
        outcome: StoredOutcome,
    ) -> Result<bool, StoreError> {
        let item = Ending {
            hash: key.hash,
            call,
            outcome,
        };
        self.endings.execute(self, key.org, item).await
    }

    /// Releases the key of a call that was not delivered; false if the key does not belong to it.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails; the key may have been released.
    pub async fn release_call(&self, key: &CallKey, call: CallId) -> Result<bool, StoreError> {
        let released = with_timeout(async {
            let mut connection = self.tenant_conn(key.org).await?;
            items::release(&mut connection, key.org, &[&key.hash], &[call.uuid()]).await
        });
        Ok(released.await? > 0)
    }

    /// Deletes expired calls, except those whose rows are locked; returns how many. It waits for no
    /// row, so that there is no deadlock with a statement that reserves several keys.
    ///
    /// # Errors
    /// [`StoreError`] if a query fails; earlier batches stay deleted.
    pub async fn purge_calls(&self) -> Result<u64, StoreError> {
        self.purge(|| {
            sqlx::query!(
                "DELETE FROM idempotent_calls WHERE (org_id, key_hash) IN
                 (SELECT org_id, key_hash FROM idempotent_calls
                  WHERE expires_at <= now() ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED)",
                PURGE_BATCH_SIZE
            )
        })
        .await
    }
}

/// Reserves the key within a transaction; `Some` if it belongs to another call.
pub(crate) async fn reserve(
    connection: &mut PgConnection,
    key: &CallKey,
    call: &NewCall,
) -> Result<Option<ReservedCall>, sqlx::Error> {
    let item = Reservation {
        hash: key.hash,
        call: call.clone(),
    };
    loop {
        let outputs = Reservation::execute(&mut *connection, key.org, &[&item]).await?;
        if let Some(output) = outputs.into_iter().flatten().next() {
            return Ok(output);
        }
    }
}
