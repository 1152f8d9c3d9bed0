//! Organisations, and what they set about themselves.
//! Never: an organisation without a key, which nobody could use, or another's NPC as its own.

use chrono::{DateTime, Utc};
use switchboard_protocol::id::{NpcId, OrgId};
use uuid::Uuid;

use crate::{
    ApiKey, Creation, NewApiKey, Owner, Store, StoreError, api_keys, connections::speak_within,
    database::bounded,
};

/// What an organisation sets about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrgSettings {
    /// What people call it; 1 to 100 characters.
    pub name: String,
    /// Who answers for devices through which no NPC speaks.
    pub default_npc: Option<NpcId>,
}

/// An organisation as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Org {
    /// Its id.
    pub id: OrgId,
    /// What it set.
    pub settings: OrgSettings,
    /// 1 at first, one more with each change, also when its NPC is removed.
    pub version: i64,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was changed last.
    pub updated_at: DateTime<Utc>,
}

/// What became of an organisation that was to be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrgWrite {
    /// It is changed; this is it.
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
        }
    }
}

impl Store {
    /// As [`Creation::create_org`], in a transaction of its own.
    ///
    /// # Errors
    /// As there.
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
    /// As every query.
    pub async fn org(&self, id: OrgId) -> Result<Option<Org>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "SELECT id, name, default_npc_id, version, created_at, updated_at FROM orgs WHERE id = $1",
            id.uuid()
        );
        let row =
            bounded(async { query.fetch_optional(&mut *self.within(id).await?).await }).await?;
        Ok(row.map(Org::from))
    }

    /// Replaces what an organisation in this version set. What changes nothing makes no version.
    ///
    /// # Errors
    /// As every query.
    pub async fn replace_org(
        &self,
        id: OrgId,
        version: i64,
        settings: &OrgSettings,
    ) -> Result<OrgWrite, StoreError> {
        let query = sqlx::query_as!(
            Row,
            "UPDATE orgs SET name = $3, default_npc_id = $4 WHERE id = $1 AND version = $2
             RETURNING id, name, default_npc_id, version, created_at, updated_at",
            id.uuid(),
            version,
            settings.name,
            settings.default_npc.map(NpcId::uuid)
        );
        match bounded(async { query.fetch_optional(&mut *self.within(id).await?).await }).await {
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

impl Creation {
    /// Creates an organisation together with its first API key.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the id or the key exists already, else as every query.
    pub async fn create_org(
        &mut self,
        org: OrgId,
        name: &str,
        first_key: &NewApiKey,
    ) -> Result<ApiKey, StoreError> {
        let owner = self.owner();
        bounded(async {
            speak_within(self.connection(), org).await?;
            sqlx::query!(
                "INSERT INTO orgs (id, name) VALUES ($1, $2)",
                org.uuid(),
                name
            )
            .execute(self.connection())
            .await?;
            let key = api_keys::insert(self.connection(), org, first_key).await?;
            speak_within(self.connection(), owner).await?;
            Ok::<_, sqlx::Error>(key)
        })
        .await
    }
}
