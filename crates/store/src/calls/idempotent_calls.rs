//! Calls with an idempotency key, from the reservation of the key to the outcome.
//! Invariant: a key belongs to one call until it expires, and only that call writes its outcome.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use switchboard_protocol::id::{CallId, OrgId};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::{interval, purge::PURGE_BATCH_SIZE, with_timeout},
};

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

struct Row {
    call_id: Uuid,
    fingerprint: Vec<u8>,
    created_at: DateTime<Utc>,
    deadline: DateTime<Utc>,
    read_at: DateTime<Utc>,
    status: Option<i32>,
    body: Option<Vec<u8>>,
}

impl From<Row> for ReservedCall {
    fn from(row: Row) -> Self {
        let status = row.status.and_then(|status| u16::try_from(status).ok());
        let outcome = status.zip(row.body);
        Self {
            id: CallId::from_uuid(row.call_id),
            fingerprint: row.fingerprint,
            created_at: row.created_at,
            deadline: row.deadline,
            read_at: row.read_at,
            outcome: outcome.map(|(status, body)| StoredOutcome { status, body }),
        }
    }
}

impl Store {
    /// Reserves the key for this call; `Some` if it belongs to another call. If the future is
    /// dropped, the key may have been reserved.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if the organisation does not exist, or any other [`StoreError`].
    pub async fn reserve_call(
        &self,
        key: &CallKey,
        call: &NewCall,
    ) -> Result<Option<ReservedCall>, StoreError> {
        with_timeout(async {
            let mut connection = self.tenant_conn(key.org).await?;
            loop {
                if reserve(&mut connection, key, call).await? {
                    return Ok::<_, sqlx::Error>(None);
                }
                // Between the two queries, the other call may have released its key.
                if let Some(existing) = find_reservation(&mut connection, key).await? {
                    return Ok(Some(existing));
                }
            }
        })
        .await
    }

    /// Writes a call's outcome; false if the key does not belong to it, or has an outcome already.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails; the outcome may have been written.
    pub async fn finish_call(
        &self,
        key: &CallKey,
        call: CallId,
        outcome: &StoredOutcome,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "UPDATE idempotent_calls SET status = $4, body = $5
             WHERE org_id = $1 AND key_hash = $2 AND call_id = $3 AND status IS NULL",
            key.org.uuid(),
            key.hash.as_slice(),
            call.uuid(),
            i32::from(outcome.status),
            outcome.body
        );
        Ok(
            with_timeout(async { query.execute(&mut *self.tenant_conn(key.org).await?).await })
                .await?
                .rows_affected()
                > 0,
        )
    }

    /// Releases the key of a call that was not delivered; false if the key does not belong to it.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails; the key may have been released.
    pub async fn release_call(&self, key: &CallKey, call: CallId) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "DELETE FROM idempotent_calls
             WHERE org_id = $1 AND key_hash = $2 AND call_id = $3 AND status IS NULL",
            key.org.uuid(),
            key.hash.as_slice(),
            call.uuid()
        );
        Ok(
            with_timeout(async { query.execute(&mut *self.tenant_conn(key.org).await?).await })
                .await?
                .rows_affected()
                > 0,
        )
    }

    /// Deletes expired calls; returns how many.
    ///
    /// # Errors
    /// [`StoreError`] if a query fails; earlier batches stay deleted.
    pub async fn purge_calls(&self) -> Result<u64, StoreError> {
        self.purge(|| {
            sqlx::query!(
                "DELETE FROM idempotent_calls WHERE (org_id, key_hash) IN
                 (SELECT org_id, key_hash FROM idempotent_calls
                  WHERE expires_at <= now() ORDER BY expires_at LIMIT $1)
                 AND expires_at <= now()",
                PURGE_BATCH_SIZE
            )
        })
        .await
    }
}

/// Reserves the key; false if it belongs to another call.
pub(crate) async fn reserve(
    connection: &mut PgConnection,
    key: &CallKey,
    call: &NewCall,
) -> Result<bool, sqlx::Error> {
    let insert = sqlx::query!(
        "INSERT INTO idempotent_calls AS former (org_id, key_hash, fingerprint, call_id, deadline, expires_at)
         VALUES ($1, $2, $3, $4, now() + $5::interval, now() + $6::interval)
         ON CONFLICT (org_id, key_hash) DO UPDATE SET
             fingerprint = excluded.fingerprint, call_id = excluded.call_id, deadline = excluded.deadline,
             status = NULL, body = NULL, created_at = now(), expires_at = excluded.expires_at
         WHERE former.expires_at <= now()",
        key.org.uuid(),
        key.hash.as_slice(),
        call.fingerprint.as_slice(),
        call.id.uuid(),
        interval(call.timeout),
        interval(call.retention)
    );
    Ok(insert.execute(connection).await?.rows_affected() > 0)
}

/// The call that the key belongs to.
pub(crate) async fn find_reservation(
    connection: &mut PgConnection,
    key: &CallKey,
) -> Result<Option<ReservedCall>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT call_id, fingerprint, created_at, deadline, now() AS "read_at!", status, body
           FROM idempotent_calls WHERE org_id = $1 AND key_hash = $2"#,
        key.org.uuid(),
        key.hash.as_slice()
    );
    let row = row.fetch_optional(connection).await?;
    Ok(row.map(ReservedCall::from))
}
