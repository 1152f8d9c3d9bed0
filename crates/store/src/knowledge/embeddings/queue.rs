//! The queue of texts to embed.
//! Invariant: a text is queued at most once, and leased to one worker at a time.

use std::time::Duration;

use super::{EmbeddingModel, vector_literal};
use crate::{
    Store, StoreError,
    database::{interval, with_timeout},
};

/// How much of a text is embedded, in characters: models accept some thousand tokens.
const MAX_TEXT_CHARS: i32 = 6_000;

/// A text that is leased to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextToEmbed {
    /// Its position in the queue.
    pub id: i64,
    /// The text, truncated.
    pub text: String,
    /// How often the model failed on it while it embedded others.
    pub failures: i32,
}

impl Store {
    /// Claims texts that are due; `None` if another model was set since.
    ///
    /// # Errors
    /// [`StoreError`] if the query fails.
    pub async fn claim_texts_to_embed(
        &self,
        model: &EmbeddingModel,
        limit: usize,
        lease: Duration,
    ) -> Result<Option<Vec<TextToEmbed>>, StoreError> {
        if self.embedding_model().await?.as_ref() != Some(model) {
            return Ok(None);
        }
        let query = sqlx::query_as!(
            TextToEmbed,
            r#"WITH due AS (
                   SELECT id FROM embedding_queue WHERE due_at <= now()
                   ORDER BY due_at, id LIMIT $1 FOR UPDATE SKIP LOCKED),
               claimed AS (
                   UPDATE embedding_queue q SET due_at = now() + $2::interval FROM due
                   WHERE q.id = due.id RETURNING q.id, q.memory_id, q.book_id, q.chunk, q.failures)
               SELECT claimed.id AS "id!", left(coalesce(m.text, concat_ws(E'\n', c.heading, c.text)), $3) AS "text!",
                      claimed.failures AS "failures!"
               FROM claimed
               LEFT JOIN memories m ON m.id = claimed.memory_id
               LEFT JOIN skills_book_chunks c ON c.book_id = claimed.book_id AND c.number = claimed.chunk
               ORDER BY claimed.id"#,
            i64::try_from(limit).unwrap_or(i64::MAX),
            interval(lease),
            MAX_TEXT_CHARS
        );
        Ok(Some(
            with_timeout(async { query.fetch_all(&mut *self.system_conn().await?).await }).await?,
        ))
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
    /// already stored by another worker, are skipped.
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
        // The columns of this table depend on the model, so no checked query can name it.
        let query = sqlx::query(
            "WITH answers AS (SELECT * FROM UNNEST($1::bigint[], $2::text[]) AS answer (id, embedding)),
                  done AS (DELETE FROM embedding_queue q USING answers a WHERE q.id = a.id
                           RETURNING q.memory_id, q.book_id, q.chunk, a.embedding)
             INSERT INTO embeddings (holder_id, memory_id, book_id, chunk, embedding)
             SELECT coalesce(m.npc_id, m.template_id, done.book_id), done.memory_id, done.book_id, done.chunk,
                    done.embedding::halfvec
             FROM done LEFT JOIN memories m ON m.id = done.memory_id
             WHERE done.book_id IS NOT NULL OR m.id IS NOT NULL
             ON CONFLICT DO NOTHING",
        )
        .bind(ids(texts))
        .bind(vectors);
        let stored =
            with_timeout(async { query.execute(&mut *self.system_conn().await?).await }).await?;
        Ok(stored.rows_affected())
    }
}

fn ids(texts: &[TextToEmbed]) -> Vec<i64> {
    texts.iter().map(|text| text.id).collect()
}
