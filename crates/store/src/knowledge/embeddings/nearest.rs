//! Vector search: the nearest texts to a query. The searches merge the result with that of their
//! text search.
//! Invariant: a search does not fail because vectors cannot be compared.

use switchboard_protocol::id::{NpcId, SkillsBookId, TemplateId};
use uuid::Uuid;

use super::{QueryEmbedding, vector_literal};
use crate::{MemoryFilter, Owner, Store, StoreError, database::with_timeout};

/// How many of the nearest texts a search considers; it considers at least as many by text.
pub(crate) const MAX_NEAREST: i64 = 100;

/// The index scan continues until enough rows are visible to the reader, nearest first.
const ITERATIVE_SCAN: &str =
    "SET LOCAL hnsw.iterative_scan = strict_order; SET LOCAL hnsw.ef_search = 100";

/// The query was embedded by the current model.
const IS_CURRENT: &str =
    "$1 = (SELECT model FROM embedding_models ORDER BY generation DESC LIMIT 1)";

impl Store {
    /// The memories nearest to a query, weighted by importance. `None` without an embedding, or if
    /// it cannot be compared with the stored ones.
    pub(crate) async fn nearest_memories(
        &self,
        reader: Owner,
        filter: &MemoryFilter,
        embedding: Option<&QueryEmbedding>,
    ) -> Option<Vec<Uuid>> {
        let embedding = embedding?;
        let holders = [
            filter.template.map(TemplateId::uuid),
            filter.npc.map(NpcId::uuid),
        ];
        let found = with_timeout(async {
            let mut transaction = self.begin_tenant(reader).await?;
            sqlx::raw_sql(ITERATIVE_SCAN)
                .execute(&mut *transaction)
                .await?;
            // The columns of this table depend on the model, so no checked query can name it.
            let found = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
                "WITH nearest AS MATERIALIZED (
                     SELECT m.id, m.importance, 1 - (e.embedding <=> $2::halfvec) AS likeness
                     FROM embeddings e JOIN memories m ON m.id = e.memory_id
                     WHERE {IS_CURRENT} AND e.holder_id = ANY ($3)
                           AND (m.org_id = $4 OR m.org_id IS NULL) AND (m.expires_at IS NULL OR m.expires_at > now())
                           AND ($5::text[] IS NULL OR coalesce(m.subject, '') = ANY ($5)) AND ($6::text IS NULL OR m.kind = $6)
                     ORDER BY e.embedding <=> $2::halfvec LIMIT {MAX_NEAREST})
                 SELECT id FROM nearest WHERE likeness > 0 ORDER BY likeness * (1 + importance) DESC, id DESC"
            )))
            .bind(&embedding.model)
            .bind(vector_literal(&embedding.vector))
            .bind(holders.into_iter().flatten().collect::<Vec<_>>())
            .bind(reader.column())
            .bind(&filter.about)
            .bind(&filter.kind)
            .fetch_all(&mut *transaction)
            .await?;
            transaction.rollback().await?;
            Ok::<_, sqlx::Error>(found)
        });
        or_text_search(found.await)
    }

    /// The chunks of a book nearest to a query; otherwise like [`Store::nearest_memories`].
    pub(crate) async fn nearest_chunks(
        &self,
        reader: Owner,
        book: SkillsBookId,
        embedding: Option<&QueryEmbedding>,
    ) -> Option<Vec<i32>> {
        let embedding = embedding?;
        let found = with_timeout(async {
            let mut transaction = self.begin_tenant(reader).await?;
            sqlx::raw_sql(ITERATIVE_SCAN)
                .execute(&mut *transaction)
                .await?;
            // As above.
            let found = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
                "WITH nearest AS MATERIALIZED (
                     SELECT e.chunk, 1 - (e.embedding <=> $2::halfvec) AS likeness
                     FROM embeddings e
                     WHERE {IS_CURRENT} AND e.holder_id = $3
                           AND EXISTS (SELECT FROM skills_books WHERE id = $3 AND (org_id = $4 OR org_id IS NULL))
                     ORDER BY e.embedding <=> $2::halfvec LIMIT {MAX_NEAREST})
                 SELECT chunk FROM nearest WHERE likeness > 0 ORDER BY likeness DESC, chunk"
            )))
            .bind(&embedding.model)
            .bind(vector_literal(&embedding.vector))
            .bind(book.uuid())
            .bind(reader.column())
            .fetch_all(&mut *transaction)
            .await?;
            transaction.rollback().await?;
            Ok::<_, sqlx::Error>(found)
        });
        or_text_search(found.await)
    }
}

/// The table may be under conversion to another model at this moment.
fn or_text_search<T>(found: Result<Vec<T>, StoreError>) -> Option<Vec<T>> {
    found
        .inspect_err(|error| {
            tracing::warn!(
                error = error.report(),
                "vector search failed; using the text search only"
            );
        })
        .ok()
}
