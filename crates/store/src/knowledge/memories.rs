//! Memories of templates and NPCs.
//! Invariant: a batch of memories is stored completely or not at all.

mod queries;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::{PgConnection, types::Json};
use switchboard_catalog::UriTemplate;
use switchboard_protocol::id::{MemoryId, NpcId, TemplateId};

use crate::{Owner, Store, StoreError, TenantTransaction, database::with_timeout};
pub use queries::{MemoryFilter, MemoryMatch, MemoryQuery};

/// The template or NPC that a memory belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryHolder {
    /// A template, and all NPCs based on it.
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

/// A memory to insert.
#[derive(Debug, Clone)]
pub struct NewMemory {
    /// The id of the memory.
    pub id: MemoryId,
    /// The resource URI, possibly with expressions; derived from the id if not given.
    pub uri: Option<UriTemplate>,
    /// The end user or device that it is about.
    pub subject: Option<String>,
    /// The text. `{{name}}` stands for the value of the URI's expression `name`.
    pub text: String,
    /// The kind of memory.
    pub kind: Option<String>,
    /// The importance, 0 to 1.
    pub importance: f64,
    /// The origin of the memory.
    pub source: Option<String>,
    /// Arbitrary data of the caller.
    pub metadata: Map<String, Value>,
    /// The media type: `text/…` or `application/json`.
    pub mime_type: String,
    /// When it expires.
    pub expires_at: Option<DateTime<Utc>>,
}

/// A stored memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Memory {
    /// The id of the memory.
    pub id: MemoryId,
    /// Its owner.
    pub owner: Owner,
    /// The template or NPC that it belongs to.
    pub holder: MemoryHolder,
    /// The resource URI.
    pub uri: String,
    /// The end user or device that it is about.
    pub subject: Option<String>,
    /// The text.
    pub text: String,
    /// The kind of memory.
    pub kind: Option<String>,
    /// The importance, 0 to 1.
    pub importance: f64,
    /// The origin of the memory.
    pub source: Option<String>,
    /// Arbitrary data of the caller.
    pub metadata: Map<String, Value>,
    /// The media type: `text/…` or `application/json`.
    pub mime_type: String,
    /// When it expires.
    pub expires_at: Option<DateTime<Utc>>,
    /// Time of the upload.
    pub created_at: DateTime<Utc>,
    /// Counts the changes.
    pub version: i64,
}

/// The result of changing a memory.
#[derive(Debug, Clone, PartialEq)]
pub enum MemoryUpdate {
    /// The memory after the change.
    Written(Box<Memory>),
    /// The owner has no such memory.
    Unknown,
    /// It has another version.
    Stale,
}

/// The result of inserting memories.
#[derive(Debug, Clone, PartialEq)]
pub enum MemoryWrite {
    /// All of them were inserted, in the given order.
    Written(Vec<Memory>),
    /// The owner has no such template or NPC.
    UnknownHolder,
    /// The owner has another resource with the URI of this memory, counted from 0. None was
    /// inserted.
    UriTaken(usize),
}

impl NewMemory {
    /// The resource URI.
    fn uri(&self) -> String {
        match &self.uri {
            Some(uri) => uri.as_str().to_owned(),
            None => format!("switchboard://memories/{}", self.id),
        }
    }

    /// The literal before the first expression, if there is one.
    fn prefix(&self) -> Option<&str> {
        let uri = self.uri.as_ref().filter(|uri| uri.has_expressions());
        uri.map(UriTemplate::prefix)
    }
}

impl TenantTransaction {
    /// Adds memories to a template or an NPC, all or none. Commit only if the result is
    /// [`MemoryWrite::Written`].
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if an id exists, or any other [`StoreError`].
    pub async fn add_memories(
        &mut self,
        owner: Owner,
        holder: impl Into<MemoryHolder>,
        memories: &[NewMemory],
    ) -> Result<MemoryWrite, StoreError> {
        let holder = holder.into();
        with_timeout(async {
            let Some(holder) = lock_holder(self.connection(), owner, holder).await? else {
                return Ok(MemoryWrite::UnknownHolder);
            };
            delete_expired_uris(self.connection(), owner, memories).await?;
            let mut written = Vec::with_capacity(memories.len());
            for (index, memory) in memories.iter().enumerate() {
                let stored = insert(self.connection(), owner, &holder, memory).await?;
                if !insert_resource(self.connection(), owner, memory).await? {
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
    /// Calls [`TenantTransaction::add_memories`] in a new transaction and commits it.
    ///
    /// # Errors
    /// As that method.
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

    /// A memory of this owner.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn memory(&self, owner: Owner, id: MemoryId) -> Result<Option<Memory>, StoreError> {
        with_timeout(async {
            let mut connection = self.tenant_conn(owner).await?;
            queries::find(&mut connection, owner, id).await
        })
        .await
    }

    /// Replaces what can be changed in a memory that has this version: all but its URI and its holder.
    ///
    /// # Errors
    /// [`StoreError`] if a query fails.
    pub async fn update_memory(
        &self,
        owner: Owner,
        (id, version): (MemoryId, i64),
        settings: &NewMemory,
    ) -> Result<MemoryUpdate, StoreError> {
        let mut change = self.begin(owner).await?;
        let written = with_timeout(async {
            let connection = change.connection();
            let Some(found) = queries::find(connection, owner, id).await? else {
                return Ok(MemoryUpdate::Unknown);
            };
            let holder = lock_holder(connection, owner, found.holder).await?;
            let language = holder.and_then(|holder| holder.language);
            let written = sqlx::query_scalar!(
                "UPDATE memories SET subject = $4, text = $5, kind = $6, importance = $7, source = $8, metadata = $9,
                        mime_type = $10, expires_at = $11, terms = search_terms($12, $13), version = version + 1
                 WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2 AND version = $3
                       AND (expires_at IS NULL OR expires_at > now())
                 RETURNING version",
                id.uuid(),
                owner.column(),
                version,
                settings.subject,
                settings.text,
                settings.kind,
                settings.importance,
                settings.source,
                Json(&settings.metadata) as _,
                settings.mime_type,
                settings.expires_at,
                settings.text.to_lowercase(),
                language
            )
            .fetch_optional(&mut *connection)
            .await?;
            if written.is_none() {
                return Ok(MemoryUpdate::Stale);
            }
            let found = queries::find(connection, owner, id).await?;
            Ok::<_, sqlx::Error>(found.map_or(MemoryUpdate::Unknown, |memory| {
                MemoryUpdate::Written(Box::new(memory))
            }))
        })
        .await?;
        if matches!(written, MemoryUpdate::Written(_)) {
            change.commit().await?;
        }
        Ok(written)
    }

    /// Deletes a memory; returns whether the owner had one with this id.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn delete_memory(&self, owner: Owner, id: MemoryId) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "DELETE FROM memories WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2
             AND (expires_at IS NULL OR expires_at > now())",
            id.uuid(),
            owner.column()
        );
        let deleted =
            with_timeout(async { query.execute(&mut *self.tenant_conn(owner).await?).await })
                .await?;
        Ok(deleted.rows_affected() > 0)
    }
}

/// A holder that exists, and its language.
struct ResolvedHolder {
    holder: MemoryHolder,
    language: Option<String>,
}

/// The language of a locale, for the text search.
fn language(locale: &str) -> String {
    let language = locale.split('-').next().unwrap_or_default();
    language.to_ascii_lowercase()
}

/// Finds the holder, and locks it against deletion until the transaction ends.
async fn lock_holder(
    connection: &mut PgConnection,
    owner: Owner,
    holder: MemoryHolder,
) -> Result<Option<ResolvedHolder>, sqlx::Error> {
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
    Ok(locale.map(|locale| ResolvedHolder {
        holder,
        language: locale.as_deref().map(language),
    }))
}

/// Deletes expired memories whose URIs are needed.
async fn delete_expired_uris(
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
    holder: &ResolvedHolder,
    memory: &NewMemory,
) -> Result<Memory, sqlx::Error> {
    let row = sqlx::query!(
        "INSERT INTO memories (id, org_id, template_id, npc_id, subject, text, kind, importance, source, metadata,
                               mime_type, expires_at, terms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, search_terms($13, $14))
         RETURNING expires_at, created_at",
        memory.id.uuid(),
        owner.column(),
        holder.holder.template().map(TemplateId::uuid),
        holder.holder.npc().map(NpcId::uuid),
        memory.subject,
        memory.text,
        memory.kind,
        memory.importance,
        memory.source,
        Json(&memory.metadata) as _,
        memory.mime_type,
        memory.expires_at,
        memory.text.to_lowercase(),
        holder.language
    )
    .fetch_one(connection)
    .await?;
    Ok(Memory {
        id: memory.id,
        owner,
        holder: holder.holder,
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
        version: 1,
    })
}

/// Inserts the memory's resource; returns whether its URI was free.
async fn insert_resource(
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
