//! Issued access tokens, stored for revocation.
//! Invariant: the signed token itself is not stored.

use chrono::{DateTime, Utc};
use switchboard_protocol::{
    id::{OrgId, TokenId},
    token::Scopes,
};
use uuid::Uuid;

use crate::{
    Store, StoreError, TenantTransaction,
    access::scope_list,
    database::{purge::PURGE_BATCH_SIZE, with_timeout},
};

/// A token to insert.
#[derive(Debug, Clone)]
pub struct IssuedToken {
    /// Its `jti`.
    pub id: TokenId,
    /// The organisation that it belongs to.
    pub org: OrgId,
    /// Its subject.
    pub subject: String,
    /// Its scopes; not empty.
    pub scopes: Scopes,
    /// The beginning of its validity.
    pub issued_at: DateTime<Utc>,
    /// The end of its validity.
    pub expires_at: DateTime<Utc>,
}

/// A token as it is listed, with the time of its revocation.
#[derive(Debug, Clone)]
pub struct ListedToken {
    /// The token.
    pub token: IssuedToken,
    /// When it was revoked.
    pub revoked_at: Option<DateTime<Utc>>,
}

/// A revoked token that has not expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevokedToken {
    /// Its `jti`.
    pub id: TokenId,
    /// The end of its validity, after which it is refused anyway.
    pub expires_at: DateTime<Utc>,
}

/// Revoked tokens that have not expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocations {
    /// The tokens, in any order.
    pub tokens: Vec<RevokedToken>,
    /// When they were read, by the clock of the database.
    pub read_at: DateTime<Utc>,
}

impl TenantTransaction {
    /// Inserts a token before it is issued.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn add_token(&mut self, token: &IssuedToken) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "INSERT INTO tokens (id, org_id, subject, scopes, issued_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6)",
            token.id.uuid(),
            token.org.uuid(),
            token.subject,
            &scope_list::encode(token.scopes),
            token.issued_at,
            token.expires_at
        );
        with_timeout(query.execute(self.connection()))
            .await
            .map(drop)
    }
}

impl Store {
    /// Calls [`TenantTransaction::add_token`] in a new transaction and commits it.
    ///
    /// # Errors
    /// As that method.
    pub async fn add_token(&self, token: &IssuedToken) -> Result<(), StoreError> {
        let mut creation = self.begin(token.org).await?;
        creation.add_token(token).await?;
        creation.commit().await
    }

    /// Tokens of an organisation, newest first, strictly before `before`; those of one subject, or all.
    /// Tokens that expired some time ago are deleted.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn tokens(
        &self,
        org: OrgId,
        subject: Option<&str>,
        before: Option<TokenId>,
        limit: u32,
    ) -> Result<Vec<ListedToken>, StoreError> {
        let query = sqlx::query!(
            "SELECT id, subject, scopes, issued_at, expires_at, revoked_at FROM tokens
             WHERE org_id = $1 AND id < $2 AND ($3::text IS NULL OR subject = $3) ORDER BY id DESC LIMIT $4",
            org.uuid(),
            before.map_or(Uuid::max(), TokenId::uuid),
            subject,
            i64::from(limit)
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await })
                .await?;
        let tokens = rows.into_iter().map(|row| {
            let token = IssuedToken {
                id: TokenId::from_uuid(row.id),
                org,
                subject: row.subject,
                scopes: scope_list::decode(&row.scopes),
                issued_at: row.issued_at,
                expires_at: row.expires_at,
            };
            ListedToken {
                token,
                revoked_at: row.revoked_at,
            }
        });
        Ok(tokens.collect())
    }

    /// Revokes a token; `None` if the organisation has none with this id. Revoking it again changes
    /// nothing.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn revoke_token(
        &self,
        org: OrgId,
        token: TokenId,
    ) -> Result<Option<RevokedToken>, StoreError> {
        let query = sqlx::query!(
            "UPDATE tokens SET revoked_at = COALESCE(revoked_at, now()) WHERE org_id = $1 AND id = $2
             RETURNING expires_at",
            org.uuid(),
            token.uuid()
        );
        let row = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(org).await?)
                .await
        })
        .await?;
        Ok(row.map(|row| RevokedToken {
            id: token,
            expires_at: row.expires_at,
        }))
    }

    /// The revoked tokens of all organisations that have not expired: those revoked since this
    /// time, or all.
    ///
    /// # Errors
    /// [`StoreError`] if a query fails.
    pub async fn revocations(
        &self,
        since: Option<DateTime<Utc>>,
    ) -> Result<Revocations, StoreError> {
        let now = sqlx::query_scalar!(r#"SELECT now() AS "now!""#);
        let query = sqlx::query!(
            "SELECT id, expires_at FROM tokens
             WHERE revoked_at IS NOT NULL AND expires_at > now() AND revoked_at >= $1",
            since.unwrap_or(DateTime::UNIX_EPOCH)
        );
        let (read_at, rows) = with_timeout(async {
            let mut connection = self.system_conn().await?;
            let read_at = now.fetch_one(&mut *connection).await?;
            let rows = query.fetch_all(&mut *connection).await?;
            Ok::<_, sqlx::Error>((read_at, rows))
        })
        .await?;
        let tokens = rows.into_iter().map(|row| RevokedToken {
            id: TokenId::from_uuid(row.id),
            expires_at: row.expires_at,
        });
        Ok(Revocations {
            tokens: tokens.collect(),
            read_at,
        })
    }

    /// The number of revoked tokens of all organisations that have not expired.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn count_revocations(&self) -> Result<usize, StoreError> {
        let query = sqlx::query_scalar!(
            r#"SELECT count(*) AS "count!" FROM tokens WHERE revoked_at IS NOT NULL AND expires_at > now()"#
        );
        let count =
            with_timeout(async { query.fetch_one(&mut *self.system_conn().await?).await }).await?;
        Ok(usize::try_from(count).unwrap_or_default())
    }

    /// Deletes tokens that expired before this time; returns how many.
    ///
    /// # Errors
    /// [`StoreError`] if a query fails; earlier batches stay deleted.
    pub async fn purge_tokens(&self, expired_before: DateTime<Utc>) -> Result<u64, StoreError> {
        self.purge(|| {
            sqlx::query!(
                "DELETE FROM tokens WHERE id IN
                 (SELECT id FROM tokens WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)",
                expired_before,
                PURGE_BATCH_SIZE
            )
        })
        .await
    }
}
