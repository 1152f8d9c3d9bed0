//! Access tokens that were issued, so that they can be revoked.
//! Never: the signed token itself.

use chrono::{DateTime, Utc};
use switchboard_protocol::{
    access::Scopes,
    id::{OrgId, TokenId},
};

use crate::{
    Creation, Store, StoreError,
    database::bounded,
    purge::{PURGE_STEP, in_steps},
    scope_list,
};

/// A token about to be given out.
#[derive(Debug, Clone)]
pub struct IssuedToken {
    /// Its `jti`.
    pub id: TokenId,
    /// Whose it is.
    pub org: OrgId,
    /// Whom it names.
    pub subject: String,
    /// What it may do; not empty.
    pub scopes: Scopes,
    /// From when it is valid.
    pub issued_at: DateTime<Utc>,
    /// Until when it is valid.
    pub expires_at: DateTime<Utc>,
}

/// A token that must be refused though it has not expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevokedToken {
    /// Its `jti`.
    pub id: TokenId,
    /// After this moment it is refused anyway.
    pub expires_at: DateTime<Utc>,
}

impl Creation {
    /// Records a token before it is given out.
    ///
    /// # Errors
    /// As every query.
    pub async fn add_token(&mut self, token: &IssuedToken) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "INSERT INTO tokens (id, org_id, subject, scopes, issued_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6)",
            token.id.uuid(),
            token.org.uuid(),
            token.subject,
            &scope_list::write(token.scopes),
            token.issued_at,
            token.expires_at
        );
        bounded(query.execute(self.connection())).await.map(drop)
    }
}

impl Store {
    /// As [`Creation::add_token`], in a transaction of its own.
    ///
    /// # Errors
    /// As there.
    pub async fn add_token(&self, token: &IssuedToken) -> Result<(), StoreError> {
        let mut creation = self.begin(token.org).await?;
        creation.add_token(token).await?;
        creation.commit().await
    }

    /// Revokes a token; `None` when the organisation has none with this id. A second time changes nothing.
    ///
    /// # Errors
    /// As every query.
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
        let row =
            bounded(async { query.fetch_optional(&mut *self.within(org).await?).await }).await?;
        Ok(row.map(|row| RevokedToken {
            id: token,
            expires_at: row.expires_at,
        }))
    }

    /// All revoked tokens, of every organisation, that have not expired.
    ///
    /// # Errors
    /// As every query.
    pub async fn revoked_tokens(&self) -> Result<Vec<RevokedToken>, StoreError> {
        let query = sqlx::query!(
            "SELECT id, expires_at FROM tokens WHERE revoked_at IS NOT NULL AND expires_at > now()"
        );
        let rows = bounded(async { query.fetch_all(&mut *self.throughout().await?).await }).await?;
        let revoked = rows.into_iter().map(|row| RevokedToken {
            id: TokenId::from_uuid(row.id),
            expires_at: row.expires_at,
        });
        Ok(revoked.collect())
    }

    /// Forgets tokens that expired before this moment; says how many.
    ///
    /// # Errors
    /// As every query; what was removed until then stays removed.
    pub async fn purge_tokens(&self, expired_before: DateTime<Utc>) -> Result<u64, StoreError> {
        in_steps(|| async {
            let query = sqlx::query!(
                "DELETE FROM tokens WHERE id IN
                 (SELECT id FROM tokens WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)",
                expired_before,
                PURGE_STEP
            );
            let done = query.execute(&mut *self.throughout().await?).await?;
            Ok(done.rows_affected())
        })
        .await
    }
}
