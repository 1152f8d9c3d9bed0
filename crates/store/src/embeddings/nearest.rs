//! What lies nearest to a question, by its numbers. Searches put it together with what they find by words.
//! Never: what the asker does not see, or a search that fails because numbers cannot be compared.

use switchboard_protocol::id::{NpcId, SkillsBookId, TemplateId};
use uuid::Uuid;

use super::{Meaning, written};
use crate::{MemoryFilter, Store, StoreError, database::bounded, owner::Owner};

/// How many of the nearest are looked at; searches look at as many by words, at least.
pub(crate) const NEAREST: i64 = 100;

/// The index goes on until enough is found of what the asker sees, nearest first.
const THOROUGH: &str =
    "SET LOCAL hnsw.iterative_scan = strict_order; SET LOCAL hnsw.ef_search = 100";

/// The numbers are of the model that was set last.
const IS_CURRENT: &str =
    "$1 = (SELECT model FROM embedding_models ORDER BY generation DESC LIMIT 1)";

impl Store {
    /// The memories nearest to a question, those that matter more a little nearer. None without a question's meaning, and
    /// none when the numbers cannot be compared with those that are stored.
    pub(crate) async fn nearest_memories(
        &self,
        reader: Owner,
        filter: &MemoryFilter,
        meaning: Option<&Meaning>,
    ) -> Option<Vec<Uuid>> {
        let meaning = meaning?;
        let holders = [
            filter.template.map(TemplateId::uuid),
            filter.npc.map(NpcId::uuid),
        ];
        let found = bounded(async {
            let mut transaction = self.begin_within(reader).await?;
            sqlx::raw_sql(THOROUGH).execute(&mut *transaction).await?;
            // No checked query can know a table whose columns depend on the model.
            let found = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
                "WITH nearest AS MATERIALIZED (
                     SELECT m.id, m.importance, 1 - (e.embedding <=> $2::halfvec) AS likeness
                     FROM embeddings e JOIN memories m ON m.id = e.memory_id
                     WHERE {IS_CURRENT} AND e.holder_id = ANY ($3)
                           AND (m.org_id = $4 OR m.org_id IS NULL) AND (m.expires_at IS NULL OR m.expires_at > now())
                           AND ($5::text[] IS NULL OR coalesce(m.subject, '') = ANY ($5)) AND ($6::text IS NULL OR m.kind = $6)
                     ORDER BY e.embedding <=> $2::halfvec LIMIT {NEAREST})
                 SELECT id FROM nearest WHERE likeness > 0 ORDER BY likeness * (1 + importance) DESC, id DESC"
            )))
            .bind(&meaning.model)
            .bind(written(&meaning.vector))
            .bind(holders.into_iter().flatten().collect::<Vec<_>>())
            .bind(reader.column())
            .bind(&filter.about)
            .bind(&filter.kind)
            .fetch_all(&mut *transaction)
            .await?;
            transaction.rollback().await?;
            Ok::<_, sqlx::Error>(found)
        });
        by_words_alone(found.await)
    }

    /// The chunks of a book that the reader sees, nearest to a question; likewise.
    pub(crate) async fn nearest_chunks(
        &self,
        reader: Owner,
        book: SkillsBookId,
        meaning: Option<&Meaning>,
    ) -> Option<Vec<i32>> {
        let meaning = meaning?;
        let found = bounded(async {
            let mut transaction = self.begin_within(reader).await?;
            sqlx::raw_sql(THOROUGH).execute(&mut *transaction).await?;
            // As above.
            let found = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
                "WITH nearest AS MATERIALIZED (
                     SELECT e.chunk, 1 - (e.embedding <=> $2::halfvec) AS likeness
                     FROM embeddings e
                     WHERE {IS_CURRENT} AND e.holder_id = $3
                           AND EXISTS (SELECT FROM skills_books WHERE id = $3 AND (org_id = $4 OR org_id IS NULL))
                     ORDER BY e.embedding <=> $2::halfvec LIMIT {NEAREST})
                 SELECT chunk FROM nearest WHERE likeness > 0 ORDER BY likeness DESC, chunk"
            )))
            .bind(&meaning.model)
            .bind(written(&meaning.vector))
            .bind(book.uuid())
            .bind(reader.column())
            .fetch_all(&mut *transaction)
            .await?;
            transaction.rollback().await?;
            Ok::<_, sqlx::Error>(found)
        });
        by_words_alone(found.await)
    }
}

/// Another process may be making the table anew for another model at this moment.
fn by_words_alone<T>(found: Result<Vec<T>, StoreError>) -> Option<Vec<T>> {
    found
        .inspect_err(|error| {
            tracing::warn!(
                error = error.report(),
                "a search goes by words alone: its numbers cannot be compared"
            );
        })
        .ok()
}
