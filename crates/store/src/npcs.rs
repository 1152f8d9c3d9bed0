//! NPCs: an organisation's characters, made from a template or on their own, and the devices they speak through.
//! Never: a version written over one that its writer has not seen, or a template of another organisation.

mod devices;
mod effective;
mod listing;
mod prompts;
mod resources;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::{PgConnection, types::Json};
use switchboard_protocol::id::{
    DeviceId, NpcId, OrgId, PictureId, SkillsBookId, TemplateId, VoiceId,
};
use uuid::Uuid;

use crate::{
    Creation, Store, StoreError,
    database::bounded,
    owner::Owner,
    templates::{TemplateSettings, hold_pictures, unknown_book},
    voices,
};
pub use effective::{Effective, apply_overrides};

/// What an author sets about an NPC.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NpcSettings {
    /// What it is made from.
    pub template: Option<TemplateId>,
    /// With which version of its template it stays; it follows the newest when not given.
    pub template_version: Option<i64>,
    /// A merge patch of the template's settings, without nulls; all settings when there is no template.
    pub overrides: Map<String, Value>,
    /// The devices that it speaks through, each once.
    pub devices: Vec<DeviceId>,
}

/// An NPC as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Npc {
    /// Its id.
    pub id: NpcId,
    /// Whose it is.
    pub org: OrgId,
    /// What its author set; devices in the order of their ids.
    pub settings: NpcSettings,
    /// What holds for it now.
    pub effective: Effective,
    /// The version of its template that holds for it now.
    pub effective_version: Option<i64>,
    /// 1 at first, one more with each change of its own.
    pub version: i64,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was changed last.
    pub updated_at: DateTime<Utc>,
}

/// Which NPCs a list has.
#[derive(Debug, Clone, Default)]
pub struct NpcFilter {
    /// The one that speaks through this device.
    pub device: Option<DeviceId>,
    /// Those made from this template.
    pub template: Option<TemplateId>,
}

/// What became of an NPC that was to be written.
#[derive(Debug, Clone, PartialEq)]
pub enum NpcWrite {
    /// It is written; this is it.
    Written(Box<Npc>),
    /// The organisation has none with this id and this version.
    Stale,
    /// The organisation reads no such template.
    UnknownTemplate,
    /// The template has no such version any more, or not yet.
    UnknownVersion,
    /// It shows a picture that the organisation cannot read.
    UnknownPicture(PictureId),
    /// It names a skills book that the organisation cannot read.
    UnknownSkillsBook(SkillsBookId),
    /// It speaks with a voice that the organisation cannot read.
    UnknownVoice(VoiceId),
    /// Another NPC speaks through one of the devices.
    DeviceTaken {
        /// Which device, counted from 0.
        index: usize,
        /// Which NPC, unless it has just let go of the device.
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

impl Creation {
    /// Adds an NPC, version 1. What became of it says whether there is something to commit.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the id exists already, else as every query.
    pub async fn create_npc(
        &mut self,
        org: OrgId,
        id: NpcId,
        settings: &NpcSettings,
    ) -> Result<NpcWrite, StoreError> {
        bounded(write(self.connection(), org, (id, None), settings)).await
    }
}

impl Store {
    /// As [`Creation::create_npc`], in a transaction of its own.
    ///
    /// # Errors
    /// As there.
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

    /// Replaces all settings of an NPC that the organisation has in this version.
    ///
    /// # Errors
    /// As every query.
    pub async fn replace_npc(
        &self,
        org: OrgId,
        id: NpcId,
        version: i64,
        settings: &NpcSettings,
    ) -> Result<NpcWrite, StoreError> {
        bounded(async {
            let mut transaction = self.begin_within(org).await?;
            let write = write(&mut transaction, org, (id, Some(version)), settings).await?;
            if matches!(write, NpcWrite::Written(_)) {
                transaction.commit().await?;
            }
            Ok::<_, sqlx::Error>(write)
        })
        .await
    }

    /// Removes an NPC that the organisation has in this version, and its memories; says whether there was one. Its
    /// devices are free again.
    ///
    /// # Errors
    /// As every query.
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
        let deleted = bounded(async { query.execute(&mut *self.within(org).await?).await }).await?;
        Ok(deleted.rows_affected() > 0)
    }

    /// One NPC of the organisation.
    ///
    /// # Errors
    /// As every query.
    pub async fn npc(&self, org: OrgId, id: NpcId) -> Result<Option<Npc>, StoreError> {
        bounded(async { read_one(&mut *self.within(org).await?, org, id).await }).await
    }
}

/// Writes an NPC: a new one without a version. What became of it says whether there is something to commit.
async fn write(
    connection: &mut PgConnection,
    org: OrgId,
    (id, version): (NpcId, Option<i64>),
    settings: &NpcSettings,
) -> Result<NpcWrite, sqlx::Error> {
    if let Some(missing) = missing_template(connection, org, settings).await? {
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
    let Some(npc) = read_one(&mut *connection, org, id).await? else {
        return Ok(NpcWrite::Stale);
    };
    if let Some(unknown) = show_pictures(connection, &npc).await? {
        return Ok(NpcWrite::UnknownPicture(unknown));
    }
    if let Some(unknown) = name_books(connection, &npc).await? {
        return Ok(NpcWrite::UnknownSkillsBook(unknown));
    }
    if let Some(unknown) = speak_with_voice(connection, &npc).await? {
        return Ok(NpcWrite::UnknownVoice(unknown));
    }
    Ok(NpcWrite::Written(Box::new(npc)))
}

/// What is wrong with the template that is named. It and its versions stay as they are until the transaction ends.
async fn missing_template(
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
    let kept = sqlx::query!(
        "SELECT version FROM template_versions WHERE template_id = $1 AND version = $2",
        template.uuid(),
        version
    )
    .fetch_optional(connection)
    .await?;
    Ok(kept.is_none().then_some(NpcWrite::UnknownVersion))
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

/// Holds the pictures that the NPC shows; those that it has from the newest version of a template, the template
/// holds. Says which one there is not; then the transaction must not be committed.
async fn show_pictures(
    connection: &mut PgConnection,
    npc: &Npc,
) -> Result<Option<PictureId>, sqlx::Error> {
    let follows = npc.settings.template.is_some() && npc.settings.template_version.is_none();
    let mut shown = effective::pictures(&npc.settings.overrides);
    if !follows {
        shown.extend(npc.effective.settings.pictures());
    }
    shown.sort_unstable();
    shown.dedup();
    if let Err(unknown) = hold_pictures(connection, Owner::Org(npc.org), &shown).await? {
        return Ok(Some(unknown));
    }
    sqlx::query!("DELETE FROM npc_pictures WHERE npc_id = $1", npc.id.uuid())
        .execute(&mut *connection)
        .await?;
    let ids: Vec<_> = shown.iter().map(|id| id.uuid()).collect();
    sqlx::query!(
        "INSERT INTO npc_pictures (npc_id, picture_id) SELECT $1, UNNEST($2::uuid[])",
        npc.id.uuid(),
        &ids
    )
    .execute(connection)
    .await?;
    Ok(None)
}

/// Holds the skills books that the NPC names, as [`show_pictures`] does pictures.
async fn name_books(
    connection: &mut PgConnection,
    npc: &Npc,
) -> Result<Option<SkillsBookId>, sqlx::Error> {
    let follows = npc.settings.template.is_some() && npc.settings.template_version.is_none();
    let held_by_template = follows && !npc.settings.overrides.contains_key("skills_book_ids");
    let named: &[SkillsBookId] = if held_by_template {
        &[]
    } else {
        &npc.effective.settings.skills_book_ids
    };
    let unknown = unknown_book(connection, Owner::Org(npc.org), named).await?;
    if unknown.is_some() {
        return Ok(unknown);
    }
    sqlx::query!(
        "DELETE FROM npc_skills_books WHERE npc_id = $1",
        npc.id.uuid()
    )
    .execute(&mut *connection)
    .await?;
    let ids: Vec<_> = named.iter().map(|id| id.uuid()).collect();
    sqlx::query!(
        "INSERT INTO npc_skills_books (npc_id, book_id) SELECT DISTINCT $1::uuid, UNNEST($2::uuid[])",
        npc.id.uuid(),
        &ids
    )
    .execute(connection)
    .await?;
    Ok(None)
}

/// Holds the voice that the NPC speaks with, as [`show_pictures`] does pictures.
async fn speak_with_voice(
    connection: &mut PgConnection,
    npc: &Npc,
) -> Result<Option<VoiceId>, sqlx::Error> {
    let follows = npc.settings.template.is_some() && npc.settings.template_version.is_none();
    let overridden = npc.settings.overrides.get("voice");
    let overrides_it = overridden.is_some_and(|voice| voice.get("voice_id").is_some());
    let settings = &npc.effective.settings;
    let voice = settings.own_voice().filter(|_| overrides_it || !follows);
    let unknown = voices::unknown_voice(connection, Owner::Org(npc.org), voice).await?;
    if unknown.is_none() {
        voices::hold_for_npc(connection, npc.id, voice).await?;
    }
    Ok(unknown)
}

async fn read_one(
    connection: &mut PgConnection,
    org: OrgId,
    id: NpcId,
) -> Result<Option<Npc>, sqlx::Error> {
    let found = read(connection, org, Wanted::Ids(&[id.uuid()])).await?;
    Ok(found.into_iter().next())
}

/// Which NPCs are read.
#[derive(Debug, Clone, Copy)]
enum Wanted<'a> {
    /// Those with these ids.
    Ids(&'a [Uuid]),
    /// The one that speaks through this device, else the one that the organisation has for all other devices.
    Answering(&'a DeviceId),
}

/// NPCs in the order of their ids. The newest version of a template is the newest that is kept: a
/// process of a version before this one keeps none.
async fn read(
    connection: &mut PgConnection,
    org: OrgId,
    wanted: Wanted<'_>,
) -> Result<Vec<Npc>, sqlx::Error> {
    let (ids, device) = match wanted {
        Wanted::Ids(ids) => (Some(ids), None),
        Wanted::Answering(device) => (None, Some(device.as_str())),
    };
    // Behind a policy, an index is asked only for what is known before: so a SELECT stands around what is wanted.
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT n.id, n.org_id, n.template_id, n.template_version, n.overrides AS "overrides: Json<Map<String, Value>>",
                  ARRAY(SELECT d.device_id FROM npc_devices d WHERE d.npc_id = n.id ORDER BY d.device_id) AS "devices!",
                  t.version AS "effective_version?", t.settings AS "template?: Json<TemplateSettings>",
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
        device
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(Npc::from).collect())
}
