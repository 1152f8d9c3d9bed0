//! NPCs: characters of an organisation, based on a template or standalone, and the devices they are
//! assigned to.
//! Invariant: a write names the version that its author has read.

mod devices;
mod pages;
mod prompts;
mod resources;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::{PgConnection, types::Json};
use switchboard_catalog::{
    Effective, NpcSettings, TemplateSettings, apply_overrides, overridden_pictures,
};
use switchboard_protocol::id::{
    DeviceId, NpcId, OrgId, PictureId, SkillsBookId, TemplateId, VoiceId,
};
use uuid::Uuid;

use crate::{
    Owner, Store, StoreError, TenantTransaction,
    database::with_timeout,
    media::voices,
    settings::templates::{lock_books, lock_pictures},
};

/// A stored NPC.
#[derive(Debug, Clone, PartialEq)]
pub struct Npc {
    /// The id of the NPC.
    pub id: NpcId,
    /// The organisation that it belongs to.
    pub org: OrgId,
    /// Its settings; devices in the order of their ids.
    pub settings: NpcSettings,
    /// Its effective settings.
    pub effective: Effective,
    /// The template's version that the effective settings are based on.
    pub effective_version: Option<i64>,
    /// Version of its own settings, from 1.
    pub version: i64,
    /// Time of creation.
    pub created_at: DateTime<Utc>,
    /// Time of the last change.
    pub updated_at: DateTime<Utc>,
}

/// Restricts a list of NPCs.
#[derive(Debug, Clone, Default)]
pub struct NpcFilter {
    /// The NPC that is assigned to this device.
    pub device: Option<DeviceId>,
    /// NPCs based on this template.
    pub template: Option<TemplateId>,
}

/// The result of writing an NPC.
#[derive(Debug, Clone, PartialEq)]
pub enum NpcWrite {
    /// It was written.
    Written(Box<Npc>),
    /// The organisation has none with this id and this version.
    Stale,
    /// The organisation cannot read the template.
    UnknownTemplate,
    /// The template does not have this version, or no longer has it.
    UnknownVersion,
    /// It refers to a picture that the organisation cannot read.
    UnknownPicture(PictureId),
    /// It refers to a skills book that the organisation cannot read.
    UnknownSkillsBook(SkillsBookId),
    /// It refers to a voice that the organisation cannot read.
    UnknownVoice(VoiceId),
    /// Another NPC is assigned to one of the devices.
    DeviceTaken {
        /// The index of the device.
        index: usize,
        /// The other NPC, unless it has just released the device.
        by: Option<NpcId>,
    },
}

struct Row {
    id: Uuid,
    org_id: Uuid,
    template_id: Option<Uuid>,
    template_version: Option<i64>,
    overrides: Json<Map<String, Value>>,
    devices: Vec<String>,
    effective_version: Option<i64>,
    template: Option<Json<TemplateSettings>>,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for Npc {
    fn from(row: Row) -> Self {
        let template = row.template.map(|template| template.0);
        let devices = row.devices.iter();
        Self {
            id: NpcId::from_uuid(row.id),
            org: OrgId::from_uuid(row.org_id),
            effective: apply_overrides(template.as_ref(), &row.overrides.0),
            settings: NpcSettings {
                template: row.template_id.map(TemplateId::from_uuid),
                template_version: row.template_version,
                overrides: row.overrides.0,
                devices: devices.filter_map(|name| name.parse().ok()).collect(),
            },
            effective_version: row.effective_version,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

impl TenantTransaction {
    /// Inserts an NPC. Commit only if the result is [`NpcWrite::Written`].
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the id exists, or any other [`StoreError`].
    pub async fn create_npc(
        &mut self,
        org: OrgId,
        id: NpcId,
        settings: &NpcSettings,
    ) -> Result<NpcWrite, StoreError> {
        with_timeout(write(self.connection(), org, (id, None), settings)).await
    }
}

impl Store {
    /// Calls [`TenantTransaction::create_npc`] in a new transaction and commits it.
    ///
    /// # Errors
    /// As that method.
    pub async fn create_npc(
        &self,
        org: OrgId,
        id: NpcId,
        settings: &NpcSettings,
    ) -> Result<NpcWrite, StoreError> {
        let mut creation = self.begin(org).await?;
        let write = creation.create_npc(org, id, settings).await?;
        if matches!(write, NpcWrite::Written(_)) {
            creation.commit().await?;
        }
        Ok(write)
    }

    /// Replaces the settings of an NPC with this version.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn replace_npc(
        &self,
        org: OrgId,
        id: NpcId,
        version: i64,
        settings: &NpcSettings,
    ) -> Result<NpcWrite, StoreError> {
        with_timeout(async {
            let mut transaction = self.begin_tenant(org).await?;
            let write = write(&mut transaction, org, (id, Some(version)), settings).await?;
            if matches!(write, NpcWrite::Written(_)) {
                transaction.commit().await?;
            }
            Ok::<_, sqlx::Error>(write)
        })
        .await
    }

    /// Deletes an NPC with this version and its memories; returns whether there was one. Its
    /// devices become free.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn delete_npc(
        &self,
        org: OrgId,
        id: NpcId,
        version: i64,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "DELETE FROM npcs WHERE id = $1 AND org_id = $2 AND version = $3",
            id.uuid(),
            org.uuid(),
            version
        );
        let deleted =
            with_timeout(async { query.execute(&mut *self.tenant_conn(org).await?).await }).await?;
        Ok(deleted.rows_affected() > 0)
    }

    /// One NPC of the organisation.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn npc(&self, org: OrgId, id: NpcId) -> Result<Option<Npc>, StoreError> {
        self.npc_with(org, id, Members::All).await
    }

    /// One NPC of the organisation, without `persona.card` and overrides.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn npc_without_card(&self, org: OrgId, id: NpcId) -> Result<Option<Npc>, StoreError> {
        self.npc_with(org, id, Members::AllButCard).await
    }

    /// One NPC of the organisation, with the settings that its answers need: without `prompt`,
    /// `persona.card` and overrides.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn npc_for_answers(&self, org: OrgId, id: NpcId) -> Result<Option<Npc>, StoreError> {
        self.npc_with(org, id, Members::OfAnswers).await
    }

    async fn npc_with(
        &self,
        org: OrgId,
        id: NpcId,
        members: Members,
    ) -> Result<Option<Npc>, StoreError> {
        with_timeout(async {
            let mut connection = self.tenant_conn(org).await?;
            let found = read(&mut connection, org, Selector::Ids(&[id.uuid()]), members).await?;
            Ok::<_, sqlx::Error>(found.into_iter().next())
        })
        .await
    }
}

/// Writes an NPC: inserts it if `version` is `None`. Commit only if the result is
/// [`NpcWrite::Written`].
async fn write(
    connection: &mut PgConnection,
    org: OrgId,
    (id, version): (NpcId, Option<i64>),
    settings: &NpcSettings,
) -> Result<NpcWrite, sqlx::Error> {
    if let Some(missing) = lock_template(connection, org, settings).await? {
        return Ok(missing);
    }
    let found = match version {
        None => insert(connection, org, id, settings).await?,
        Some(version) => update(connection, org, (id, version), settings).await?,
    };
    if !found {
        return Ok(NpcWrite::Stale);
    }
    if let Some(taken) = devices::bind(connection, org, id, &settings.devices).await? {
        return Ok(taken);
    }
    let selector = Selector::Ids(&[id.uuid()]);
    let written = read(&mut *connection, org, selector, Members::All).await?;
    let Some(npc) = written.into_iter().next() else {
        return Ok(NpcWrite::Stale);
    };
    if let Some(unknown) = link_pictures(connection, &npc).await? {
        return Ok(NpcWrite::UnknownPicture(unknown));
    }
    if let Some(unknown) = link_books(connection, &npc).await? {
        return Ok(NpcWrite::UnknownSkillsBook(unknown));
    }
    if let Some(unknown) = link_voice(connection, &npc).await? {
        return Ok(NpcWrite::UnknownVoice(unknown));
    }
    Ok(NpcWrite::Written(Box::new(npc)))
}

/// The result if the organisation cannot read the template or its version. Locks them until the
/// transaction ends.
async fn lock_template(
    connection: &mut PgConnection,
    org: OrgId,
    settings: &NpcSettings,
) -> Result<Option<NpcWrite>, sqlx::Error> {
    let Some(template) = settings.template else {
        return Ok(None);
    };
    let found = sqlx::query!(
        "SELECT id FROM templates WHERE id = $1 AND (org_id = $2 OR org_id IS NULL) FOR SHARE",
        template.uuid(),
        org.uuid()
    )
    .fetch_optional(&mut *connection)
    .await?;
    if found.is_none() {
        return Ok(Some(NpcWrite::UnknownTemplate));
    }
    let Some(version) = settings.template_version else {
        return Ok(None);
    };
    let found_version = sqlx::query!(
        "SELECT version FROM template_versions WHERE template_id = $1 AND version = $2",
        template.uuid(),
        version
    )
    .fetch_optional(connection)
    .await?;
    Ok(found_version.is_none().then_some(NpcWrite::UnknownVersion))
}

async fn insert(
    connection: &mut PgConnection,
    org: OrgId,
    id: NpcId,
    settings: &NpcSettings,
) -> Result<bool, sqlx::Error> {
    let inserted = sqlx::query!(
        "INSERT INTO npcs (id, org_id, template_id, template_version, overrides) VALUES ($1, $2, $3, $4, $5)",
        id.uuid(),
        org.uuid(),
        settings.template.map(TemplateId::uuid),
        settings.template_version,
        Json(&settings.overrides) as _
    )
    .execute(connection)
    .await?;
    Ok(inserted.rows_affected() > 0)
}

async fn update(
    connection: &mut PgConnection,
    org: OrgId,
    (id, version): (NpcId, i64),
    settings: &NpcSettings,
) -> Result<bool, sqlx::Error> {
    let updated = sqlx::query!(
        "UPDATE npcs SET template_id = $4, template_version = $5, overrides = $6, version = version + 1, updated_at = now()
         WHERE id = $1 AND org_id = $2 AND version = $3",
        id.uuid(),
        org.uuid(),
        version,
        settings.template.map(TemplateId::uuid),
        settings.template_version,
        Json(&settings.overrides) as _
    )
    .execute(connection)
    .await?;
    Ok(updated.rows_affected() > 0)
}

/// Replaces the NPC's references to pictures. Those inherited from the latest version of a template
/// are referred to by the template. Returns an unknown picture; the transaction must then not be
/// committed.
async fn link_pictures(
    connection: &mut PgConnection,
    npc: &Npc,
) -> Result<Option<PictureId>, sqlx::Error> {
    let follows = npc.settings.template.is_some() && npc.settings.template_version.is_none();
    let mut pictures = overridden_pictures(&npc.settings.overrides);
    if !follows {
        pictures.extend(npc.effective.settings.pictures());
    }
    pictures.sort_unstable();
    pictures.dedup();
    if let Err(unknown) = lock_pictures(connection, Owner::Org(npc.org), &pictures).await? {
        return Ok(Some(unknown));
    }
    sqlx::query!("DELETE FROM npc_pictures WHERE npc_id = $1", npc.id.uuid())
        .execute(&mut *connection)
        .await?;
    let ids: Vec<_> = pictures.iter().map(|id| id.uuid()).collect();
    sqlx::query!(
        "INSERT INTO npc_pictures (npc_id, picture_id) SELECT $1, UNNEST($2::uuid[])",
        npc.id.uuid(),
        &ids
    )
    .execute(connection)
    .await?;
    Ok(None)
}

/// Replaces the NPC's references to skills books, like [`link_pictures`].
async fn link_books(
    connection: &mut PgConnection,
    npc: &Npc,
) -> Result<Option<SkillsBookId>, sqlx::Error> {
    let follows = npc.settings.template.is_some() && npc.settings.template_version.is_none();
    let held_by_template = follows && !npc.settings.overrides.contains_key("skills_book_ids");
    let books: &[SkillsBookId] = if held_by_template {
        &[]
    } else {
        &npc.effective.settings.skills_book_ids
    };
    let unknown = lock_books(connection, Owner::Org(npc.org), books).await?;
    if unknown.is_some() {
        return Ok(unknown);
    }
    sqlx::query!(
        "DELETE FROM npc_skills_books WHERE npc_id = $1",
        npc.id.uuid()
    )
    .execute(&mut *connection)
    .await?;
    let ids: Vec<_> = books.iter().map(|id| id.uuid()).collect();
    sqlx::query!(
        "INSERT INTO npc_skills_books (npc_id, book_id) SELECT DISTINCT $1::uuid, UNNEST($2::uuid[])",
        npc.id.uuid(),
        &ids
    )
    .execute(connection)
    .await?;
    Ok(None)
}

/// Replaces the NPC's reference to a voice, like [`link_pictures`].
async fn link_voice(
    connection: &mut PgConnection,
    npc: &Npc,
) -> Result<Option<VoiceId>, sqlx::Error> {
    let follows = npc.settings.template.is_some() && npc.settings.template_version.is_none();
    let overridden = npc.settings.overrides.get("voice");
    let overrides_it = overridden.is_some_and(|voice| voice.get("voice_id").is_some());
    let settings = &npc.effective.settings;
    let voice = settings.custom_voice().filter(|_| overrides_it || !follows);
    let unknown = voices::lock_voice(connection, Owner::Org(npc.org), voice).await?;
    if unknown.is_none() {
        voices::link_npc_voice(connection, npc.id, voice).await?;
    }
    Ok(unknown)
}

/// Selects NPCs.
#[derive(Debug, Clone, Copy)]
enum Selector<'a> {
    /// By id.
    Ids(&'a [Uuid]),
    /// The NPC that is assigned to this device, otherwise the organisation's default NPC.
    ForDevice(&'a DeviceId),
}

/// The members of the settings that are read. Parsed, a card takes up to 85 times its JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Members {
    All,
    /// The effective settings without `persona.card`, which only imports and exports use.
    AllButCard,
    /// The effective settings without `prompt` and `persona.card`.
    OfAnswers,
}

/// NPCs in the order of their ids. The latest version of a template is the latest stored one:
/// versions written by earlier releases of this program are not stored.
async fn read(
    connection: &mut PgConnection,
    org: OrgId,
    selector: Selector<'_>,
    members: Members,
) -> Result<Vec<Npc>, sqlx::Error> {
    let (ids, device) = match selector {
        Selector::Ids(ids) => (Some(ids), None),
        Selector::ForDevice(device) => (None, Some(device.as_str())),
    };
    // Behind a row-level policy, an index is only used for conditions that are evaluated before it;
    // therefore the ids are in a subquery.
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT n.id, n.org_id, n.template_id, n.template_version,
                  CASE WHEN $5 THEN (n.overrides #- '{persona,card}') - 'prompt'::text
                       WHEN $4 THEN n.overrides #- '{persona,card}'
                       ELSE n.overrides END AS "overrides!: Json<Map<String, Value>>",
                  ARRAY(SELECT d.device_id FROM npc_devices d WHERE d.npc_id = n.id ORDER BY d.device_id) AS "devices!",
                  t.version AS "effective_version?",
                  CASE WHEN $5 THEN (t.settings #- '{persona,card}') - 'prompt'::text
                       WHEN $4 THEN t.settings #- '{persona,card}'
                       ELSE t.settings END AS "template?: Json<TemplateSettings>",
                  n.version, n.created_at, n.updated_at
           FROM npcs n
           LEFT JOIN LATERAL (
               SELECT v.version, v.settings FROM template_versions v
               WHERE v.template_id = n.template_id AND v.version = COALESCE(n.template_version, v.version)
               ORDER BY v.version DESC LIMIT 1) t ON true
           WHERE n.org_id = $1 AND n.id = ANY((SELECT COALESCE($2, ARRAY[COALESCE(
               (SELECT d.npc_id FROM npc_devices d WHERE d.org_id = $1 AND d.device_id = $3),
               (SELECT o.default_npc_id FROM orgs o WHERE o.id = $1))]))::uuid[])
           ORDER BY n.id"#,
        org.uuid(),
        ids as _,
        device,
        members == Members::AllButCard,
        members == Members::OfAnswers
    )
    .fetch_all(connection)
    .await?;
    let mut npcs: Vec<_> = rows.into_iter().map(Npc::from).collect();
    if members != Members::All {
        for npc in &mut npcs {
            npc.settings.overrides = Map::new();
        }
    }
    Ok(npcs)
}
