//! Calls made under an idempotency key, from their reservation to their outcome.
//! Never: a key taken twice while its call is remembered, or one call's outcome written over another's.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use switchboard_protocol::id::{CallId, OrgId};
use uuid::Uuid;

use crate::{
    Store, StoreError,
    database::{bounded, interval},
    purge::{PURGE_STEP, in_steps},
};

/// What one call is remembered under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallKey {
    /// Whose call it is.
    pub org: OrgId,
    /// SHA-256 of the device, the caller and the key that the caller gave.
    pub hash: [u8; 32],
}

/// A call about to be made.
#[derive(Debug, Clone)]
pub struct NewCall {
    /// Its id.
    pub id: CallId,
    /// SHA-256 of what is asked for.
    pub fingerprint: [u8; 32],
    /// How long it may take.
    pub timeout: Duration,
    /// How long it is remembered; longer than `timeout`.
    pub kept: Duration,
}

/// A call as it is remembered; all times are the database's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedCall {
    /// Its id.
    pub id: CallId,
    /// SHA-256 of what was asked for; of another length only if the database was changed by hand.
    pub fingerprint: Vec<u8>,
    /// When its key was taken.
    pub created_at: DateTime<Utc>,
    /// When it is over, whatever happened.
    pub deadline: DateTime<Utc>,
    /// When this was read.
    pub read_at: DateTime<Utc>,
    /// How it ended, once that is known.
    pub outcome: Option<StoredOutcome>,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOutcome {
    /// The HTTP status, 100 to 599.
    pub status: u16,
    /// The document, byte for byte.
    pub body: Vec<u8>,
}

/// A row, read now.
struct Row {
    call_id: Uuid,
    fingerprint: Vec<u8>,
    created_at: DateTime<Utc>,
    deadline: DateTime<Utc>,
    read_at: DateTime<Utc>,
    status: Option<i32>,
    body: Option<Vec<u8>>,
}

impl From<Row> for RememberedCall {
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
    /// Takes the key for this call; `Some` when it is taken by a call that is still remembered.
    /// Whoever drops the future does not know whether the key was taken.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the organisation does not exist, else as every query.
    pub async fn reserve_call(
        &self,
        key: &CallKey,
        call: &NewCall,
    ) -> Result<Option<RememberedCall>, StoreError> {
        bounded(async {
            let mut connection = self.within(key.org).await?;
            loop {
                if take(&mut connection, key, call).await? {
                    return Ok::<_, sqlx::Error>(None);
                }
                // Between the two questions the other call can have given its key back.
                if let Some(existing) = remembered(&mut connection, key).await? {
                    return Ok(Some(existing));
                }
            }
        })
        .await
    }

    /// Puts a call's outcome on record; false when the key is not this call's, or there is an outcome already.
    ///
    /// # Errors
    /// As every query; the outcome may have been written.
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
            bounded(async { query.execute(&mut *self.within(key.org).await?).await })
                .await?
                .rows_affected()
                > 0,
        )
    }

    /// Gives the key of a call back that was not delivered; false when the key is not this call's.
    ///
    /// # Errors
    /// As every query; the key may have been given back.
    pub async fn release_call(&self, key: &CallKey, call: CallId) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "DELETE FROM idempotent_calls
             WHERE org_id = $1 AND key_hash = $2 AND call_id = $3 AND status IS NULL",
            key.org.uuid(),
            key.hash.as_slice(),
            call.uuid()
        );
        Ok(
            bounded(async { query.execute(&mut *self.within(key.org).await?).await })
                .await?
                .rows_affected()
                > 0,
        )
    }

    /// Forgets calls that have expired; says how many.
    ///
    /// # Errors
    /// As every query; what was removed until then stays removed.
    pub async fn purge_calls(&self) -> Result<u64, StoreError> {
        in_steps(|| async {
            let query = sqlx::query!(
                "DELETE FROM idempotent_calls WHERE (org_id, key_hash) IN
                 (SELECT org_id, key_hash FROM idempotent_calls
                  WHERE expires_at <= now() ORDER BY expires_at LIMIT $1)
                 AND expires_at <= now()",
                PURGE_STEP
            );
            let done = query.execute(&mut *self.throughout().await?).await?;
            Ok(done.rows_affected())
        })
        .await
    }
}

/// Takes the key; false when a call has it that is still remembered.
pub(crate) async fn take(
    connection: &mut PgConnection,
    key: &CallKey,
    call: &NewCall,
) -> Result<bool, sqlx::Error> {
    let taken = sqlx::query!(
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
        interval(call.kept)
    );
    Ok(taken.execute(connection).await?.rows_affected() > 0)
}

/// The call that has the key.
pub(crate) async fn remembered(
    connection: &mut PgConnection,
    key: &CallKey,
) -> Result<Option<RememberedCall>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT call_id, fingerprint, created_at, deadline, now() AS "read_at!", status, body
           FROM idempotent_calls WHERE org_id = $1 AND key_hash = $2"#,
        key.org.uuid(),
        key.hash.as_slice()
    );
    let row = row.fetch_optional(connection).await?;
    Ok(row.map(RememberedCall::from))
}
