//! What templates remember.
//! Never: a batch stored in part, or a memory read after its end.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::{PgConnection, types::Json};
use switchboard_protocol::id::{MemoryId, TemplateId};
use uuid::Uuid;

use crate::{Store, StoreError, database::bounded, owner::Owner, uri_template::UriTemplate};

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
    /// Which template remembers it.
    pub template: TemplateId,
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
    /// The owner has no such template.
    UnknownTemplate,
    /// Something else of the owner is read under this memory's URI, counted from 0; nothing was stored.
    UriTaken(usize),
}

struct Row {
    id: Uuid,
    org_id: Option<Uuid>,
    template_id: Uuid,
    uri: String,
    subject: Option<String>,
    text: String,
    kind: Option<String>,
    importance: f64,
    source: Option<String>,
    metadata: Json<Map<String, Value>>,
    mime_type: String,
    expires_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
}

impl From<Row> for Memory {
    fn from(row: Row) -> Self {
        Self {
            id: MemoryId::from_uuid(row.id),
            owner: Owner::from_column(row.org_id),
            template: TemplateId::from_uuid(row.template_id),
            uri: row.uri,
            subject: row.subject,
            text: row.text,
            kind: row.kind,
            importance: row.importance,
            source: row.source,
            metadata: row.metadata.0,
            mime_type: row.mime_type,
            expires_at: row.expires_at,
            created_at: row.created_at,
        }
    }
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

impl Store {
    /// Adds memories to a template, all or none.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when an id exists already, else as every query.
    pub async fn add_memories(
        &self,
        owner: Owner,
        template: TemplateId,
        memories: &[NewMemory],
    ) -> Result<MemoryWrite, StoreError> {
        bounded(async {
            let mut transaction = self.pool.begin().await?;
            let known = sqlx::query!(
                "SELECT id FROM templates WHERE id = $1 AND org_id IS NOT DISTINCT FROM $2 FOR KEY SHARE",
                template.uuid(),
                owner.column()
            )
            .fetch_optional(&mut *transaction)
            .await?;
            if known.is_none() {
                return Ok(MemoryWrite::UnknownTemplate);
            }
            free_expired_uris(&mut transaction, owner, memories).await?;
            let mut written = Vec::with_capacity(memories.len());
            for (index, memory) in memories.iter().enumerate() {
                let stored = insert(&mut transaction, owner, template, memory).await?;
                if !publish(&mut transaction, owner, memory).await? {
                    return Ok(MemoryWrite::UriTaken(index));
                }
                written.push(stored);
            }
            transaction.commit().await?;
            Ok::<_, sqlx::Error>(MemoryWrite::Written(written))
        })
        .await
    }

    /// Memories of a template that this reader sees, in the order of their sending, strictly after `after`.
    ///
    /// # Errors
    /// As every query.
    pub async fn memories(
        &self,
        reader: Owner,
        template: TemplateId,
        after: Option<MemoryId>,
        limit: u32,
    ) -> Result<Vec<Memory>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            r#"SELECT m.id, m.org_id, m.template_id AS "template_id!", r.uri, m.subject, m.text, m.kind, m.importance,
                      m.source, m.metadata AS "metadata: Json<Map<String, Value>>", m.mime_type, m.expires_at,
                      m.created_at
               FROM memories m JOIN resources r ON r.memory_id = m.id
               WHERE m.template_id = $1 AND (m.org_id = $2 OR m.org_id IS NULL)
                     AND (m.expires_at IS NULL OR m.expires_at > now()) AND ($3::uuid IS NULL OR m.id > $3)
               ORDER BY m.id LIMIT $4"#,
            template.uuid(),
            reader.column(),
            after.map(MemoryId::uuid),
            i64::from(limit)
        );
        let rows = bounded(query.fetch_all(&self.pool)).await?;
        Ok(rows.into_iter().map(Memory::from).collect())
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
        let deleted = bounded(query.execute(&self.pool)).await?;
        Ok(deleted.rows_affected() > 0)
    }
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
    template: TemplateId,
    memory: &NewMemory,
) -> Result<Memory, sqlx::Error> {
    let row = sqlx::query!(
        "INSERT INTO memories (id, org_id, template_id, subject, text, kind, importance, source, metadata, mime_type,
                               expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING expires_at, created_at",
        memory.id.uuid(),
        owner.column(),
        template.uuid(),
        memory.subject,
        memory.text,
        memory.kind,
        memory.importance,
        memory.source,
        Json(&memory.metadata) as _,
        memory.mime_type,
        memory.expires_at
    )
    .fetch_one(connection)
    .await?;
    Ok(Memory {
        id: memory.id,
        owner,
        template,
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
