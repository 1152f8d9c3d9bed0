//! API keys, known by a hash of their secret.
//! Never: the secret itself.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use switchboard_protocol::{
    access::{Scope, Scopes},
    id::{ApiKeyId, OrgId},
};
use uuid::Uuid;

use crate::{Creation, Store, StoreError, database::bounded, scope_list};

/// A key about to be stored.
#[derive(Debug, Clone)]
pub struct NewApiKey {
    /// Its id.
    pub id: ApiKeyId,
    /// What people call it; 1 to 100 characters.
    pub name: String,
    /// How the secret begins, to be shown; at most 16 characters.
    pub prefix: String,
    /// SHA-256 of the secret.
    pub secret_hash: [u8; 32],
    /// What it may do; not empty.
    pub scopes: Scopes,
}

/// A key as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Its id.
    pub id: ApiKeyId,
    /// Whose it is.
    pub org: OrgId,
    /// What people call it.
    pub name: String,
    /// How the secret begins.
    pub prefix: String,
    /// What it may do.
    pub scopes: Scopes,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// Since when it is refused.
    pub revoked_at: Option<DateTime<Utc>>,
}

/// What became of a key that was to be revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRevocation {
    /// It is refused from now on, or was before.
    Revoked,
    /// The organisation has none with this id.
    Unknown,
    /// It stays good: it is the last one that may administer the organisation.
    LastAdmin,
}

/// `api_keys` without the hash.
struct Row {
    id: Uuid,
    org_id: Uuid,
    name: String,
    prefix: String,
    scopes: Vec<String>,
    created_at: DateTime<Utc>,
    revoked_at: Option<DateTime<Utc>>,
}

impl From<Row> for ApiKey {
    fn from(row: Row) -> Self {
        Self {
            id: ApiKeyId::from_uuid(row.id),
            org: OrgId::from_uuid(row.org_id),
            name: row.name,
            prefix: row.prefix,
            scopes: scope_list::read(&row.scopes),
            created_at: row.created_at,
            revoked_at: row.revoked_at,
        }
    }
}

pub(crate) async fn insert(
    connection: &mut PgConnection,
    org: OrgId,
    key: &NewApiKey,
) -> Result<ApiKey, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        "INSERT INTO api_keys (id, org_id, name, prefix, secret_hash, scopes) VALUES ($1, $2, $3, $4, $5, $6)
         RETURNING id, org_id, name, prefix, scopes, created_at, revoked_at",
        key.id.uuid(),
        org.uuid(),
        key.name,
        key.prefix,
        key.secret_hash.as_slice(),
        &scope_list::write(key.scopes)
    )
    .fetch_one(connection)
    .await?;
    Ok(row.into())
}

impl Creation {
    /// Adds a key to an organisation.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the key exists already, [`StoreError::Refused`] when the organisation does
    /// not, else as every query.
    pub async fn create_api_key(
        &mut self,
        org: OrgId,
        key: &NewApiKey,
    ) -> Result<ApiKey, StoreError> {
        bounded(insert(self.connection(), org, key)).await
    }
}

impl Store {
    /// As [`Creation::create_api_key`], in a transaction of its own.
    ///
    /// # Errors
    /// As there.
    pub async fn create_api_key(&self, org: OrgId, key: &NewApiKey) -> Result<ApiKey, StoreError> {
        let mut creation = self.begin(org).await?;
        let key = creation.create_api_key(org, key).await?;
        creation.commit().await?;
        Ok(key)
    }

    /// The key whose secret has this SHA-256, revoked or not.
    ///
    /// # Errors
    /// As every query.
    pub async fn api_key_by_hash(
        &self,
        secret_hash: &[u8; 32],
    ) -> Result<Option<ApiKey>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "SELECT id, org_id, name, prefix, scopes, created_at, revoked_at FROM api_keys WHERE secret_hash = $1",
            secret_hash.as_slice()
        );
        Ok(
            bounded(async { query.fetch_optional(&mut *self.throughout().await?).await })
                .await?
                .map(ApiKey::from),
        )
    }

    /// Keys of an organisation in the order of their making, strictly after `after`, revoked ones as well.
    ///
    /// # Errors
    /// As every query.
    pub async fn api_keys(
        &self,
        org: OrgId,
        after: Option<ApiKeyId>,
        limit: u32,
    ) -> Result<Vec<ApiKey>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "SELECT id, org_id, name, prefix, scopes, created_at, revoked_at FROM api_keys
             WHERE org_id = $1 AND ($2::uuid IS NULL OR id > $2) ORDER BY id LIMIT $3",
            org.uuid(),
            after.map(ApiKeyId::uuid),
            i64::from(limit)
        );
        let rows = bounded(async { query.fetch_all(&mut *self.within(org).await?).await }).await?;
        Ok(rows.into_iter().map(ApiKey::from).collect())
    }

    /// Revokes a key, unless nobody could administer the organisation after that. A second time changes nothing.
    ///
    /// # Errors
    /// As every query.
    pub async fn revoke_api_key(
        &self,
        org: OrgId,
        key: ApiKeyId,
    ) -> Result<KeyRevocation, StoreError> {
        bounded(async {
            let mut transaction = self.begin_within(org).await?;
            // One revocation at a time: two at once must not each count on the other's key.
            sqlx::query!(
                "SELECT id FROM orgs WHERE id = $1 FOR NO KEY UPDATE",
                org.uuid()
            )
            .fetch_optional(&mut *transaction)
            .await?;
            let revocation = revoke(&mut transaction, org, key).await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(revocation)
        })
        .await
    }
}

async fn revoke(
    connection: &mut PgConnection,
    org: OrgId,
    key: ApiKeyId,
) -> Result<KeyRevocation, sqlx::Error> {
    let revoked = sqlx::query!(
        "UPDATE api_keys SET revoked_at = COALESCE(revoked_at, now()) WHERE org_id = $1 AND id = $2
         AND (revoked_at IS NOT NULL OR NOT $3 = ANY (scopes) OR EXISTS
              (SELECT FROM api_keys other WHERE other.org_id = $1 AND other.id <> $2
               AND other.revoked_at IS NULL AND $3 = ANY (other.scopes)))",
        org.uuid(),
        key.uuid(),
        Scope::Admin.as_str()
    )
    .execute(&mut *connection)
    .await?;
    if revoked.rows_affected() > 0 {
        return Ok(KeyRevocation::Revoked);
    }
    let exists = sqlx::query!(
        "SELECT id FROM api_keys WHERE org_id = $1 AND id = $2",
        org.uuid(),
        key.uuid()
    )
    .fetch_optional(connection)
    .await?;
    Ok(match exists {
        Some(_) => KeyRevocation::LastAdmin,
        None => KeyRevocation::Unknown,
    })
}
