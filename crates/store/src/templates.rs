//! Templates: what characters are made from.
//! Never: a version written over one that its writer has not seen.

mod card_rest;
mod listing;
mod persona;
mod prompt;
mod settings;
mod versions;

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use switchboard_protocol::id::{PictureId, SkillsBookId, TemplateId, VoiceId};
use uuid::Uuid;

use crate::{Creation, Store, StoreError, database::bounded, owner::Owner, voices};
pub use card_rest::CardRest;
pub use persona::Persona;
pub use prompt::{
    Prompt, PromptArgument, PromptContent, PromptMessage, PromptRole, RENDERED_LIMIT_BYTES,
    RenderError, SHOWN_LIMIT_BYTES, render,
};
pub use settings::{Conversation, MemoryPolicy, Model, TemplateSettings, ToolPolicy, Voice};

/// A template as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// Its id.
    pub id: TemplateId,
    /// Whose it is.
    pub owner: Owner,
    /// What its author set.
    pub settings: TemplateSettings,
    /// 1 at first, one more with each change.
    pub version: i64,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was changed last.
    pub updated_at: DateTime<Utc>,
}

/// What became of a template that was to be written.
#[derive(Debug, Clone, PartialEq)]
pub enum TemplateWrite {
    /// It is written; this is it.
    Written(Box<Template>),
    /// Its owner has none with this id and this version.
    Stale,
    /// Another template of the owner is called so as a prompt.
    NameTaken,
    /// It shows a picture that its owner cannot read.
    UnknownPicture(PictureId),
    /// The pictures in its prompt have so many bytes together, more than [`SHOWN_LIMIT_BYTES`].
    TooManyBytes(u64),
    /// It names a skills book that its owner cannot read.
    UnknownSkillsBook(SkillsBookId),
    /// It speaks with a voice that its owner cannot read.
    UnknownVoice(VoiceId),
}

/// What became of a template that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateRemoval {
    /// It is gone.
    Removed,
    /// Its owner has none with this id and this version.
    Stale,
    /// It stays: an NPC is made from it.
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

impl TemplateSettings {
    /// The name under which a template with these settings and this id is a prompt.
    #[must_use]
    pub fn prompt_name(&self, id: TemplateId) -> String {
        let written = self.prompt.as_ref().and_then(|prompt| prompt.name.clone());
        written.unwrap_or_else(|| id.to_string())
    }

    /// Every picture that it shows, its avatar included, each once.
    pub(crate) fn pictures(&self) -> Vec<PictureId> {
        let shown = self.prompt.iter().flat_map(Prompt::pictures);
        let mut all: Vec<_> = shown.map(|(_, id)| id).chain(self.avatar).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The voice of an organisation's or the installation's that it speaks with, if it is not a provider's own.
    pub(crate) fn own_voice(&self) -> Option<VoiceId> {
        self.voice.as_ref()?.voice_id.parse().ok()
    }

    fn books(&self) -> Vec<Uuid> {
        self.skills_book_ids.iter().map(|id| id.uuid()).collect()
    }
}

impl Creation {
    /// Adds a template, version 1. What became of it says whether there is something to commit.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the id exists already, else as every query.
    pub async fn create_template(
        &mut self,
        owner: Owner,
        id: TemplateId,
        settings: &TemplateSettings,
    ) -> Result<TemplateWrite, StoreError> {
        let written = bounded(async {
            if let Some(refused) = unfit(self.connection(), owner, settings).await? {
                return Ok(refused);
            }
            let template = insert(self.connection(), owner, id, settings).await?;
            show_pictures(self.connection(), id, settings).await?;
            name_books(self.connection(), id, settings).await?;
            voices::hold_for_template(self.connection(), id, settings.own_voice()).await?;
            versions::keep(self.connection(), &template).await?;
            Ok::<_, sqlx::Error>(TemplateWrite::Written(Box::new(template)))
        });
        name_taken(written.await)
    }
}

impl Store {
    /// As [`Creation::create_template`], in a transaction of its own.
    ///
    /// # Errors
    /// As there.
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

    /// Replaces all settings of a template that its owner has in this version.
    ///
    /// # Errors
    /// As every query.
    pub async fn replace_template(
        &self,
        owner: Owner,
        id: TemplateId,
        version: i64,
        settings: &TemplateSettings,
    ) -> Result<TemplateWrite, StoreError> {
        let written = bounded(async {
            let mut transaction = self.begin_within(owner).await?;
            if let Some(refused) = unfit(&mut transaction, owner, settings).await? {
                return Ok(refused);
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
            show_pictures(&mut transaction, id, settings).await?;
            name_books(&mut transaction, id, settings).await?;
            voices::hold_for_template(&mut transaction, id, settings.own_voice()).await?;
            versions::keep(&mut transaction, &template).await?;
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(TemplateWrite::Written(Box::new(template)))
        });
        name_taken(written.await)
    }

    /// Removes a template that its owner has in this version and no NPC is made from, and its memories.
    ///
    /// # Errors
    /// As every query.
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
        match bounded(async { query.execute(&mut *self.within(owner).await?).await }).await {
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

    /// One template that this reader sees.
    ///
    /// # Errors
    /// As every query.
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
        let row =
            bounded(async { query.fetch_optional(&mut *self.within(reader).await?).await }).await?;
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
        &settings.books(),
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
        &settings.books(),
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

/// Why a template with these settings is not written.
async fn unfit(
    connection: &mut PgConnection,
    owner: Owner,
    settings: &TemplateSettings,
) -> Result<Option<TemplateWrite>, sqlx::Error> {
    if let Some(refused) = unfit_pictures(connection, owner, settings).await? {
        return Ok(Some(refused));
    }
    let books = &settings.skills_book_ids;
    if let Some(book) = unknown_book(connection, owner, books).await? {
        return Ok(Some(TemplateWrite::UnknownSkillsBook(book)));
    }
    let voice = voices::unknown_voice(connection, owner, settings.own_voice()).await?;
    Ok(voice.map(TemplateWrite::UnknownVoice))
}

/// The first skills book that the owner cannot read. The others stay until the transaction ends.
pub(crate) async fn unknown_book(
    connection: &mut PgConnection,
    owner: Owner,
    named: &[SkillsBookId],
) -> Result<Option<SkillsBookId>, sqlx::Error> {
    if named.is_empty() {
        return Ok(None);
    }
    let ids: Vec<_> = named.iter().map(|id| id.uuid()).collect();
    let known = sqlx::query_scalar!(
        "SELECT id FROM skills_books WHERE id = ANY ($1) AND (org_id = $2 OR org_id IS NULL) ORDER BY id FOR KEY SHARE",
        &ids,
        owner.column()
    )
    .fetch_all(connection)
    .await?;
    let mut named = named.iter();
    Ok(named.find(|id| !known.contains(&id.uuid())).copied())
}

/// Holds on to the skills books that a template names, and to no others.
async fn name_books(
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
        &settings.books()
    )
    .execute(connection)
    .await
    .map(drop)
}

/// Why a template cannot show its pictures: the first that its owner cannot read, or too many bytes.
async fn unfit_pictures(
    connection: &mut PgConnection,
    owner: Owner,
    settings: &TemplateSettings,
) -> Result<Option<TemplateWrite>, sqlx::Error> {
    let sizes = match hold_pictures(connection, owner, &settings.pictures()).await? {
        Ok(sizes) => sizes,
        Err(unknown) => return Ok(Some(TemplateWrite::UnknownPicture(unknown))),
    };
    let in_prompt = settings.prompt.iter().flat_map(Prompt::pictures);
    let sizes = in_prompt.filter_map(|(_, id)| u64::try_from(*sizes.get(&id)?).ok());
    let bytes = sizes.fold(0, u64::saturating_add);
    Ok((bytes > SHOWN_LIMIT_BYTES).then_some(TemplateWrite::TooManyBytes(bytes)))
}

/// How many bytes each picture has, or the first that the owner cannot read. Those that are there stay until the
/// transaction ends.
pub(crate) async fn hold_pictures(
    connection: &mut PgConnection,
    owner: Owner,
    shown: &[PictureId],
) -> Result<Result<HashMap<PictureId, i64>, PictureId>, sqlx::Error> {
    if shown.is_empty() {
        return Ok(Ok(HashMap::new()));
    }
    let ids: Vec<_> = shown.iter().map(|id| id.uuid()).collect();
    let known = sqlx::query!(
        "SELECT id, size_bytes FROM pictures WHERE id = ANY ($1) AND (org_id = $2 OR org_id IS NULL) ORDER BY id FOR KEY SHARE",
        &ids,
        owner.column()
    )
    .fetch_all(connection)
    .await?;
    let known: HashMap<_, _> = known
        .into_iter()
        .map(|row| (PictureId::from_uuid(row.id), row.size_bytes))
        .collect();
    let unknown = shown.iter().find(|id| !known.contains_key(id));
    Ok(unknown.map_or(Ok(known), |unknown| Err(*unknown)))
}

async fn show_pictures(
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

fn name_taken(written: Result<TemplateWrite, StoreError>) -> Result<TemplateWrite, StoreError> {
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
