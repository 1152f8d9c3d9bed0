//! Templates: settings that characters are based on.
//! Invariant: a write names the version that its author has read.

mod pages;
mod versions;

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use switchboard_catalog::{
    Conversation, MAX_ATTACHED_BYTES, MemoryPolicy, Model, Persona, Prompt, TemplateSettings,
    ToolPolicy, Voice,
};
use switchboard_protocol::id::{PictureId, SkillsBookId, TemplateId, VoiceId};
use uuid::Uuid;

use crate::{Owner, Store, StoreError, TenantTransaction, database::with_timeout, media::voices};

/// A stored template.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// The id of the template.
    pub id: TemplateId,
    /// Its owner.
    pub owner: Owner,
    /// Its settings.
    pub settings: TemplateSettings,
    /// Its version, from 1.
    pub version: i64,
    /// Time of creation.
    pub created_at: DateTime<Utc>,
    /// Time of the last change.
    pub updated_at: DateTime<Utc>,
}

/// The result of writing a template.
#[derive(Debug, Clone, PartialEq)]
pub enum TemplateWrite {
    /// It was written.
    Written(Box<Template>),
    /// Its owner has none with this id and this version.
    Stale,
    /// Another template of the owner has the same prompt name.
    NameTaken,
    /// It refers to a picture that its owner cannot read.
    UnknownPicture(PictureId),
    /// The pictures of its prompt have this size in bytes, more than [`MAX_ATTACHED_BYTES`].
    TooManyBytes(u64),
    /// It refers to a skills book that its owner cannot read.
    UnknownSkillsBook(SkillsBookId),
    /// It refers to a voice that its owner cannot read.
    UnknownVoice(VoiceId),
}

/// The result of deleting a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateRemoval {
    /// It was deleted.
    Removed,
    /// Its owner has none with this id and this version.
    Stale,
    /// It was not deleted: an NPC is based on it.
    InUse,
}

struct Row {
    id: Uuid,
    org_id: Option<Uuid>,
    name: String,
    avatar: Option<Uuid>,
    locale: Option<String>,
    tags: Vec<String>,
    persona: Json<Persona>,
    model: Option<Json<Model>>,
    voice: Option<Json<Voice>>,
    tools: Json<ToolPolicy>,
    skills_book_ids: Vec<Uuid>,
    memory: Json<MemoryPolicy>,
    conversation: Json<Conversation>,
    prompt: Option<Json<Prompt>>,
    version: i64,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Row> for Template {
    fn from(row: Row) -> Self {
        let books = row.skills_book_ids.into_iter();
        Self {
            id: TemplateId::from_uuid(row.id),
            owner: Owner::from_column(row.org_id),
            settings: TemplateSettings {
                name: row.name,
                avatar: row.avatar.map(PictureId::from_uuid),
                locale: row.locale,
                tags: row.tags,
                persona: row.persona.0,
                model: row.model.map(|model| model.0),
                voice: row.voice.map(|voice| voice.0),
                tools: row.tools.0,
                skills_book_ids: books.map(SkillsBookId::from_uuid).collect(),
                memory: row.memory.0,
                conversation: row.conversation.0,
                prompt: row.prompt.map(|prompt| prompt.0),
            },
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

impl TenantTransaction {
    /// Inserts a template. Commit only if the result is [`TemplateWrite::Written`].
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the id exists, or any other [`StoreError`].
    pub async fn create_template(
        &mut self,
        owner: Owner,
        id: TemplateId,
        settings: &TemplateSettings,
    ) -> Result<TemplateWrite, StoreError> {
        let written = with_timeout(async {
            if let Some(rejection) = check_references(self.connection(), owner, settings).await? {
                return Ok(rejection);
            }
            let template = insert(self.connection(), owner, id, settings).await?;
            link_pictures(self.connection(), id, settings).await?;
            link_books(self.connection(), id, settings).await?;
            voices::link_template_voice(self.connection(), id, settings.custom_voice()).await?;
            versions::insert(self.connection(), &template).await?;
            Ok::<_, sqlx::Error>(TemplateWrite::Written(Box::new(template)))
        });
        map_name_conflict(written.await)
    }
}

impl Store {
    /// Calls [`TenantTransaction::create_template`] in a new transaction and commits it.
    ///
    /// # Errors
    /// As that method.
    pub async fn create_template(
        &self,
        owner: Owner,
        id: TemplateId,
        settings: &TemplateSettings,
    ) -> Result<TemplateWrite, StoreError> {
        let mut creation = self.begin(owner).await?;
        let write = creation.create_template(owner, id, settings).await?;
        if matches!(write, TemplateWrite::Written(_)) {
            creation.commit().await?;
        }
        Ok(write)
    }

    /// Replaces the settings of a template with this version.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn replace_template(
        &self,
        owner: Owner,
        id: TemplateId,
        version: i64,
        settings: &TemplateSettings,
    ) -> Result<TemplateWrite, StoreError> {
        let written = with_timeout(async {
            let mut transaction = self.begin_tenant(owner).await?;
            if let Some(rejection) = check_references(&mut transaction, owner, settings).await? {
                return Ok(rejection);
            }
            let replaced = update(&mut transaction, owner, (id, version), settings).await?;
            let Some(template) = replaced else {
                return Ok(TemplateWrite::Stale);
            };
            sqlx::query!(
                "DELETE FROM template_pictures WHERE template_id = $1",
                id.uuid()
            )
            .execute(&mut *transaction)
            .await?;
            link_pictures(&mut transaction, id, settings).await?;
            link_books(&mut transaction, id, settings).await?;
            voices::link_template_voice(&mut transaction, id, settings.custom_voice()).await?;
            versions::insert(&mut transaction, &template).await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(TemplateWrite::Written(Box::new(template)))
        });
        map_name_conflict(written.await)
    }

    /// Deletes a template with this version and its memories, unless an NPC is based on it.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn delete_template(
        &self,
        owner: Owner,
        id: TemplateId,
        version: i64,
    ) -> Result<TemplateRemoval, StoreError> {
        let query = sqlx::query!(
            "DELETE FROM templates WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2 AND version = $3",
            id.uuid(),
            owner.column(),
            version
        );
        match with_timeout(async { query.execute(&mut *self.tenant_conn(owner).await?).await })
            .await
        {
            Ok(deleted) if deleted.rows_affected() > 0 => Ok(TemplateRemoval::Removed),
            Ok(_) => Ok(TemplateRemoval::Stale),
            Err(StoreError::Refused(sqlx::Error::Database(answer)))
                if matches!(
                    answer.constraint(),
                    Some("npcs_template_exists" | "npcs_template_version_exists")
                ) =>
            {
                Ok(TemplateRemoval::InUse)
            }
            Err(error) => Err(error),
        }
    }

    /// One template that the reader can read.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn template(
        &self,
        reader: Owner,
        id: TemplateId,
    ) -> Result<Option<Template>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            r#"SELECT id, org_id, name, avatar, locale, tags, persona AS "persona: Json<Persona>",
                      model AS "model: Json<Model>", voice AS "voice: Json<Voice>",
                      tools AS "tools: Json<ToolPolicy>", skills_book_ids, memory AS "memory: Json<MemoryPolicy>",
                      conversation AS "conversation: Json<Conversation>",
                      prompt AS "prompt: Json<Prompt>", version, created_at, updated_at
               FROM templates WHERE id = $1 AND (org_id = $2 OR org_id IS NULL)"#,
            id.uuid(),
            reader.column()
        );
        let row = with_timeout(async {
            query
                .fetch_optional(&mut *self.tenant_conn(reader).await?)
                .await
        })
        .await?;
        Ok(row.map(Template::from))
    }
}

async fn insert(
    connection: &mut PgConnection,
    owner: Owner,
    id: TemplateId,
    settings: &TemplateSettings,
) -> Result<Template, sqlx::Error> {
    let row = sqlx::query!(
        "INSERT INTO templates (id, org_id, name, avatar, locale, tags, persona, model, voice, tools,
                                skills_book_ids, memory, conversation, prompt, prompt_name)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
         RETURNING version, created_at, updated_at",
        id.uuid(),
        owner.column(),
        settings.name,
        settings.avatar.map(PictureId::uuid),
        settings.locale,
        &settings.tags,
        Json(&settings.persona) as _,
        settings.model.as_ref().map(Json) as _,
        settings.voice.as_ref().map(Json) as _,
        Json(&settings.tools) as _,
        &book_ids(settings),
        Json(&settings.memory) as _,
        Json(&settings.conversation) as _,
        settings.prompt.as_ref().map(Json) as _,
        settings.prompt_name(id)
    )
    .fetch_one(connection)
    .await?;
    Ok(Template {
        id,
        owner,
        settings: settings.clone(),
        version: row.version,
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}

async fn update(
    connection: &mut PgConnection,
    owner: Owner,
    (id, version): (TemplateId, i64),
    settings: &TemplateSettings,
) -> Result<Option<Template>, sqlx::Error> {
    let row = sqlx::query!(
        "UPDATE templates
         SET name = $4, avatar = $5, locale = $6, tags = $7, persona = $8, model = $9, voice = $10, tools = $11,
             skills_book_ids = $12, memory = $13, conversation = $14, prompt = $15, prompt_name = $16,
             version = version + 1, updated_at = now()
         WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2 AND version = $3
         RETURNING version, created_at, updated_at",
        id.uuid(),
        owner.column(),
        version,
        settings.name,
        settings.avatar.map(PictureId::uuid),
        settings.locale,
        &settings.tags,
        Json(&settings.persona) as _,
        settings.model.as_ref().map(Json) as _,
        settings.voice.as_ref().map(Json) as _,
        Json(&settings.tools) as _,
        &book_ids(settings),
        Json(&settings.memory) as _,
        Json(&settings.conversation) as _,
        settings.prompt.as_ref().map(Json) as _,
        settings.prompt_name(id)
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| Template {
        id,
        owner,
        settings: settings.clone(),
        version: row.version,
        created_at: row.created_at,
        updated_at: row.updated_at,
    }))
}

/// The result if settings refer to something that the owner cannot read.
async fn check_references(
    connection: &mut PgConnection,
    owner: Owner,
    settings: &TemplateSettings,
) -> Result<Option<TemplateWrite>, sqlx::Error> {
    if let Some(rejection) = check_pictures(connection, owner, settings).await? {
        return Ok(Some(rejection));
    }
    let books = &settings.skills_book_ids;
    if let Some(book) = lock_books(connection, owner, books).await? {
        return Ok(Some(TemplateWrite::UnknownSkillsBook(book)));
    }
    let voice = voices::lock_voice(connection, owner, settings.custom_voice()).await?;
    Ok(voice.map(TemplateWrite::UnknownVoice))
}

/// The first skills book that the owner cannot read. The others are locked against deletion until
/// the transaction ends.
pub(crate) async fn lock_books(
    connection: &mut PgConnection,
    owner: Owner,
    wanted: &[SkillsBookId],
) -> Result<Option<SkillsBookId>, sqlx::Error> {
    if wanted.is_empty() {
        return Ok(None);
    }
    let ids: Vec<_> = wanted.iter().map(|id| id.uuid()).collect();
    let found = sqlx::query_scalar!(
        "SELECT id FROM skills_books WHERE id = ANY ($1) AND (org_id = $2 OR org_id IS NULL) ORDER BY id FOR KEY SHARE",
        &ids,
        owner.column()
    )
    .fetch_all(connection)
    .await?;
    let mut wanted = wanted.iter();
    Ok(wanted.find(|id| !found.contains(&id.uuid())).copied())
}

fn book_ids(settings: &TemplateSettings) -> Vec<Uuid> {
    settings
        .skills_book_ids
        .iter()
        .map(|id| id.uuid())
        .collect()
}

/// Replaces the template's references to skills books.
async fn link_books(
    connection: &mut PgConnection,
    id: TemplateId,
    settings: &TemplateSettings,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "DELETE FROM template_skills_books WHERE template_id = $1",
        id.uuid()
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "INSERT INTO template_skills_books (template_id, book_id) SELECT DISTINCT $1::uuid, UNNEST($2::uuid[])",
        id.uuid(),
        &book_ids(settings)
    )
    .execute(connection)
    .await
    .map(drop)
}

/// The result if the owner cannot read a picture, or if the pictures of the prompt are too large.
async fn check_pictures(
    connection: &mut PgConnection,
    owner: Owner,
    settings: &TemplateSettings,
) -> Result<Option<TemplateWrite>, sqlx::Error> {
    let sizes = match lock_pictures(connection, owner, &settings.pictures()).await? {
        Ok(sizes) => sizes,
        Err(unknown) => return Ok(Some(TemplateWrite::UnknownPicture(unknown))),
    };
    let in_prompt = settings.prompt.iter().flat_map(Prompt::pictures);
    let sizes = in_prompt.filter_map(|(_, id)| u64::try_from(*sizes.get(&id)?).ok());
    let bytes = sizes.fold(0, u64::saturating_add);
    Ok((bytes > MAX_ATTACHED_BYTES).then_some(TemplateWrite::TooManyBytes(bytes)))
}

/// The sizes of the pictures, or the first one that the owner cannot read. The pictures are locked
/// against deletion until the transaction ends.
pub(crate) async fn lock_pictures(
    connection: &mut PgConnection,
    owner: Owner,
    wanted: &[PictureId],
) -> Result<Result<HashMap<PictureId, i64>, PictureId>, sqlx::Error> {
    if wanted.is_empty() {
        return Ok(Ok(HashMap::new()));
    }
    let ids: Vec<_> = wanted.iter().map(|id| id.uuid()).collect();
    let found = sqlx::query!(
        "SELECT id, size_bytes FROM pictures WHERE id = ANY ($1) AND (org_id = $2 OR org_id IS NULL) ORDER BY id FOR KEY SHARE",
        &ids,
        owner.column()
    )
    .fetch_all(connection)
    .await?;
    let found: HashMap<_, _> = found
        .into_iter()
        .map(|row| (PictureId::from_uuid(row.id), row.size_bytes))
        .collect();
    let unknown = wanted.iter().find(|id| !found.contains_key(id));
    Ok(unknown.map_or(Ok(found), |unknown| Err(*unknown)))
}

async fn link_pictures(
    connection: &mut PgConnection,
    id: TemplateId,
    settings: &TemplateSettings,
) -> Result<(), sqlx::Error> {
    let ids: Vec<_> = settings.pictures().iter().map(|id| id.uuid()).collect();
    sqlx::query!(
        "INSERT INTO template_pictures (template_id, picture_id) SELECT $1, UNNEST($2::uuid[])",
        id.uuid(),
        &ids
    )
    .execute(connection)
    .await
    .map(drop)
}

fn map_name_conflict(
    written: Result<TemplateWrite, StoreError>,
) -> Result<TemplateWrite, StoreError> {
    match written {
        Err(StoreError::Conflict(sqlx::Error::Database(answer)))
            if matches!(
                answer.constraint(),
                Some("templates_prompt_name_unique" | "templates_public_prompt_name_unique")
            ) =>
        {
            Ok(TemplateWrite::NameTaken)
        }
        other => other,
    }
}
