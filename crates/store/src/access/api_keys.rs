//! API keys, identified by a hash of their secret.
//! Invariant: the secret itself is not stored.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgConnection;
use switchboard_protocol::{
    id::{ApiKeyId, OrgId},
    token::{Scope, Scopes},
};
use uuid::Uuid;

use crate::{
    Store, StoreError, TenantTransaction,
    access::scope_list,
    database::{purge::PURGE_BATCH_SIZE, with_timeout},
};

/// How exactly the last use of a key is known.
const USE_INTERVAL: TimeDelta = TimeDelta::minutes(1);

/// A key to insert.
#[derive(Debug, Clone)]
pub struct NewApiKey {
    /// The id of the key.
    pub id: ApiKeyId,
    /// The display name; 1 to 100 characters.
    pub name: String,
    /// The beginning of the secret, for display; at most 16 characters.
    pub prefix: String,
    /// The SHA-256 of the secret.
    pub secret_hash: [u8; 32],
    /// Its scopes; not empty.
    pub scopes: Scopes,
}

/// What restricts a key beside its scopes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiKeyLimits {
    /// The end of its validity; `None` for a key that does not expire.
    pub expires_at: Option<DateTime<Utc>>,
    /// The beginning of the ids of the devices that it reaches; 1 to 64 characters. `None` for all
    /// devices.
    pub device_prefix: Option<String>,
    /// The label of the devices that it reaches. `None` for all devices.
    pub device_label: Option<String>,
    /// The services that it reaches: names, or beginnings of names and `*`; 1 to 32. `None` for all.
    pub services: Option<Vec<String>>,
}

/// A stored key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// The id of the key.
    pub id: ApiKeyId,
    /// The organisation that it belongs to.
    pub org: OrgId,
    /// The display name.
    pub name: String,
    /// The beginning of the secret.
    pub prefix: String,
    /// Its scopes.
    pub scopes: Scopes,
    /// Time of creation.
    pub created_at: DateTime<Utc>,
    /// Time of the revocation.
    pub revoked_at: Option<DateTime<Utc>>,
    /// What restricts it beside its scopes.
    pub limits: ApiKeyLimits,
    /// When it was last used, to the minute.
    pub last_used_at: Option<DateTime<Utc>>,
}

/// The result of revoking a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRevocation {
    /// It is revoked, now or before.
    Revoked,
    /// The organisation has no key with this id.
    Unknown,
    /// It was not revoked: it is the organisation's last key with the scope `admin`.
    LastAdmin,
}

/// A row of `api_keys` without the hash.
struct Row {
    id: Uuid,
    org_id: Uuid,
    name: String,
    prefix: String,
    scopes: Vec<String>,
    created_at: DateTime<Utc>,
    revoked_at: Option<DateTime<Utc>>,
    expires_at: Option<DateTime<Utc>>,
    device_prefix: Option<String>,
    device_label: Option<String>,
    services: Option<Vec<String>>,
    last_used_at: Option<DateTime<Utc>>,
}

impl From<Row> for ApiKey {
    fn from(row: Row) -> Self {
        Self {
            id: ApiKeyId::from_uuid(row.id),
            org: OrgId::from_uuid(row.org_id),
            name: row.name,
            prefix: row.prefix,
            scopes: scope_list::decode(&row.scopes),
            created_at: row.created_at,
            revoked_at: row.revoked_at,
            limits: ApiKeyLimits {
                expires_at: row.expires_at,
                device_prefix: row.device_prefix,
                device_label: row.device_label,
                services: row.services,
            },
            last_used_at: row.last_used_at,
        }
    }
}

pub(crate) async fn insert(
    connection: &mut PgConnection,
    org: OrgId,
    key: &NewApiKey,
    limits: &ApiKeyLimits,
) -> Result<ApiKey, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        "INSERT INTO api_keys (id, org_id, name, prefix, secret_hash, scopes, expires_at, device_prefix, device_label, services)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
         RETURNING id, org_id, name, prefix, scopes, created_at, revoked_at, expires_at, device_prefix, device_label, services, last_used_at",
        key.id.uuid(),
        org.uuid(),
        key.name,
        key.prefix,
        key.secret_hash.as_slice(),
        &scope_list::encode(key.scopes),
        limits.expires_at,
        limits.device_prefix,
        limits.device_label,
        limits.services.as_deref()
    )
    .fetch_one(connection)
    .await?;
    Ok(row.into())
}

impl TenantTransaction {
    /// Adds a key to an organisation.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the key exists, [`StoreError::Refused`] if the organisation does
    /// not, or any other [`StoreError`].
    pub async fn create_api_key(
        &mut self,
        org: OrgId,
        key: &NewApiKey,
        limits: &ApiKeyLimits,
    ) -> Result<ApiKey, StoreError> {
        with_timeout(insert(self.connection(), org, key, limits)).await
    }
}

impl Store {
    /// Calls [`TenantTransaction::create_api_key`] without limits in a new transaction and commits
    /// it.
    ///
    /// # Errors
    /// As that method.
    pub async fn create_api_key(&self, org: OrgId, key: &NewApiKey) -> Result<ApiKey, StoreError> {
        let mut creation = self.begin(org).await?;
        let limits = ApiKeyLimits::default();
        let key = creation.create_api_key(org, key, &limits).await?;
        creation.commit().await?;
        Ok(key)
    }

    /// The key whose secret has this SHA-256, revoked or not, unless it has expired. Records the use
    /// of a valid key, at most once a minute.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn api_key_by_hash(
        &self,
        secret_hash: &[u8; 32],
    ) -> Result<Option<ApiKey>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "SELECT id, org_id, name, prefix, scopes, created_at, revoked_at, expires_at, device_prefix, device_label, services, last_used_at
             FROM api_keys WHERE secret_hash = $1 AND (expires_at IS NULL OR expires_at > now())",
            secret_hash.as_slice()
        );
        let row =
            with_timeout(async { query.fetch_optional(&mut *self.system_conn().await?).await })
                .await?;
        let key = row.map(ApiKey::from);
        if let Some(key) = key.as_ref().filter(|key| key.revoked_at.is_none()) {
            self.record_use(key).await;
        }
        Ok(key)
    }

    async fn record_use(&self, key: &ApiKey) {
        let is_recent = |at| Utc::now() - at < USE_INTERVAL;
        if key.last_used_at.is_some_and(is_recent) {
            return;
        }
        let query = sqlx::query!(
            "UPDATE api_keys SET last_used_at = now() WHERE id = $1
             AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')",
            key.id.uuid()
        );
        let done = with_timeout(async { query.execute(&mut *self.system_conn().await?).await });
        if let Err(error) = done.await {
            tracing::debug!(api_key.id = %key.id, error = error.report(), "the use of a key cannot be recorded");
        }
    }

    /// The key of an organisation with this id, revoked or not.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn api_key(&self, org: OrgId, id: ApiKeyId) -> Result<Option<ApiKey>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "SELECT id, org_id, name, prefix, scopes, created_at, revoked_at, expires_at, device_prefix, device_label, services, last_used_at
             FROM api_keys WHERE org_id = $1 AND id = $2",
            org.uuid(),
            id.uuid()
        );
        let row = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(org).await?)
                .await
        })
        .await?;
        Ok(row.map(ApiKey::from))
    }

    /// Keys of an organisation in the order of their creation, strictly after `after`, including
    /// revoked ones.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn api_keys(
        &self,
        org: OrgId,
        after: Option<ApiKeyId>,
        limit: u32,
    ) -> Result<Vec<ApiKey>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "SELECT id, org_id, name, prefix, scopes, created_at, revoked_at, expires_at, device_prefix, device_label, services, last_used_at FROM api_keys
             WHERE org_id = $1 AND ($2::uuid IS NULL OR id > $2) ORDER BY id LIMIT $3",
            org.uuid(),
            after.map(ApiKeyId::uuid),
            i64::from(limit)
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(org).await?).await })
                .await?;
        Ok(rows.into_iter().map(ApiKey::from).collect())
    }

    /// Deletes keys that were revoked or expired before this time, and the oldest revoked or expired
    /// ones of each organisation beyond `max_per_org`. Returns how many.
    ///
    /// # Errors
    /// [`StoreError`] if a query fails; earlier batches stay deleted.
    pub async fn purge_api_keys(
        &self,
        before: DateTime<Utc>,
        max_per_org: i64,
    ) -> Result<u64, StoreError> {
        let mut purged = self
            .purge(|| {
                sqlx::query!(
                    "DELETE FROM api_keys WHERE id IN
                 (SELECT id FROM api_keys WHERE LEAST(revoked_at, expires_at) < $1 LIMIT $2)",
                    before,
                    PURGE_BATCH_SIZE
                )
            })
            .await?;
        for org in self.org_ids().await? {
            let query = || {
                sqlx::query!(
                    "DELETE FROM api_keys WHERE id IN
                     (SELECT id FROM api_keys WHERE org_id = $1 AND LEAST(revoked_at, expires_at) <= now()
                      ORDER BY id DESC OFFSET $2 LIMIT $3)",
                    org.uuid(),
                    max_per_org,
                    PURGE_BATCH_SIZE
                )
            };
            purged += self.purge(query).await?;
        }
        Ok(purged)
    }

    /// Revokes a key, unless it is the organisation's last key with the scope `admin`. Revoking it
    /// again changes nothing.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn revoke_api_key(
        &self,
        org: OrgId,
        key: ApiKeyId,
    ) -> Result<KeyRevocation, StoreError> {
        with_timeout(async {
            let mut transaction = self.begin_tenant_in_turn(org).await?;
            // Revocations are serialised: two concurrent ones must not each rely on the other's
            // key.
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
               AND other.revoked_at IS NULL AND (other.expires_at IS NULL OR other.expires_at > now())
               AND $3 = ANY (other.scopes)))",
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
