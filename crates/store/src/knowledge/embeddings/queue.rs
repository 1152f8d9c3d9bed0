//! The queue of texts to embed.
//! Invariant: a text is queued at most once, and leased to one worker at a time. The texts of a
//! batch belong to as many owners as wait.

use std::time::Duration;

use super::{EmbeddingModel, vector_literal};
use crate::{
    Owner, Store, StoreError,
    database::{interval, job_turn::JobTurn, with_timeout},
};

/// How much of a text is embedded, in characters: models accept some thousand tokens.
const MAX_TEXT_CHARS: i32 = 6_000;

/// A text that is leased to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextToEmbed {
    /// Its position in the queue.
    pub id: i64,
    /// The owner of the memory or the skills book.
    pub owner: Owner,
    /// The text, truncated.
    pub text: String,
    /// The version of its memory, if it is one's.
    pub version: Option<i64>,
    /// How often the model failed on it while it embedded others.
    pub failures: i32,
}

impl Store {
    /// Claims texts that are due, `limit` in all, as many of one owner as of another; `None` if
    /// another model was set since. Texts of suspended organisations wait.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn claim_texts_to_embed(
        &self,
        model: &EmbeddingModel,
        limit: usize,
        lease: Duration,
        turn: &mut JobTurn,
    ) -> Result<Option<Vec<TextToEmbed>>, StoreError> {
        if self.embedding_model().await?.as_ref() != Some(model) {
            return Ok(None);
        }
        loop {
            let texts = self.claim_next_texts(limit, lease, turn).await?;
            let owners = texts.iter().map(|text| text.owner);
            if let Some(last) = owners.max_by_key(|owner| owner.key()) {
                turn.served(last);
                return Ok(Some(texts));
            }
            if !turn.restart() {
                return Ok(Some(texts));
            }
        }
    }

    async fn claim_next_texts(
        &self,
        limit: usize,
        lease: Duration,
        turn: &JobTurn,
    ) -> Result<Vec<TextToEmbed>, StoreError> {
        // Walks the index from owner to owner, to at most as many owners as texts are claimed. A
        // suspended one takes no place.
        let query = sqlx::query!(
            r#"WITH RECURSIVE walked AS (
                   (SELECT owner_id, 0::bigint AS before FROM embedding_queue
                    WHERE owner_id >= $4 AND due_at <= now() ORDER BY owner_id LIMIT 1)
                   UNION ALL
                   SELECT (SELECT next.owner_id FROM embedding_queue next
                           WHERE next.owner_id > walked.owner_id AND next.due_at <= now()
                           ORDER BY next.owner_id LIMIT 1),
                          walked.before + (walked.owner_id <> ALL (ARRAY(SELECT id FROM orgs WHERE suspended_at IS NOT NULL)))::int
                   FROM walked WHERE walked.owner_id IS NOT NULL AND walked.before < $1),
               owners AS (
                   SELECT owner_id FROM walked
                   WHERE owner_id <> ALL (ARRAY(SELECT id FROM orgs WHERE suspended_at IS NOT NULL)) AND before < $1),
               due AS (
                   SELECT one.id FROM owners
                   CROSS JOIN LATERAL (
                       SELECT id FROM embedding_queue
                       WHERE owner_id = owners.owner_id AND due_at <= now() ORDER BY due_at, id
                       LIMIT (SELECT greatest($1 / count(counted.owner_id), 1) FROM owners counted)
                       FOR UPDATE SKIP LOCKED) one),
               claimed AS (
                   UPDATE embedding_queue q SET due_at = now() + $2::interval FROM due
                   WHERE q.id = due.id RETURNING q.id, q.owner_id, q.memory_id, q.book_id, q.chunk, q.failures)
               SELECT claimed.id AS "id!", claimed.owner_id AS "owner_id!",
                      left(coalesce(m.text, concat_ws(E'\n', c.heading, c.text)), $3) AS "text!", claimed.failures AS "failures!",
                      m.version AS "version?"
               FROM claimed
               LEFT JOIN memories m ON m.id = claimed.memory_id
               LEFT JOIN skills_book_chunks c ON c.book_id = claimed.book_id AND c.number = claimed.chunk
               ORDER BY claimed.id"#,
            i64::try_from(limit).unwrap_or(i64::MAX),
            interval(lease),
            MAX_TEXT_CHARS,
            turn.first()
        );
        let rows =
            with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await }).await?;
        let texts = rows.into_iter().map(|row| TextToEmbed {
            id: row.id,
            owner: Owner::from_key(row.owner_id),
            text: row.text,
            version: row.version,
            failures: row.failures,
        });
        Ok(texts.collect())
    }

    /// Releases texts for other workers after `delay`.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn release_texts_to_embed(
        &self,
        texts: &[TextToEmbed],
        delay: Duration,
    ) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "UPDATE embedding_queue SET due_at = now() + $2::interval WHERE id = ANY ($1)",
            &ids(texts),
            interval(delay)
        );
        with_timeout(async { query.execute(&mut *self.system_conn().await?).await })
            .await
            .map(drop)
    }

    /// Releases a text on which the model failed while it embedded others.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn postpone_text_to_embed(
        &self,
        text: &TextToEmbed,
        delay: Duration,
    ) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "UPDATE embedding_queue SET failures = failures + 1, due_at = now() + $2::interval WHERE id = $1",
            text.id,
            interval(delay)
        );
        with_timeout(async { query.execute(&mut *self.system_conn().await?).await })
            .await
            .map(drop)
    }

    /// Removes a text that the model rejects. The text search still finds it.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn remove_text_to_embed(&self, text: &TextToEmbed) -> Result<(), StoreError> {
        let query = sqlx::query!("DELETE FROM embedding_queue WHERE id = $1", text.id);
        with_timeout(async { query.execute(&mut *self.system_conn().await?).await })
            .await
            .map(drop)
    }

    /// Stores the embeddings of texts and removes those from the queue. Deleted texts, and those
    /// already stored by another worker, are skipped; a memory that has changed since stays in the
    /// queue.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails, also if a vector has the wrong dimensions.
    pub async fn store_embeddings(
        &self,
        texts: &[TextToEmbed],
        vectors: &[Vec<f32>],
    ) -> Result<u64, StoreError> {
        let vectors: Vec<_> = vectors
            .iter()
            .map(|vector| vector_literal(vector))
            .collect();
        let versions: Vec<_> = texts.iter().map(|text| text.version).collect();
        // A text that has changed is there already.
        let replaced = sqlx::query(
            "DELETE FROM embeddings WHERE memory_id IN
             (SELECT memory_id FROM embedding_queue WHERE id = ANY ($1))",
        )
        .bind(ids(texts));
        // The columns of this table depend on the model, so no checked query can name it.
        let query = sqlx::query(
            "WITH answers AS (SELECT * FROM UNNEST($1::bigint[], $2::text[], $3::bigint[]) AS answer (id, embedding, version)),
                  unchanged AS (SELECT m.id FROM memories m JOIN embedding_queue q ON q.memory_id = m.id
                                JOIN answers a ON a.id = q.id WHERE m.version = a.version FOR SHARE OF m),
                  done AS (DELETE FROM embedding_queue q USING answers a
                           WHERE q.id = a.id AND (q.memory_id IS NULL OR q.memory_id IN (SELECT id FROM unchanged))
                           RETURNING q.memory_id, q.book_id, q.chunk, a.embedding)
             INSERT INTO embeddings (holder_id, memory_id, book_id, chunk, embedding)
             SELECT coalesce(m.npc_id, m.template_id, done.book_id), done.memory_id, done.book_id, done.chunk,
                    done.embedding::halfvec
             FROM done LEFT JOIN memories m ON m.id = done.memory_id
             WHERE done.book_id IS NOT NULL OR m.id IS NOT NULL
             ON CONFLICT DO NOTHING",
        )
        .bind(ids(texts))
        .bind(vectors)
        .bind(versions);
        let stored = with_timeout(async {
            let mut connection = self.system_conn().await?;
            replaced.execute(&mut *connection).await?;
            query.execute(&mut *connection).await
        })
        .await?;
        Ok(stored.rows_affected())
    }
}

fn ids(texts: &[TextToEmbed]) -> Vec<i64> {
    texts.iter().map(|text| text.id).collect()
}
