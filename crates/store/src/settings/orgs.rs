//! Organisations and their settings.
//! Invariant: an organisation is created together with its first key.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::{Row as _, types::Json};
use switchboard_protocol::id::{NpcId, OrgId};
use switchboard_runtime::quota::Limits;
use utoipa::ToSchema;
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
    /// Whether what users say to devices is recorded.
    pub record_speech: bool,
    /// Days until a recording is deleted; 1 to 365.
    pub recording_retention_days: i32,
    /// The language of its users as a BCP 47 tag, for messages of the service itself; at most 35 bytes.
    pub locale: Option<String>,
    /// Whether the journal of its calls has their params and results.
    pub journal_params: bool,
    /// Whether models call only services that were approved.
    pub model_approval: ModelApproval,
}

/// Whether models call only services that were approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(example = "required")]
pub enum ModelApproval {
    /// They call all.
    #[default]
    Off,
    /// They call those that were approved as they are.
    Required,
}

impl ModelApproval {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Required => "required",
        }
    }

    /// A constraint of the table excludes other texts.
    fn from_column(text: &str) -> Self {
        if text == "off" {
            Self::Off
        } else {
            Self::Required
        }
    }
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
    /// The quotas that the operator set in place of the defaults.
    pub quotas: Limits,
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

/// The suspended organisations at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuspendedOrgs {
    /// In the order of their ids.
    pub orgs: Vec<OrgId>,
    /// The time in microseconds, by the clock of the database.
    pub version: u64,
}

/// The lock orders the readings: each statement of the implicit transaction sees what was committed
/// when it begins. In one message, so that no client can stop while it holds the lock.
const READ_SUSPENDED: &str = "\
    DO $$ BEGIN PERFORM pg_advisory_xact_lock(hashtext('switchboard.suspended_orgs')); END $$;
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS version,
           ARRAY(SELECT id FROM orgs WHERE suspended_at IS NOT NULL ORDER BY id) AS orgs";

pub(crate) struct Row {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) default_npc_id: Option<Uuid>,
    pub(crate) version: i64,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) updated_at: DateTime<Utc>,
    pub(crate) suspended_at: Option<DateTime<Utc>>,
    pub(crate) record_speech: bool,
    pub(crate) recording_retention_days: i32,
    pub(crate) locale: Option<String>,
    pub(crate) journal_params: bool,
    pub(crate) model_approval: String,
    pub(crate) quotas: Json<Limits>,
}

impl From<Row> for Org {
    fn from(row: Row) -> Self {
        Self {
            id: OrgId::from_uuid(row.id),
            settings: OrgSettings {
                name: row.name,
                default_npc: row.default_npc_id.map(NpcId::from_uuid),
                record_speech: row.record_speech,
                recording_retention_days: row.recording_retention_days,
                locale: row.locale,
                journal_params: row.journal_params,
                model_approval: ModelApproval::from_column(&row.model_approval),
            },
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
            suspended_at: row.suspended_at,
            quotas: row.quotas.0,
        }
    }
}

impl Store {
    /// The ids of all organisations, for purges.
    pub(crate) async fn org_ids(&self) -> Result<Vec<OrgId>, StoreError> {
        let query = sqlx::query_scalar!("SELECT id FROM orgs ORDER BY id");
        let ids =
            with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await }).await?;
        Ok(ids.into_iter().map(OrgId::from_uuid).collect())
    }

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
            r#"SELECT id, name, default_npc_id, version, created_at, updated_at, suspended_at,
                         record_speech, recording_retention_days, locale, journal_params, model_approval,
                      quotas AS "quotas: Json<Limits>"
               FROM orgs WHERE id = $1"#,
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
            r#"UPDATE orgs SET name = $3, default_npc_id = $4, record_speech = $5, recording_retention_days = $6, locale = $7,
                               journal_params = $8, model_approval = $9
               WHERE id = $1 AND version = $2
               RETURNING id, name, default_npc_id, version, created_at, updated_at, suspended_at,
                         record_speech, recording_retention_days, locale, journal_params, model_approval,
                         quotas AS "quotas: Json<Limits>""#,
            id.uuid(),
            version,
            settings.name,
            settings.default_npc.map(NpcId::uuid),
            settings.record_speech,
            settings.recording_retention_days,
            settings.locale,
            settings.journal_params,
            settings.model_approval.as_str()
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
            r#"SELECT id, name, default_npc_id, version, created_at, updated_at, suspended_at,
                         record_speech, recording_retention_days, locale, journal_params, model_approval,
                      quotas AS "quotas: Json<Limits>"
               FROM orgs WHERE $1::uuid IS NULL OR id > $1 ORDER BY id LIMIT $2"#,
            after.map(OrgId::uuid),
            i64::from(limit)
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await }).await?;
        Ok(rows.into_iter().map(Org::from).collect())
    }

    /// The language of each organisation that names one, in the order of their ids.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn org_locales(&self) -> Result<Vec<(OrgId, String)>, StoreError> {
        let query = sqlx::query!(
            r#"SELECT id, locale AS "locale!" FROM orgs WHERE locale IS NOT NULL ORDER BY id"#
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await }).await?;
        let rows = rows.into_iter();
        Ok(rows
            .map(|row| (OrgId::from_uuid(row.id), row.locale))
            .collect())
    }

    /// The organisations that want params and results in the journal, in the order of their ids.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn orgs_with_journal_params(&self) -> Result<Vec<OrgId>, StoreError> {
        let query = sqlx::query_scalar!("SELECT id FROM orgs WHERE journal_params ORDER BY id");
        let ids =
            with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await }).await?;
        Ok(ids.into_iter().map(OrgId::from_uuid).collect())
    }

    /// The organisations that require approvals, in the order of their ids.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn approving_orgs(&self) -> Result<Vec<OrgId>, StoreError> {
        let query = sqlx::query_scalar!(
            "SELECT id FROM orgs WHERE model_approval = 'required' ORDER BY id"
        );
        let ids =
            with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await }).await?;
        Ok(ids.into_iter().map(OrgId::from_uuid).collect())
    }

    /// Suspends an organisation, or lifts its suspension; `None` if there is none with this id. A
    /// repetition changes nothing. It does not wait for requests of the organisation.
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
            r#"UPDATE orgs SET suspended_at = CASE WHEN $2 THEN COALESCE(suspended_at, now()) END WHERE id = $1
               RETURNING id, name, default_npc_id, version, created_at, updated_at, suspended_at,
                         record_speech, recording_retention_days, locale, journal_params, model_approval,
                         quotas AS "quotas: Json<Limits>""#,
            id.uuid(),
            is_suspended
        );
        let row = with_timeout(async {
            query
                .fetch_optional(&mut *self.operator_conn(id).await?)
                .await
        })
        .await?;
        Ok(row.map(Org::from))
    }

    /// The suspended organisations. Of two lists, the one that was read later has the higher
    /// version.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn suspended_orgs(&self) -> Result<SuspendedOrgs, StoreError> {
        let row = with_timeout(async {
            let mut connection = self.system_conn().await?;
            let read = sqlx::raw_sql(READ_SUSPENDED).fetch_one(&mut *connection);
            let row = read.await?;
            let (version, orgs): (i64, Vec<Uuid>) = (row.try_get("version")?, row.try_get("orgs")?);
            Ok::<_, sqlx::Error>((version, orgs))
        });
        let (version, orgs) = row.await?;
        Ok(SuspendedOrgs {
            version: version.unsigned_abs(),
            orgs: orgs.into_iter().map(OrgId::from_uuid).collect(),
        })
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

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::time::Duration;

    use switchboard_test_support::eventually::eventually;
    use tokio::task::JoinSet;

    use super::*;
    use crate::testing::TestDatabase;

    #[tokio::test]
    async fn later_list_of_suspended_organisations_has_the_higher_version() {
        let database = TestDatabase::create().await.unwrap();
        let store = database.store();
        let org = OrgId::from_uuid(Uuid::from_u128(1));
        let sql = format!(
            "INSERT INTO orgs (id, name) VALUES ('{}', 'an org')",
            org.uuid()
        );
        database.execute(&sql).await.unwrap();
        let first = store.suspended_orgs().await.unwrap();
        assert_eq!(first.orgs, []);
        // A reading that waits for another one sees what was committed in the meantime.
        let mut other = store.begin_system().await.unwrap();
        sqlx::raw_sql("SELECT pg_advisory_xact_lock(hashtext('switchboard.suspended_orgs'))")
            .execute(&mut *other)
            .await
            .unwrap();
        let (mut readings, reader) = (JoinSet::new(), store.clone());
        readings.spawn(async move { reader.suspended_orgs().await });
        let waiting = async || {
            let sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
            let mut connection = store.unscoped_conn().await.unwrap();
            let count = sqlx::query_scalar::<_, i64>(sql);
            count.fetch_one(&mut *connection).await.unwrap()
        };
        let waiting = eventually(Duration::from_secs(10), waiting, |count| *count == 1);
        assert_eq!(waiting.await, 1);
        store.set_suspended(org, true).await.unwrap();
        other.rollback().await.unwrap();
        let second = readings.join_next().await.unwrap().unwrap().unwrap();
        assert_eq!(second.orgs, [org]);
        assert!(second.version > first.version, "{second:?} {first:?}");
    }
}
