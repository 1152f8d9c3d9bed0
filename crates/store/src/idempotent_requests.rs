//! Answers to requests that made something under an idempotency key, kept by the transaction that made it.
//! Never: an answer kept for something that was not made, or something made twice under one key.

use std::time::Duration;

use crate::{
    Owner, Store, StoreError,
    creation::Creation,
    database::{bounded, interval},
    purge::{PURGE_STEP, in_steps},
};

/// What one request is remembered under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKey {
    /// Whose request it is.
    pub owner: Owner,
    /// SHA-256 of the owner, the caller and the key that the caller gave.
    pub hash: [u8; 32],
}

/// An answer as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAnswer {
    /// SHA-256 of what was asked for.
    pub fingerprint: Vec<u8>,
    /// The HTTP status, 100 to 599.
    pub status: u16,
    /// Where it was made.
    pub location: Option<String>,
    /// In which version.
    pub etag: Option<String>,
    /// What the body is.
    pub media_type: String,
    /// The document, byte for byte, or sealed.
    pub body: Vec<u8>,
    /// Whether the body is sealed.
    pub sealed: bool,
}

/// Whether something may be made under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestClaim {
    /// It may, by this transaction and by no other.
    Free,
    /// Another transaction is making it.
    Busy,
    /// It was made; this was the answer.
    Answered(Box<KeptAnswer>),
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

impl From<Row> for KeptAnswer {
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
    /// The answer that is kept under this key.
    ///
    /// # Errors
    /// As every query.
    pub async fn kept_answer(&self, key: &RequestKey) -> Result<Option<KeptAnswer>, StoreError> {
        bounded(async {
            let mut connection = self.within(key.owner).await?;
            find(&mut connection, key).await
        })
        .await
    }

    /// Forgets answers that have expired; says how many.
    ///
    /// # Errors
    /// As every query; what was removed until then stays removed.
    pub async fn purge_answers(&self) -> Result<u64, StoreError> {
        in_steps(|| async {
            let query = sqlx::query!(
                "DELETE FROM idempotent_requests WHERE key_hash IN
                 (SELECT key_hash FROM idempotent_requests WHERE expires_at <= now() ORDER BY expires_at LIMIT $1)
                 AND expires_at <= now()",
                PURGE_STEP
            );
            let done = query.execute(&mut *self.throughout().await?).await?;
            Ok(done.rows_affected())
        })
        .await
    }
}

impl Creation {
    /// Takes the key until this transaction ends. Nobody waits: who is second is told so.
    ///
    /// # Errors
    /// As every query.
    pub async fn claim(&mut self, key: &RequestKey) -> Result<RequestClaim, StoreError> {
        bounded(async {
            let free = sqlx::query_scalar!(
                r#"SELECT pg_try_advisory_xact_lock(hashtextextended(encode($1, 'hex'), 1)) AS "free!""#,
                key.hash.as_slice()
            )
            .fetch_one(self.connection())
            .await?;
            if !free {
                return Ok(RequestClaim::Busy);
            }
            // Whoever had it before has committed by now.
            let kept = find(self.connection(), key).await?;
            Ok::<_, sqlx::Error>(kept.map_or(RequestClaim::Free, |kept| RequestClaim::Answered(Box::new(kept))))
        })
        .await
    }

    /// Keeps the answer under a key that was found free, so long.
    ///
    /// # Errors
    /// As every query.
    pub async fn keep(
        &mut self,
        key: &RequestKey,
        answer: &KeptAnswer,
        kept: Duration,
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
            answer.fingerprint,
            i32::from(answer.status),
            answer.location,
            answer.etag,
            answer.media_type,
            answer.body,
            answer.sealed,
            interval(kept)
        );
        bounded(query.execute(self.connection())).await.map(drop)
    }
}

async fn find(
    connection: &mut sqlx::PgConnection,
    key: &RequestKey,
) -> Result<Option<KeptAnswer>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        "SELECT fingerprint, status, location, etag, media_type, body, sealed FROM idempotent_requests
         WHERE key_hash = $1 AND org_id IS NOT DISTINCT FROM $2 AND expires_at > now()",
        key.hash.as_slice(),
        key.owner.column()
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(KeptAnswer::from))
}
