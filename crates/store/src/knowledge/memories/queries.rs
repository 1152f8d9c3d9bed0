//! Queries on memories: lists and searches.
//! Invariant: an expired memory is not returned.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::{PgConnection, types::Json};
use switchboard_protocol::id::{MemoryId, NpcId, TemplateId};
use uuid::Uuid;

use super::{Memory, MemoryHolder, language};
use crate::{
    Owner, QueryEmbedding, Store, StoreError,
    database::{page::MAX_PAGE_BYTES, with_timeout},
};

/// Restricts the memories of a query. Without a template and an NPC there are none.
#[derive(Debug, Clone, Default)]
pub struct MemoryFilter {
    /// Memories of this template.
    pub template: Option<TemplateId>,
    /// Memories of this NPC, in addition to the template's.
    pub npc: Option<NpcId>,
    /// Memories about one of these end users or devices; an empty string selects those without a
    /// subject.
    pub about: Option<Vec<String>>,
    /// Memories of this kind.
    pub kind: Option<String>,
}

/// A search query.
#[derive(Debug, Clone, Copy)]
pub struct MemoryQuery<'a> {
    /// The text, in any language.
    pub text: &'a str,
    /// The locale of the text, if known.
    pub locale: Option<&'a str>,
    /// The embedding of the text, if a model is configured.
    pub embedding: Option<&'a QueryEmbedding>,
}

/// A memory that matches a query.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryMatch {
    /// The memory.
    pub memory: Memory,
    /// From 0 to 1: how much of the query it matches, and how often, weighted by importance down to
    /// a half. With an embedding, by its ranks in the text search and in the vector search.
    pub score: f64,
}

struct Row {
    id: Uuid,
    org_id: Option<Uuid>,
    template_id: Option<Uuid>,
    npc_id: Option<Uuid>,
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
    version: i64,
    score: f64,
}

impl From<Row> for MemoryMatch {
    fn from(row: Row) -> Self {
        let npc = row.npc_id.map(|id| NpcId::from_uuid(id).into());
        // A memory has exactly one of the two.
        let template = TemplateId::from_uuid(row.template_id.unwrap_or_default());
        let memory = Memory {
            id: MemoryId::from_uuid(row.id),
            owner: Owner::from_column(row.org_id),
            holder: npc.unwrap_or(MemoryHolder::Template(template)),
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
            version: row.version,
        };
        Self {
            memory,
            score: row.score,
        }
    }
}

/// A memory of this owner that has not expired.
pub(super) async fn find(
    connection: &mut PgConnection,
    owner: Owner,
    id: MemoryId,
) -> Result<Option<Memory>, sqlx::Error> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT m.id, m.org_id, m.template_id, m.npc_id, r.uri, m.subject, m.text, m.kind, m.importance, m.source,
                  m.metadata AS "metadata: Json<Map<String, Value>>", m.mime_type, m.expires_at, m.created_at, m.version,
                  0::float8 AS "score!"
           FROM memories m JOIN resources r ON r.memory_id = m.id
           WHERE m.id = $1 AND m.org_id IS NOT DISTINCT FROM $2 AND (m.expires_at IS NULL OR m.expires_at > now())"#,
        id.uuid(),
        owner.column()
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| MemoryMatch::from(row).memory))
}

impl Store {
    /// Memories that the reader can read, in the order of their upload, strictly after `after`.
    /// At most `limit`, and at most one beyond 4 MiB of text.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn memories(
        &self,
        reader: Owner,
        filter: &MemoryFilter,
        after: Option<MemoryId>,
        limit: u32,
    ) -> Result<Vec<Memory>, StoreError> {
        let query = sqlx::query_as!(
            Row,
            r#"WITH readable AS NOT MATERIALIZED (
                   SELECT * FROM memories
                   WHERE (org_id = $1 OR org_id IS NULL) AND (expires_at IS NULL OR expires_at > now()) AND id > $4
                         AND ($5::text[] IS NULL OR coalesce(subject, '') = ANY ($5)) AND ($6::text IS NULL OR kind = $6)),
               templates AS (SELECT * FROM readable WHERE template_id = $2 ORDER BY id LIMIT $7),
               own AS (SELECT * FROM readable WHERE npc_id = $3 ORDER BY id LIMIT $7)
               SELECT m.id AS "id!", m.org_id, m.template_id, m.npc_id, r.uri, m.subject, m.text AS "text!", m.kind,
                      m.importance AS "importance!", m.source, m.metadata AS "metadata!: Json<Map<String, Value>>",
                      m.mime_type AS "mime_type!", m.expires_at, m.created_at AS "created_at!", m.version AS "version!", 0::float8 AS "score!"
               FROM (SELECT *, sum(octet_length(text)) OVER (ORDER BY id) - octet_length(text) AS bytes_before
                     FROM (SELECT * FROM templates UNION ALL SELECT * FROM own ORDER BY id LIMIT $7) page) m
               JOIN resources r ON r.memory_id = m.id
               WHERE m.bytes_before <= $8 ORDER BY m.id"#,
            reader.column(),
            filter.template.map(TemplateId::uuid),
            filter.npc.map(NpcId::uuid),
            after.map_or(Uuid::nil(), MemoryId::uuid),
            filter.about.as_deref(),
            filter.kind,
            i64::from(limit),
            MAX_PAGE_BYTES
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(reader).await?).await })
                .await?;
        let found = rows.into_iter().map(MemoryMatch::from);
        Ok(found.map(|found| found.memory).collect())
    }

    /// Memories that the reader can read and that match a query, best first; of equal ones the
    /// newest. At most `limit`, and at most one beyond 4 MiB of text.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn search_memories(
        &self,
        reader: Owner,
        filter: &MemoryFilter,
        question: MemoryQuery<'_>,
        limit: u32,
    ) -> Result<Vec<MemoryMatch>, StoreError> {
        // No memory contains NUL, and the server rejects it.
        if question.text.contains('\0') {
            return Ok(Vec::new());
        }
        let nearest = self
            .nearest_memories(reader, filter, question.embedding)
            .await;
        let query = sqlx::query_as!(
            Row,
            r#"WITH asked AS MATERIALIZED (SELECT search_query($4, $5) AS query),
               found AS (
                   SELECT m.id, ts_rank('{1,1,1,1}', m.terms, asked.query) * (1 + m.importance) / 2 AS score
                   FROM memories m, asked
                   WHERE m.terms @@ asked.query AND (m.template_id = $2 OR m.npc_id = $3)
                         AND (m.org_id = $1 OR m.org_id IS NULL) AND (m.expires_at IS NULL OR m.expires_at > now())
                         AND ($6::text[] IS NULL OR coalesce(m.subject, '') = ANY ($6)) AND ($7::text IS NULL OR m.kind = $7)
                   ORDER BY score DESC, m.id DESC LIMIT greatest($8::bigint, cardinality($9::uuid[]))),
               by_words AS (SELECT id, score, row_number() OVER (ORDER BY score DESC, id DESC) AS place FROM found),
               by_meaning AS (SELECT id, place FROM UNNEST($9::uuid[]) WITH ORDINALITY AS nearest (id, place)),
               best AS (
                   SELECT coalesce(w.id, n.id) AS id,
                          CASE WHEN $9::uuid[] IS NULL THEN w.score ELSE fused_score(w.place, n.place) END AS score
                   FROM by_words w FULL JOIN by_meaning n ON n.id = w.id
                   ORDER BY score DESC, id DESC LIMIT $8),
               page AS (
                   SELECT best.*, sum(octet_length(m.text)) OVER (ORDER BY best.score DESC, best.id DESC)
                                  - octet_length(m.text) AS bytes_before
                   FROM best JOIN memories m ON m.id = best.id)
               SELECT m.id, m.org_id, m.template_id, m.npc_id, r.uri, m.subject, m.text, m.kind, m.importance, m.source,
                      m.metadata AS "metadata: Json<Map<String, Value>>", m.mime_type, m.expires_at, m.created_at,
                      m.version, page.score AS "score!"
               FROM page JOIN memories m ON m.id = page.id JOIN resources r ON r.memory_id = m.id
               WHERE page.bytes_before <= $10 ORDER BY page.score DESC, m.id DESC"#,
            reader.column(),
            filter.template.map(TemplateId::uuid),
            filter.npc.map(NpcId::uuid),
            question.text.to_lowercase(),
            question.locale.map(language),
            filter.about.as_deref(),
            filter.kind,
            i64::from(limit),
            nearest.as_deref() as Option<&[Uuid]>,
            MAX_PAGE_BYTES
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.tenant_conn(reader).await?).await })
                .await?;
        Ok(rows.into_iter().map(MemoryMatch::from).collect())
    }
}
