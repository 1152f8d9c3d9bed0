//! Responses to requests with an idempotency key, stored in the transaction of the request.
//! Invariant: the response and its effects are committed together, once per key.

use std::time::Duration;

use crate::{
    Owner, Store, StoreError,
    database::{interval, purge::PURGE_BATCH_SIZE, transaction::TenantTransaction, with_timeout},
};

/// The idempotency key of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKey {
    /// The owner that the request concerns.
    pub owner: Owner,
    /// SHA-256 of the owner, the caller and the caller's key.
    pub hash: [u8; 32],
}

/// A stored response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// SHA-256 of the request.
    pub fingerprint: Vec<u8>,
    /// The HTTP status, 100 to 599.
    pub status: u16,
    /// The `Location` header.
    pub location: Option<String>,
    /// The `ETag` header.
    pub etag: Option<String>,
    /// The media type of the body.
    pub media_type: String,
    /// The document, byte for byte, or sealed.
    pub body: Vec<u8>,
    /// Whether the body is sealed.
    pub sealed: bool,
}

/// The result of claiming a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestClaim {
    /// This transaction claimed it.
    Free,
    /// Another transaction has claimed it.
    Busy,
    /// The request was executed before; this was the response.
    Completed(Box<StoredResponse>),
}

struct Row {
    fingerprint: Vec<u8>,
    status: i32,
    location: Option<String>,
    etag: Option<String>,
    media_type: String,
    body: Vec<u8>,
    sealed: bool,
}

impl From<Row> for StoredResponse {
    fn from(row: Row) -> Self {
        Self {
            fingerprint: row.fingerprint,
            status: u16::try_from(row.status).unwrap_or_default(),
            location: row.location,
            etag: row.etag,
            media_type: row.media_type,
            body: row.body,
            sealed: row.sealed,
        }
    }
}

impl Store {
    /// The response that is stored under this key.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn stored_response(
        &self,
        key: &RequestKey,
    ) -> Result<Option<StoredResponse>, StoreError> {
        with_timeout(async {
            let mut connection = self.tenant_conn(key.owner).await?;
            find(&mut connection, key).await
        })
        .await
    }

    /// Deletes expired responses; returns how many.
    ///
    /// # Errors
    /// [`StoreError`] if a query fails; earlier batches stay deleted.
    pub async fn purge_responses(&self) -> Result<u64, StoreError> {
        self.purge(|| {
            sqlx::query!(
                "DELETE FROM idempotent_requests WHERE key_hash IN
                 (SELECT key_hash FROM idempotent_requests WHERE expires_at <= now() ORDER BY expires_at LIMIT $1)
                 AND expires_at <= now()",
                PURGE_BATCH_SIZE
            )
        })
        .await
    }
}

impl TenantTransaction {
    /// Claims the key until this transaction ends. Does not wait for another transaction.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn claim_request(&mut self, key: &RequestKey) -> Result<RequestClaim, StoreError> {
        with_timeout(async {
            let free = sqlx::query_scalar!(
                r#"SELECT pg_try_advisory_xact_lock(hashtextextended(encode($1, 'hex'), 1)) AS "free!""#,
                key.hash.as_slice()
            )
            .fetch_one(self.connection())
            .await?;
            if !free {
                return Ok(RequestClaim::Busy);
            }
            // A previous holder of the lock has committed.
            let stored = find(self.connection(), key).await?;
            Ok::<_, sqlx::Error>(stored.map_or(RequestClaim::Free, |stored| RequestClaim::Completed(Box::new(stored))))
        })
        .await
    }

    /// Stores the response under a claimed key for `retention`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn store_response(
        &mut self,
        key: &RequestKey,
        response: &StoredResponse,
        retention: Duration,
    ) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "INSERT INTO idempotent_requests
                 (key_hash, org_id, fingerprint, status, location, etag, media_type, body, sealed, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, now() + $10::interval)
             ON CONFLICT (key_hash) DO UPDATE SET
                 fingerprint = excluded.fingerprint, status = excluded.status, location = excluded.location,
                 etag = excluded.etag, media_type = excluded.media_type, body = excluded.body,
                 sealed = excluded.sealed, created_at = now(), expires_at = excluded.expires_at",
            key.hash.as_slice(),
            key.owner.column(),
            response.fingerprint,
            i32::from(response.status),
            response.location,
            response.etag,
            response.media_type,
            response.body,
            response.sealed,
            interval(retention)
        );
        with_timeout(query.execute(self.connection()))
            .await
            .map(drop)
    }
}

async fn find(
    connection: &mut sqlx::PgConnection,
    key: &RequestKey,
) -> Result<Option<StoredResponse>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        "SELECT fingerprint, status, location, etag, media_type, body, sealed FROM idempotent_requests
         WHERE key_hash = $1 AND org_id IS NOT DISTINCT FROM $2 AND expires_at > now()",
        key.hash.as_slice(),
        key.owner.column()
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(StoredResponse::from))
}
