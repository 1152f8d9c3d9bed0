//! What templates and NPCs remember.
//! Never: a batch stored in part.

mod reading;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::{PgConnection, types::Json};
use switchboard_protocol::id::{MemoryId, NpcId, TemplateId};

use crate::{
    Creation, Store, StoreError, database::bounded, owner::Owner, uri_template::UriTemplate,
};
pub use reading::{FoundMemory, MemoryFilter, MemoryQuestion};

/// Who remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryHolder {
    /// A template, and with it every NPC that is made from it.
    Template(TemplateId),
    /// One NPC.
    Npc(NpcId),
}

impl From<TemplateId> for MemoryHolder {
    fn from(template: TemplateId) -> Self {
        Self::Template(template)
    }
}

impl From<NpcId> for MemoryHolder {
    fn from(npc: NpcId) -> Self {
        Self::Npc(npc)
    }
}

impl MemoryHolder {
    /// The template, if it is one.
    #[must_use]
    pub const fn template(self) -> Option<TemplateId> {
        match self {
            Self::Template(template) => Some(template),
            Self::Npc(_) => None,
        }
    }

    /// The NPC, if it is one.
    #[must_use]
    pub const fn npc(self) -> Option<NpcId> {
        match self {
            Self::Npc(npc) => Some(npc),
            Self::Template(_) => None,
        }
    }
}

/// A memory about to be stored.
#[derive(Debug, Clone)]
pub struct NewMemory {
    /// Its id.
    pub id: MemoryId,
    /// Where agents read it, perhaps with expressions; by its id when not given.
    pub uri: Option<UriTemplate>,
    /// Whom it is about: an end user or a device.
    pub subject: Option<String>,
    /// What is remembered. Where the URI has expressions, `{{name}}` stands for what the URI says.
    pub text: String,
    /// What kind of memory it is.
    pub kind: Option<String>,
    /// How much it matters, 0 to 1.
    pub importance: f64,
    /// Where it comes from.
    pub source: Option<String>,
    /// What else its sender keeps with it.
    pub metadata: Map<String, Value>,
    /// `text/…` or `application/json`.
    pub mime_type: String,
    /// From when on nobody reads it.
    pub expires_at: Option<DateTime<Utc>>,
}

/// A memory as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Memory {
    /// Its id.
    pub id: MemoryId,
    /// Whose it is.
    pub owner: Owner,
    /// Who remembers it.
    pub holder: MemoryHolder,
    /// Where agents read it.
    pub uri: String,
    /// Whom it is about.
    pub subject: Option<String>,
    /// What is remembered.
    pub text: String,
    /// What kind of memory it is.
    pub kind: Option<String>,
    /// How much it matters, 0 to 1.
    pub importance: f64,
    /// Where it comes from.
    pub source: Option<String>,
    /// What else its sender keeps with it.
    pub metadata: Map<String, Value>,
    /// `text/…` or `application/json`.
    pub mime_type: String,
    /// From when on nobody reads it.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was sent.
    pub created_at: DateTime<Utc>,
}

/// What became of memories that were to be stored.
#[derive(Debug, Clone, PartialEq)]
pub enum MemoryWrite {
    /// All of them are stored, in the order in which they were given.
    Written(Vec<Memory>),
    /// The owner has no such template or NPC.
    UnknownHolder,
    /// Something else of the owner is read under this memory's URI, counted from 0; nothing was stored.
    UriTaken(usize),
}

impl NewMemory {
    /// Where agents read it.
    fn uri(&self) -> String {
        match &self.uri {
            Some(uri) => uri.as_str().to_owned(),
            None => format!("switchboard://memories/{}", self.id),
        }
    }

    /// What stands before the first expression, if there is one.
    fn prefix(&self) -> Option<&str> {
        let uri = self.uri.as_ref().filter(|uri| uri.has_expressions());
        uri.map(UriTemplate::prefix)
    }
}

impl Creation {
    /// Adds memories to a template or an NPC, all or none. What became of them says whether there is something to
    /// commit.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when an id exists already, else as every query.
    pub async fn add_memories(
        &mut self,
        owner: Owner,
        holder: impl Into<MemoryHolder>,
        memories: &[NewMemory],
    ) -> Result<MemoryWrite, StoreError> {
        let holder = holder.into();
        bounded(async {
            let Some(known) = hold(self.connection(), owner, holder).await? else {
                return Ok(MemoryWrite::UnknownHolder);
            };
            free_expired_uris(self.connection(), owner, memories).await?;
            let mut written = Vec::with_capacity(memories.len());
            for (index, memory) in memories.iter().enumerate() {
                let stored = insert(self.connection(), owner, &known, memory).await?;
                if !publish(self.connection(), owner, memory).await? {
                    return Ok(MemoryWrite::UriTaken(index));
                }
                written.push(stored);
            }
            Ok::<_, sqlx::Error>(MemoryWrite::Written(written))
        })
        .await
    }
}

impl Store {
    /// As [`Creation::add_memories`], in a transaction of its own.
    ///
    /// # Errors
    /// As there.
    pub async fn add_memories(
        &self,
        owner: Owner,
        holder: impl Into<MemoryHolder>,
        memories: &[NewMemory],
    ) -> Result<MemoryWrite, StoreError> {
        let mut creation = self.begin(owner).await?;
        let write = creation.add_memories(owner, holder, memories).await?;
        if matches!(write, MemoryWrite::Written(_)) {
            creation.commit().await?;
        }
        Ok(write)
    }

    /// Removes a memory; says whether its owner had one with this id.
    ///
    /// # Errors
    /// As every query.
    pub async fn delete_memory(&self, owner: Owner, id: MemoryId) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "DELETE FROM memories WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2
             AND (expires_at IS NULL OR expires_at > now())",
            id.uuid(),
            owner.column()
        );
        let deleted =
            bounded(async { query.execute(&mut *self.within(owner).await?).await }).await?;
        Ok(deleted.rows_affected() > 0)
    }
}

/// A holder that is there, and the language that it speaks.
struct Known {
    holder: MemoryHolder,
    language: Option<String>,
}

/// The language of a locale, as searching knows it.
fn language(locale: &str) -> String {
    let language = locale.split('-').next().unwrap_or_default();
    language.to_ascii_lowercase()
}

/// Finds the holder, which then stays until the transaction ends.
async fn hold(
    connection: &mut PgConnection,
    owner: Owner,
    holder: MemoryHolder,
) -> Result<Option<Known>, sqlx::Error> {
    let locale = match holder {
        MemoryHolder::Template(template) => {
            sqlx::query_scalar!(
                "SELECT locale FROM templates WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2 FOR KEY SHARE",
                template.uuid(),
                owner.column()
            )
            .fetch_optional(connection)
            .await?
        }
        MemoryHolder::Npc(npc) => {
            sqlx::query_scalar!(
                r#"SELECT COALESCE(n.overrides ->> 'locale',
                                   CASE WHEN n.template_version IS NULL THEN t.locale ELSE v.settings ->> 'locale' END
                          ) AS locale
                   FROM npcs n
                   LEFT JOIN templates t ON t.id = n.template_id
                   LEFT JOIN template_versions v ON v.template_id = n.template_id AND v.version = n.template_version
                   WHERE n.id = $1 AND n.org_id = $2 FOR KEY SHARE OF n"#,
                npc.uuid(),
                owner.column()
            )
            .fetch_optional(connection)
            .await?
        }
    };
    Ok(locale.map(|locale| Known {
        holder,
        language: locale.as_deref().map(language),
    }))
}

/// A memory that has ended keeps its URI from nobody.
async fn free_expired_uris(
    connection: &mut PgConnection,
    owner: Owner,
    memories: &[NewMemory],
) -> Result<(), sqlx::Error> {
    let uris: Vec<_> = memories.iter().map(NewMemory::uri).collect();
    sqlx::query!(
        "DELETE FROM memories m USING resources r
         WHERE r.memory_id = m.id AND r.org_id IS NOT DISTINCT FROM $1 AND r.uri = ANY ($2)
               AND m.expires_at <= now()",
        owner.column(),
        &uris
    )
    .execute(connection)
    .await
    .map(drop)
}

async fn insert(
    connection: &mut PgConnection,
    owner: Owner,
    known: &Known,
    memory: &NewMemory,
) -> Result<Memory, sqlx::Error> {
    let row = sqlx::query!(
        "INSERT INTO memories (id, org_id, template_id, npc_id, subject, text, kind, importance, source, metadata,
                               mime_type, expires_at, terms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, search_terms($13, $14))
         RETURNING expires_at, created_at",
        memory.id.uuid(),
        owner.column(),
        known.holder.template().map(TemplateId::uuid),
        known.holder.npc().map(NpcId::uuid),
        memory.subject,
        memory.text,
        memory.kind,
        memory.importance,
        memory.source,
        Json(&memory.metadata) as _,
        memory.mime_type,
        memory.expires_at,
        memory.text.to_lowercase(),
        known.language
    )
    .fetch_one(connection)
    .await?;
    Ok(Memory {
        id: memory.id,
        owner,
        holder: known.holder,
        uri: memory.uri(),
        subject: memory.subject.clone(),
        text: memory.text.clone(),
        kind: memory.kind.clone(),
        importance: memory.importance,
        source: memory.source.clone(),
        metadata: memory.metadata.clone(),
        mime_type: memory.mime_type.clone(),
        expires_at: row.expires_at,
        created_at: row.created_at,
    })
}

/// Puts the memory under its URI; says whether that was free.
async fn publish(
    connection: &mut PgConnection,
    owner: Owner,
    memory: &NewMemory,
) -> Result<bool, sqlx::Error> {
    let published = sqlx::query!(
        "INSERT INTO resources (org_id, uri, prefix, memory_id) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
        owner.column(),
        memory.uri(),
        memory.prefix(),
        memory.id.uuid()
    )
    .execute(connection)
    .await?;
    Ok(published.rows_affected() > 0)
}
