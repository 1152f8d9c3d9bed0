//! Organisations and their settings.
//! Invariant: an organisation is created together with its first key.

use chrono::{DateTime, Utc};
use switchboard_protocol::id::{NpcId, OrgId};
use uuid::Uuid;

use crate::{
    ApiKey, ApiKeyLimits, NewApiKey, Owner, Store, StoreError, TenantTransaction,
    access::api_keys,
    database::{connections::set_local_tenant, with_timeout},
};

/// The settings of an organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrgSettings {
    /// The display name; 1 to 100 characters.
    pub name: String,
    /// The NPC of devices that are assigned to none.
    pub default_npc: Option<NpcId>,
}

/// A stored organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Org {
    /// The id of the organisation.
    pub id: OrgId,
    /// Its settings.
    pub settings: OrgSettings,
    /// Its version, from 1. It also increases when its default NPC is deleted.
    pub version: i64,
    /// Time of creation.
    pub created_at: DateTime<Utc>,
    /// Time of the last change.
    pub updated_at: DateTime<Utc>,
    /// Since when the operator refuses its credentials.
    pub suspended_at: Option<DateTime<Utc>>,
}

/// The result of changing an organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrgWrite {
    /// It was changed.
    Written(Org),
    /// There is none with this id and this version.
    Stale,
    /// It has no such NPC.
    UnknownNpc,
}

struct Row {
    id: Uuid,
    name: String,
    default_npc_id: Option<Uuid>,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    suspended_at: Option<DateTime<Utc>>,
}

impl From<Row> for Org {
    fn from(row: Row) -> Self {
        Self {
            id: OrgId::from_uuid(row.id),
            settings: OrgSettings {
                name: row.name,
                default_npc: row.default_npc_id.map(NpcId::from_uuid),
            },
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
            suspended_at: row.suspended_at,
        }
    }
}

impl Store {
    /// Calls [`TenantTransaction::create_org`] in a new transaction and commits it.
    ///
    /// # Errors
    /// As that method.
    pub async fn create_org(
        &self,
        org: OrgId,
        name: &str,
        first_key: &NewApiKey,
    ) -> Result<ApiKey, StoreError> {
        let mut creation = self.begin(Owner::Installation).await?;
        let key = creation.create_org(org, name, first_key).await?;
        creation.commit().await?;
        Ok(key)
    }

    /// The organisation with this id.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn org(&self, id: OrgId) -> Result<Option<Org>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "SELECT id, name, default_npc_id, version, created_at, updated_at, suspended_at FROM orgs WHERE id = $1",
            id.uuid()
        );
        let row = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(id).await?)
                .await
        })
        .await?;
        Ok(row.map(Org::from))
    }

    /// Replaces the settings of an organisation with this version. Equal settings do not increase
    /// the version.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn replace_org(
        &self,
        id: OrgId,
        version: i64,
        settings: &OrgSettings,
    ) -> Result<OrgWrite, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "UPDATE orgs SET name = $3, default_npc_id = $4 WHERE id = $1 AND version = $2
             RETURNING id, name, default_npc_id, version, created_at, updated_at, suspended_at",
            id.uuid(),
            version,
            settings.name,
            settings.default_npc.map(NpcId::uuid)
        );
        match with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(id).await?)
                .await
        })
        .await
        {
            Ok(Some(row)) => Ok(OrgWrite::Written(row.into())),
            Ok(None) => Ok(OrgWrite::Stale),
            Err(StoreError::Refused(sqlx::Error::Database(answer)))
                if answer.constraint() == Some("orgs_default_npc_exists") =>
            {
                Ok(OrgWrite::UnknownNpc)
            }
            Err(error) => Err(error),
        }
    }
}

impl Store {
    /// All organisations in the order of their ids, strictly after `after`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn orgs(&self, after: Option<OrgId>, limit: u32) -> Result<Vec<Org>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "SELECT id, name, default_npc_id, version, created_at, updated_at, suspended_at FROM orgs
             WHERE $1::uuid IS NULL OR id > $1 ORDER BY id LIMIT $2",
            after.map(OrgId::uuid),
            i64::from(limit)
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await }).await?;
        Ok(rows.into_iter().map(Org::from).collect())
    }

    /// Suspends an organisation, or lifts its suspension; `None` if there is none with this id. A
    /// repetition changes nothing.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn set_suspended(
        &self,
        id: OrgId,
        is_suspended: bool,
    ) -> Result<Option<Org>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "UPDATE orgs SET suspended_at = CASE WHEN $2 THEN COALESCE(suspended_at, now()) END WHERE id = $1
             RETURNING id, name, default_npc_id, version, created_at, updated_at, suspended_at",
            id.uuid(),
            is_suspended
        );
        let row = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(id).await?)
                .await
        })
        .await?;
        Ok(row.map(Org::from))
    }

    /// The suspended organisations, in the order of their ids.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn suspended_orgs(&self) -> Result<Vec<OrgId>, StoreError> {
        let query =
            sqlx::query_scalar!("SELECT id FROM orgs WHERE suspended_at IS NOT NULL ORDER BY id");
        let ids =
            with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await }).await?;
        Ok(ids.into_iter().map(OrgId::from_uuid).collect())
    }
}

impl TenantTransaction {
    /// Creates an organisation together with its first API key.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the id or the key exists, or any other [`StoreError`].
    pub async fn create_org(
        &mut self,
        org: OrgId,
        name: &str,
        first_key: &NewApiKey,
    ) -> Result<ApiKey, StoreError> {
        let owner = self.owner();
        with_timeout(async {
            set_local_tenant(self.connection(), org).await?;
            sqlx::query!(
                "INSERT INTO orgs (id, name) VALUES ($1, $2)",
                org.uuid(),
                name
            )
            .execute(self.connection())
            .await?;
            let limits = ApiKeyLimits::default();
            let key = api_keys::insert(self.connection(), org, first_key, &limits).await?;
            set_local_tenant(self.connection(), owner).await?;
            Ok::<_, sqlx::Error>(key)
        })
        .await
    }
}
